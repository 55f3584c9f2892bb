"""Our policies behind vla-eval's protocol, and its model servers judged by our protocols.

With a Python that has vla-eval 0.8 (`RRF_TEST_VLA_EVAL=/path/to/python`), the real harness runs a
benchmark on our server, and our protocol judges its model server.
"""

import asyncio
import contextlib
import dataclasses
import json
import math
import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from websockets.sync.client import connect

from rrf.client.vla_eval import ACTION, ERROR, HELLO, OBSERVATION, Frame, ModelClient, pack, unpack
from rrf.evaluation.candidate import candidate_at
from rrf.evaluation.protocols.base import Resources
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.evaluation.vla.execution_configs import TemporalEnsembleCfg
from rrf.evaluation.vla.remote import RemotePolicy, candidate_of
from rrf.serving.book import Book
from rrf.serving.cast import Cast
from rrf.serving.configs import ServingCfg
from rrf.serving.drift import Drift
from rrf.serving.model import loaded
from rrf.serving.player import Player
from rrf.serving.requests import RequestReader
from rrf.serving.vla_eval import VlaEvalServer
from tests.serving.conftest import Scripted

PROTOCOL = ProtocolCfg(
    name="two", tasks=["drawer-open-v3"], seed=4242, episodes_per_task=2, max_episode_steps=4,
    execute_steps=1, num_slots=2, inference_batch=1,
)  # fmt: skip


