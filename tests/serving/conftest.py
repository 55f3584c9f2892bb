"""Real checkpoints to serve, and servers on ports that the system chooses."""

import asyncio
import contextlib
import threading

import numpy as np
import pytest
import torch

from rrf.client.connection import PolicyClient
from rrf.data.schema import ACTION, STATE
from rrf.lineage import DatasetLineage, Lineage
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies import FlowMatchingHeadCfg, RegressionHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from rrf.runners.checkpoints.checkpoint import TrainerState, save
from rrf.runners.checkpoints.deployed import Signature, Tensor
from rrf.serving.cast import Cast
from rrf.serving.configs import ServingCfg
from rrf.serving.following import Follower
from rrf.serving.model import ServedPolicy
from rrf.serving.player import Player
from rrf.serving.requests import RequestReader
from rrf.serving.server import PolicyServer

NAMES = ("mean", "std", "min", "max", "q01", "q99")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A client that is not told how long waits for a busy machine."""
    usual = {**PolicyClient.__init__.__kwdefaults__, "timeout_s": 120.0, "connect_s": 120.0}
    monkeypatch.setattr(PolicyClient.__init__, "__kwdefaults__", usual)


def written(folder, head, chunk_length=2):
    """A checkpoint of the compact policy with random weights."""
    cfg = resolve("compact-vla-pretrain")
    return saved(
        folder, cfg.replace(policy=cfg.policy.replace(head=head, chunk_length=chunk_length))
    )


def saved(folder, cfg):
    """A checkpoint of a run's policy with random weights."""
    stats = {
        key: {n: [0.0 if n == "mean" else -1.0 if n in ("min", "q01") else 1.0] * 4 for n in NAMES}
        | {"count": [10]}
        for key in (STATE, ACTION)
    }
    torch.manual_seed(0)
    policy = cfg.policy.build(stats)
    for weight in policy.parameters():
        torch.nn.init.normal_(weight, std=0.1)  # the output layers of heads begin as zeros
    trainer = TrainerState({"x": torch.zeros(1)}, {"step": 1})
    return save(
        folder, 1, cfg, policy.state_dict(), stats, trainer, Lineage((DatasetLineage("demo"),))
    )


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return written(tmp_path_factory.mktemp("compact"), RegressionHeadCfg())


@pytest.fixture(scope="session")
def flow_checkpoint(tmp_path_factory):
    head = FlowMatchingHeadCfg(noise_method="flow_sde")
    return written(tmp_path_factory.mktemp("flow"), head, chunk_length=4)


@pytest.fixture(scope="session")
def looking(tmp_path_factory):
    """A policy that sees an image and a state of two steps before."""
    policy = VLMPolicyCfg(
        cameras=["corner2"],
        image_size=(64, 64),
        state_dim=4,
        action_dim=4,
        backbone=MockBackboneCfg(tokenizer=TokenizerCfg(words=["open"]), hidden_size=16),
        past_images=1,
        past_states=1,
        past_stride=2,
    )
    cfg = resolve("compact-vla-pretrain").replace(policy=policy)
    return saved(tmp_path_factory.mktemp("looking"), cfg)


def observation(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "observation.images.corner2": rng.integers(0, 256, (64, 64, 3), dtype=np.uint8),
        "observation.state": rng.uniform(-1, 1, 4).astype(np.float32),
        "instruction": "open the drawer",
    }


class Scripted(ServedPolicy):
    """A policy whose answers a test decides: chunks of `length` times the state, by default 2."""

    def __init__(self, length=2):
        self.label, self.device, self.digest, self._kind = "scripted", "cpu", "none", "vla"
        inputs = (Tensor("float32", (-1, 3), STATE), Tensor("str", (-1,), "instruction"))
        self.signature = Signature(inputs, Tensor("float32", (-1, length, 3)))
        self.can_resume = False
        self.batches = []
        self.entered, self.may_go = threading.Semaphore(0), threading.Event()
        self.may_go.set()

    def answer(self, rows):
        self.batches.append(len(rows))
        self.entered.release()
        assert self.may_go.wait(10)
        states = np.stack([row.inputs[STATE] for row in rows])
        if (states == 13).any():
            raise RuntimeError("an unlucky number")
        length = self.signature.output.shape[1]
        actions = np.repeat(states[:, None], length, axis=1)
        actions[states[:, 0] == 14] = np.nan
        return actions


def request(*state):
    return {"observation.state": np.array(state, np.float32), "prompt": "go"}


class Running:
    """A server that runs in a thread."""

    def __init__(self, policy, token=None, standing=None, book=None, follow=None, **settings):
        cfg = ServingCfg(**{"port": 0, **settings})
        version = standing.version if standing else follow[0].now.champion if follow else ""
        player = policy
        if not isinstance(policy, Player):
            reader = RequestReader(policy.signature, cfg.rename, cfg.instruction)
            player = Player(policy, reader.row, version)
        self.cast = Cast(player, lambda _: standing.revoked) if standing else Cast(player)
        self._beside = [standing] if standing else []
        self.server = server = PolicyServer(cfg, self.cast, token, book)
        if follow:
            model, every_s = follow

            def load(version):
                policy = model.load(version)
                return Player(policy, RequestReader(policy.signature).row, version)

            ways = (load, server.start, book, server.metrics, every_s)
            self._beside = [Follower(model, self.cast, *ways)]
        self._ready = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self._ready.wait(120)
        if self.failure:
            raise self.failure

    def _run(self):
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self.failure = error
            self._ready.set()

    async def _serve(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        for each in self._beside:
            await each.look()
        beside = [each.watch() for each in self._beside]
        await self.server.run(self._stop, self._is_ready, beside)

    def _is_ready(self, url, port):
        self.url, self.port = url, port
        self._ready.set()

    def stop(self):
        """Ask it to stop; does not wait."""
        self._loop.call_soon_threadsafe(self._stop.set)

    def stopped(self, timeout=10):
        self.thread.join(timeout)
        return not self.thread.is_alive()

    def errors(self, kind):
        return self.server.metrics.errors.labels(kind)._value.get()


@pytest.fixture
def serving():
    """A context of running servers."""
    with contextlib.ExitStack() as stack:

        def start(policy, token=None, standing=None, book=None, follow=None, **settings):
            running = Running(policy, token, standing, book, follow, **settings)
            stack.callback(end, running, policy)
            return running

        yield start


def end(running, policy):
    if isinstance(policy, Scripted):
        policy.may_go.set()
    if running.thread.is_alive():
        running.stop()
    assert running.stopped()
    assert running.failure is None
