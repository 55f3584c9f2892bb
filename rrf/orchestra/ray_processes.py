"""Roles as Ray actors: the same classes as in the inline backend, on one machine or many.

Environment roles answer like child processes, and rollout roles like a local one. What decides
which episodes are played, and with which randomness, stays in the driver; so the episodes are those
of the inline backend, bit for bit, wherever they are played. An actor that dies or hangs is
replaced: episodes of an environment are played again, and observations of a rollout are answered
again with the same random numbers.

Plain data goes through Ray's object store: builtins and NumPy arrays.
"""

import dataclasses
import os
import time
import traceback
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import ray
import ray.exceptions
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rrf.config import locate
from rrf.data.schema import Observation
from rrf.envs.failure import in_a_line
from rrf.envs.process.child import ChildError, ChildValueError
from rrf.orchestra.env_role import from_plain, to_plain
from rrf.orchestra.placement import Placement
from rrf.orchestra.rollout_role import RolloutRole
from rrf.orchestra.weight_sync import Message, WeightReceiver, WeightSender, num_bytes
from rrf.policies.policy import Sample
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

_MAX_RESTARTS = 3  # of a rollout, in a row
_LOAD_TIMEOUT_S = 600.0  # an actor's first call builds its policy


class Cluster:
    """A Ray cluster, and what its resources are."""

    def __init__(self, address: str | None):
        """
        Args:
            address: Of a running cluster, or auto for the one of this machine; None starts one that
                ends with this process.

        Raises:
            ValueError: If no cluster answers.
        """
        variables = {"OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
        try:
            ray.init(
                address="local" if address is None else address,
                include_dashboard=False,
                log_to_driver=False,
                ignore_reinit_error=True,
                runtime_env={"env_vars": variables},
            )
        except ConnectionError as error:
            raise ValueError(
                f"no Ray cluster answers at '{address}'; start one with: ray start --head"
            ) from error
        nodes = sorted(
            (node for node in ray.nodes() if node["Alive"]),
            key=lambda node: (not node["Resources"].get("node:__internal_head__"), node["NodeID"]),
        )
        counts = [(node, int(node["Resources"].get("GPU", 0))) for node in nodes]
        gpus = [(node, gpu) for node, count in counts for gpu in range(count)]
        self.resources: Sequence[tuple[dict, int | None]] = gpus or [(n, None) for n in nodes]

    def options(self, resources: Sequence[int]) -> dict[str, typing.Any]:
        """Options of an actor that has these resources.

        Raises:
            ValueError: If they are on several nodes.
        """
        found = [self.resources[number] for number in resources]
        nodes = {node["NodeID"] for node, _ in found}
        if len(nodes) > 1:
            raise ValueError(f"resources {', '.join(map(str, resources))} are on several nodes")
        options: dict[str, typing.Any] = {
            "num_cpus": 0,  # placement decides, not Ray's count of free cores
            "scheduling_strategy": NodeAffinitySchedulingStrategy(nodes.pop(), soft=False),
        }
        gpus = [str(gpu) for _, gpu in found if gpu is not None]
        if gpus:
            visible = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
            options["runtime_env"] = {"env_vars": {"OMP_NUM_THREADS": "1", **visible}}
        return options

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        ray.shutdown()


class _Served:
    """An actor that serves the methods of one object, made at the first call."""

    def __init__(self, target: str, arguments: dict[str, typing.Any]):
        self._target, self._arguments, self._served = target, arguments, None

    def call(self, method: str, values: tuple) -> tuple[str, typing.Any]:
        """("done", answer), or ("invalid" or "failed", (message, traceback))."""
        try:
            if self._served is None:
                self._served = locate(self._target)(**self._arguments)
            return "done", getattr(self._served, method)(*values)
        except ValueError as error:
            return "invalid", (str(error), traceback.format_exc())
        except Exception as error:  # the boundary of the process: the driver must hear of all
            return "failed", (in_a_line(error), traceback.format_exc())

    def pid(self) -> int:
        return os.getpid()


class RayChild:
    """The driver's end of an actor; has the methods of `rrf.envs.process.child.Child`."""

    def __init__(self, target: str, name: str, arguments: dict, timeout_s: float, options: dict):
        self.name, self._timeout_s = name, timeout_s
        served: typing.Any = ray.remote(_Served)
        self._actor: typing.Any = served.options(**options).remote(target, arguments)
        self._method = "starting"
        self.answer: typing.Any = None

    @property
    def pid(self) -> int:
        return ray.get(self._actor.pid.remote())

    def send(self, method: str, *arguments) -> None:
        """See `Child.send`; that the actor is gone shows at `result`."""
        self._method = method
        self.answer = self._actor.call.remote(method, arguments)

    def result(self, timeout_s: float | None = None) -> typing.Any:
        """See `Child.result`; another time limit may be given."""
        method, limit = self._method, timeout_s or self._timeout_s
        try:
            kind, value = ray.get(self.answer, timeout=limit)
        except ray.exceptions.GetTimeoutError:
            self.kill()
            raise ChildError(
                f"{self.name} did not answer '{method}' within {limit:.0f} s and was killed"
            ) from None
        except ray.exceptions.RayError as error:
            raise ChildError(f"{self.name} died during '{method}': {in_a_line(error)}") from error
        if kind == "done":
            return writable(value)
        message, trace = value
        found = (
            ChildValueError(message)
            if kind == "invalid"
            else ChildError(f"{self.name} failed in '{method}': {message}")
        )
        found.add_note(f"In the actor:\n{trace}")
        raise found

    def kill(self) -> None:
        """End the actor at once."""
        if ray.is_initialized():  # otherwise it ended with the cluster
            ray.kill(self._actor, no_restart=True)


def first_ready(answers: Sequence, timeout_s: float) -> list:
    """The answers that are there when the first is, at the latest after `timeout_s`."""
    if not answers:
        return []
    answers = list(answers)
    ray.wait(answers, num_returns=1, timeout=timeout_s, fetch_local=False)
    return ray.wait(answers, num_returns=len(answers), timeout=0, fetch_local=False)[0]


class RayProcesses:
    """Environment roles as actors; see `rrf.orchestra.inline.Processes`."""

    def __init__(self, cluster: Cluster, placement: Placement):
        self._cluster, self._placed = cluster, placement.roles["env"]

    def start(
        self, number: int, name: str, role: str, arguments: dict, timeout_s: float
    ) -> RayChild:
        """See `Processes.start`."""
        options = self._cluster.options(self._placed[number])
        return RayChild(role, name, arguments, timeout_s, options)

    def ready(self, children: Sequence[RayChild], timeout_s: float) -> list[RayChild]:
        """See `Processes.ready`."""
        found = first_ready([child.answer for child in children], timeout_s)
        return [child for child in children if child.answer in found]

    def close(self, children: Sequence[RayChild]) -> None:
        """See `Processes.close`."""
        for child in children:
            child.kill()


class RolloutActor:
    """A rollout role in an actor; served by `_Served`."""

    def __init__(self, cfg: dict, norm_stats: dict, parent: str):
        """
        Args:
            cfg: A `VLARLRunnerCfg` as plain data.
            norm_stats: The content of norm_stats.json.
            parent: The checkpoint that training started from, for its texts and tokenizers.
        """
        read = VLARLRunnerCfg.from_dict(cfg)
        policy: typing.Any = read.policy.rebuild(norm_stats, Path(parent))
        policy.to(read.device).eval()
        self._role = RolloutRole(policy, read.inference_batch, read.precision)
        self._weights = WeightReceiver(policy.state_dict())

    def load(self, message: Message, noise_factor: float) -> None:
        """Take over a message of `WeightSender`."""
        self._weights.apply(message)
        self._role.policy.set_noise_factor(noise_factor)

    def act(self, observation: dict, states: list[np.ndarray] | None) -> dict[str, typing.Any]:
        """Choose chunks, with random generators in these states; the states after it too."""
        begin = time.perf_counter()
        generators = None if states is None else [_generator(state) for state in states]
        sample = self._role.act(from_plain(observation), generators)
        return {
            "actions": sample.actions,
            "log_prob": _array(sample.log_prob),
            "value": _array(sample.value),
            "replay": {name: _array(values) for name, values in sample.replay.items()},
            "states": [each.get_state().numpy() for each in generators or []],
            "seconds": time.perf_counter() - begin,
        }


class RayRollouts:
    """Rollout roles as actors, used as one role; see `rrf.orchestra.rollout_role.RolloutRole`."""

    def __init__(
        self,
        cluster: Cluster,
        placement: Placement,
        policy: typing.Any,
        cfg: VLARLRunnerCfg,
        norm_stats: Mapping,
        parent: str,
    ):
        """
        Args:
            cluster: Where they run.
            placement: Of the role "rollout".
            policy: A copy in the driver, for its sizes and for the check before the first update.
            cfg: The run's config.
            norm_stats: The content of norm_stats.json.
            parent: The checkpoint that training started from.
        """
        self.policy, self.batch_rows, self.version = policy, cfg.inference_batch, -1
        self.sync_bytes, self.num_restarts = 0, 0
        self.sync_s = self.inference_s = 0.0
        self._cluster, self._placed = cluster, placement.roles["rollout"]
        self._arguments = {"cfg": cfg.to_dict(), "norm_stats": dict(norm_stats), "parent": parent}
        self._timeout_s, self._noise_factor = cfg.worker_timeout_s, 1.0
        self._sender = WeightSender()
        self._children = [self._start(number) for number in range(len(self._placed))]
        self._waiting: list[list[Call]] = [[] for _ in self._children]

    @property
    def sees_end(self) -> bool:
        """See `RolloutRole.sees_end`."""
        return self.policy.num_values > 0

    def load(
        self, weights: Mapping[str, torch.Tensor], version: int, noise_factor: float = 1.0
    ) -> None:
        """Send weights to every actor, and set the factor on the randomness of actions."""
        begin = time.perf_counter()
        self.policy.load_state_dict(dict(weights))
        self.policy.set_noise_factor(noise_factor)
        self.version, self._noise_factor = version, noise_factor
        message = self._sender.message(weights, version)
        stored = ray.put(message)
        for child in self._children:
            child.send("load", stored, noise_factor)
        for number, child in enumerate(self._children):
            try:
                child.result(_LOAD_TIMEOUT_S)
            except ChildError:
                self._replace(number)
        self.sync_bytes = num_bytes(message) * len(self._children)
        self.sync_s += time.perf_counter() - begin

    def submit(
        self, observation: Observation, generators: Sequence[torch.Generator] | None
    ) -> "Call":
        """Begin to choose chunks, by the actor that has least to do."""
        states = None if generators is None else [each.get_state().numpy() for each in generators]
        number = min(range(len(self._children)), key=lambda each: len(self._waiting[each]))
        call = Call(number, (to_plain(observation), states), generators)
        self._waiting[number].append(call)
        self._send(call)
        return call

    def result(self, call: "Call") -> Sample:
        """What a call chose; waits for it. An actor that died or hangs is replaced."""
        while True:
            try:
                child = self._children[call.number]
                child.answer = call.answer
                found = child.result()
                break
            except ChildError:
                self._replace(call.number)
        self._waiting[call.number].remove(call)
        self.inference_s += found["seconds"]
        if call.generators is not None:
            for generator, state in zip(call.generators, found["states"], strict=True):
                generator.set_state(torch.from_numpy(state))
        return Sample(
            actions=found["actions"],
            log_prob=_tensor(found["log_prob"]),
            replay={name: torch.from_numpy(values) for name, values in found["replay"].items()},
            value=_tensor(found["value"]),
        )

    def is_overdue(self, call: "Call") -> bool:
        """Whether a call takes longer than its actor may."""
        return time.monotonic() - call.sent_at > self._timeout_s

    def act(self, observation: Observation, generators: Sequence[torch.Generator] | None) -> Sample:
        """See `RolloutRole.act`."""
        return self.result(self.submit(observation, generators))

    def pids(self) -> list[int]:
        """The process ids of the actors."""
        return [child.pid for child in self._children]

    def close(self) -> None:
        """End the actors."""
        for child in self._children:
            child.kill()

    def _start(self, number: int) -> RayChild:
        name = f"rollout {number + 1} of {len(self._placed)}"
        options = self._cluster.options(self._placed[number])
        target = f"{RolloutActor.__module__}:{RolloutActor.__name__}"
        return RayChild(target, name, self._arguments, self._timeout_s, options)

    def _send(self, call: "Call") -> None:
        child = self._children[call.number]
        child.send("act", *call.arguments)
        call.answer, call.sent_at = child.answer, time.monotonic()

    def _replace(self, number: int) -> None:
        """Replace an actor; what it was asked is asked again."""
        self.num_restarts += 1
        for attempt in range(1, _MAX_RESTARTS + 1):
            self._children[number].kill()
            self._children[number] = child = self._start(number)
            try:
                child.send("load", self._sender.everything(), self._noise_factor)
                child.result(_LOAD_TIMEOUT_S)
                break
            except ChildError:
                if attempt == _MAX_RESTARTS:
                    raise
        for call in self._waiting[number]:
            self._send(call)


@dataclasses.dataclass(eq=False)
class Call:
    """Observations that an actor chooses chunks for."""

    number: int  # of the actor
    arguments: tuple  # of `RolloutActor.act`
    generators: Sequence[torch.Generator] | None
    answer: typing.Any = None
    sent_at: float = 0.0


def writable(value: typing.Any) -> typing.Any:
    """The same with its arrays copied; those in the object store are read-only."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: writable(each) for name, each in value.items()}
    return [writable(each) for each in value] if isinstance(value, list) else value


def _generator(state: np.ndarray) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(torch.from_numpy(state.copy()))
    return generator


def _array(values: torch.Tensor | None) -> np.ndarray | None:
    return None if values is None else values.numpy()


def _tensor(values: np.ndarray | None) -> torch.Tensor | None:
    return None if values is None else torch.from_numpy(values)