@contextlib.contextmanager
def serving(player, book=None, revoked=lambda _: "", **settings):
    """A server of a player in a thread; its address HOST:PORT."""
    ready, loop, told = threading.Event(), asyncio.new_event_loop(), []
    stop = asyncio.Event()
    cfg = ServingCfg(**{"port": 0, "protocol": "vla-eval", "max_batch": 1, **settings})
    server = VlaEvalServer(cfg, Cast(player, revoked), None, book)

    def is_ready(url, _):
        told.append(url.removeprefix("ws://"))
        ready.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(server.run(stop, is_ready),))
    thread.start()
    try:
        assert ready.wait(60)
        yield told[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


def scripted(length=3):
    policy = Scripted(length)
    return Player(policy, RequestReader(policy.signature).row)


SEEN = {"images": {}, "task_description": "go", "state": np.ones(3, np.float32)}


def test_a_chunk_is_executed_step_by_step_and_a_new_episode_begins_a_new_one():
    player = scripted()
    with serving(player, execute_steps=2) as address:
        client = ModelClient(f"vla-eval://{address}")
        assert client.server["protocol_version"] == 1
        client.start({"name": "go"})
        for number in range(1, 4):  # the second action is the rest of the first chunk
            actions = client.act({**SEEN, "state": np.full(3, number, np.float32)})
            assert actions.shape == (1, 3)
            assert actions[0, 0] == {1: 1, 2: 1, 3: 3}[number]
        client.end({"metrics": {"success": True}})
        client.start({"name": "go"})
        assert client.act({**SEEN, "state": np.full(3, 7, np.float32)})[0, 0] == 7
        client.close()


def test_episodes_and_their_outcomes_are_in_the_book(tmp_path):
    book = Book(tmp_path / "book.sqlite")
    with serving(scripted(), book) as address:
        client = ModelClient(f"vla-eval://{address}")
        for success in (True, False, None, 0.3, math.nan):
            client.start({"name": "reach"})
            client.act(SEEN)
            client.end({"metrics": {} if success is None else {"success": success}})
        client.start({"name": "reach"})
        client.act(SEEN)  # its answer comes after the ends before it
        client.close()
    episodes = book.episodes()
    assert [e.task for e in episodes] == ["reach"] * 6
    solved = [e.outcome.success for e in episodes[:5] if e.outcome]
    assert solved == [True, False, None, None, None]
    assert episodes[5].outcome is None
    book.close()


def test_what_is_seen_is_watched_for_drift(tmp_path, caplog):
    book, player = Book(tmp_path / "book.sqlite"), scripted()
    player.drift = Drift(np.array([-0.5] * 3), np.array([0.5] * 3))
    with serving(player, book) as address:
        client = ModelClient(f"vla-eval://{address}")
        for _ in range(6):
            client.start({"name": "reach"})
            client.act(SEEN)
            client.end({"metrics": {"success": True}})
        client.start({"name": "reach"})
        client.act(SEEN)  # its answer comes after the ends before it
        client.close()
    book.close()
    assert caplog.text.count("sees what it was not trained on: dimension 0") == 1


def test_guards_belong_to_the_outcome_and_a_withdrawn_version_answers_nobody(tmp_path):
    book, why = Book(tmp_path / "book.sqlite"), [""]
    with serving(scripted(), book, lambda _: why[0], action_high=[0.5] * 3) as address:
        client = ModelClient(f"vla-eval://{address}")
        client.start({"name": "reach"})
        client.act(SEEN)
        client.end({"metrics": {"success": True}})
        client.start({"name": "reach"})
        client.act(SEEN)
        why[0] = "version 3 was withdrawn"
        with pytest.raises(Exception, match="version 3 was withdrawn"):
            client.act(SEEN)
        client.start({"name": "reach"})
        with pytest.raises(Exception, match="version 3 was withdrawn"):
            client.act(SEEN)
        client.close()
    first, _ = book.episodes()  # none begins with a version that is withdrawn
    assert (first.outcome.success, first.outcome.guards) == (True, 1)
    book.close()


def test_bad_observations_are_refused_and_bad_frames_end_the_connection():
    with serving(scripted()) as address:
        with connect(f"ws://{address}") as connection:
            connection.send(pack(Frame(HELLO, {"protocol_version": 2}, 1)))
            answer = unpack(connection.recv(timeout=60))
            assert (answer.type, answer.seq) == (ERROR, 1)
            assert "version 2 of the protocol" in answer.payload["error"]
            connection.send(pack(Frame(OBSERVATION, {"images": {}, "state": np.ones(2)}, 2)))
            answer = unpack(connection.recv(timeout=60))
            assert (answer.type, answer.seq) == (ERROR, 2)
            connection.send(pack(Frame(OBSERVATION, SEEN, 3)))
            assert unpack(connection.recv(timeout=60)).type == ACTION
            connection.send(b"\xc1")
            with pytest.raises(Exception, match="not a message of vla-eval"):
                connection.recv(timeout=60)
        with pytest.raises(ValueError, match=r"refused: .*state"):
            ModelClient(f"ws://{address}").act({**SEEN, "state": np.ones(2, np.float32)})


def test_nobody_answers_is_one_line():
    with pytest.raises(OSError, match=r"no model server answers at vla-eval://127\.0\.0\.1:9"):
        ModelClient("vla-eval://127.0.0.1:9", timeout_s=5)


def evaluated(candidate, protocol=PROTOCOL):
    return protocol.build().evaluate(candidate, Resources(workers=0))


@pytest.mark.slow
def test_a_policy_behind_the_protocol_has_the_evaluation_that_it_has_here(checkpoint):
    here = evaluated(candidate_at(checkpoint, "here"))
    player = loaded(checkpoint, "compact", ServingCfg(max_batch=1), "cpu")
    with serving(player) as address:
        there = evaluated(candidate_of(f"vla-eval://{address}"))
    assert "compact at vla-eval://" in there.policy
    for one, other in zip(here.episodes, there.episodes, strict=True):
        np.testing.assert_allclose(one.actions, other.actions, atol=1e-5)
        assert dataclasses.replace(one, actions=None) == dataclasses.replace(other, actions=None)


def test_pictures_are_resized_only_where_that_is_asked_for(checkpoint):
    seen = {
        "images": {"agentview": np.zeros((128, 128, 3), np.uint8)},
        "task_description": "open the drawer",
        "state": np.zeros(4, np.float32),
    }
    player = loaded(checkpoint, "compact", ServingCfg(max_batch=1), "cpu")
    with serving(player, resize=True) as address:
        assert ModelClient(f"vla-eval://{address}").act(seen).shape == (1, 4)
    player = loaded(checkpoint, "compact", ServingCfg(max_batch=1), "cpu")
    with serving(player) as address, pytest.raises(ValueError, match=r"uint8\[128, 128, 3\]"):
        ModelClient(f"vla-eval://{address}").act(seen)


def test_a_protocol_that_only_our_policies_can_play_is_refused():
    ensemble = PROTOCOL.replace(execution=TemporalEnsembleCfg(rate=0.01))
    with pytest.raises(ValueError, match="'two' needs chunks that continue or are averaged"):
        RemotePolicy("vla-eval://x:1").rule(ensemble)


_PYTHON = os.environ.get("RRF_TEST_VLA_EVAL", "")
_REAL = pytest.mark.skipif(
    not _PYTHON, reason="RRF_TEST_VLA_EVAL names no python with vla-eval 0.8"
)
_BENCHMARK = '''
import numpy as np
from vla_eval.benchmarks.base import StepBenchmark, StepResult
from vla_eval.specs import DimSpec

class Toy(StepBenchmark):
    """Solved when the first action of every step is the state, 1, 2, 3."""

    def get_tasks(self):
        return [{"name": "reach"}, {"name": "push"}]

    def reset(self, task):
        self.step_number, self.good = 1, True
        return None

    def step(self, action):
        first = float(np.asarray(action["actions"]).reshape(-1)[0])
        self.good &= first == self.step_number
        self.step_number += 1
        return StepResult(obs=None, reward=0.0, done=self.step_number > 3, info={})

    def make_obs(self, raw, task):
        return {"images": {}, "task_description": task["name"],
                "state": np.full(3, self.step_number, np.float32)}

    def get_step_result(self, result):
        return {"success": bool(self.good)}

    def get_action_spec(self):
        return {"action": DimSpec("action", 3, "raw")}

    def get_observation_spec(self):
        return {"state": DimSpec("state", 3, "raw")}
'''


@_REAL
@pytest.mark.slow
def test_the_real_harness_runs_a_benchmark_on_our_server(tmp_path):
    (tmp_path / "toybench.py").write_text(_BENCHMARK)
    with serving(scripted()) as address:
        config = {
            "server": {"url": f"ws://{address}"},
            "output_dir": str(tmp_path / "out"),
            "benchmarks": [
                {"benchmark": "toybench:Toy", "name": "toy", "episodes_per_task": 2, "max_steps": 5}
            ],
        }
        (tmp_path / "run.yaml").write_text(json.dumps(config))
        command = [str(Path(_PYTHON).parent / "vla-eval"), "run", "--no-docker", "--yes"]
        done = subprocess.run(
            [*command, "--config", str(tmp_path / "run.yaml")],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=600,
            capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = (tmp_path / "out").glob("*_aggregate.json")
    from rrf.evaluation.trials.foreign import FORMATS

    table = FORMATS["vla-eval"].read(result, "scripted")
    assert [o.success for o in table.outcomes] == [True] * 4


_SERVER = """
import sys
import numpy as np
from vla_eval.model_servers.base import ModelServer
from vla_eval.model_servers.serve import serve

class Still(ModelServer):
    async def on_observation(self, obs, ctx):
        assert obs["images"]["corner2"].shape == (64, 64, 3), obs["images"]
        assert obs["task_description"] and len(obs["state"]) == 4
        await ctx.send_action({"actions": np.zeros(4, np.float32)})
    def get_action_spec(self): return {}
    def get_observation_spec(self): return {}

serve(Still(), host="127.0.0.1", port=int(sys.argv[1]))
"""


@_REAL
@pytest.mark.slow
def test_our_protocol_judges_a_real_model_server(tmp_path):
    import socket

    from tests.waiting import wait_for

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    (tmp_path / "still.py").write_text(_SERVER)
    process = subprocess.Popen([_PYTHON, str(tmp_path / "still.py"), str(port)])
    try:

        def listens():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True

        wait_for(listens)
        evaluation = evaluated(candidate_of(f"vla-eval://127.0.0.1:{port}"))
    finally:
        process.kill()
        process.wait()
    assert [e.success for e in evaluation.episodes] == [False, False]
    assert all(np.all(e.actions == 0) for e in evaluation.episodes)
