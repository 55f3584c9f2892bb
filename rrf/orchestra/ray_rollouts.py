"""Rollout roles as Ray actors, used as one role.

Which episodes are played, and with which randomness, is decided in the driver: random generators
travel with the observations. An actor that dies or hangs is replaced, and asked again with the same
random numbers.
"""

import dataclasses
import time
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import ray
import torch

from rrf.data.schema import Observation
from rrf.envs.observations import from_plain, to_plain
from rrf.envs.process.child import ChildError
from rrf.envs.process.workers import read_cfg
from rrf.orchestra.offload import Offload, tensors_of
from rrf.orchestra.placement import Placement
from rrf.orchestra.ray_child import RayChild, packed
from rrf.orchestra.ray_cluster import Cluster
from rrf.orchestra.rollout_role import RolloutRole
from rrf.orchestra.weight_sync import Message, WeightReceiver, WeightSender, num_bytes
from rrf.policies.policy import Sample
from rrf.policies.precision import Precision
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from rrf.runners.vla_rl.timeline import Timeline

_MAX_RESTARTS = 3  # of a rollout, in a row
_LOAD_TIMEOUT_S = 600.0  # an actor's first call builds its policy


class RolloutActor:
    """A rollout role in an actor."""

    def __init__(
        self,
        policy: dict,
        norm_stats: dict,
        parent: str,
        device: str,
        batch_rows: int,
        precision: Precision,
    ):
        """
        Args:
            policy: The policy's config, as plain data.
            norm_stats: The content of norm_stats.json.
            parent: The checkpoint that training started from, for its texts and tokenizers.
            device: Where the policy is.
            batch_rows: See `RolloutRole`.
            precision: See `RolloutRole`.
        """
        built = read_cfg(policy).rebuild(norm_stats, Path(parent)).to(device).eval()
        self._policy: typing.Any = built
        self._role = RolloutRole(built, batch_rows, precision)
        self._weights = WeightReceiver(built.state_dict())
        self._offload = Offload(lambda: tensors_of(built))

    def leave(self) -> int:
        """Free the device until weights are loaded; returns the bytes."""
        self._weights.weights = {}  # what is known by another tensor stays on the device
        self._offload.leave()
        return self._offload.num_bytes

    def load(self, message: Message, noise_factor: float) -> None:
        """Take over a message of `WeightSender`."""
        self._offload.back()
        self._weights.weights = self._policy.state_dict()
        self._weights.apply(message)
        self._role.policy.set_noise_factor(noise_factor)

    def act(self, observation: dict, states: np.ndarray | None) -> dict[str, typing.Any]:
        """Choose chunks, with random generators in these states, a row each; the states after it
        too."""
        begin_s, spent_s, passes = time.time(), self._role.inference_s, self._role.num_passes
        generators = None if states is None else [_generator(state) for state in states]
        sample = self._role.act(from_plain(observation), generators)
        return {
            "actions": sample.actions,
            "log_prob": _array(sample.log_prob),
            "value": _array(sample.value),
            "replay": {name: _array(values) for name, values in sample.replay.items()},
            "states": None if generators is None else _states(generators),
            "worked": (begin_s, time.time(), {"inference": 1.0}),
            "spent": (self._role.inference_s - spent_s, self._role.num_passes - passes),
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
        self.sync_bytes, self.num_restarts, self.timeline = 0, 0, Timeline()
        self.sync_s = self.inference_s = 0.0
        self.offload_bytes = self.num_passes = 0
        self.sees_success = cfg.algorithm.bootstraps_success
        self._cluster, self._placed = cluster, placement.roles["rollout"]
        self._arguments = {
            "policy": cfg.policy.to_dict(),
            "norm_stats": dict(norm_stats),
            "parent": parent,
            "device": cfg.device,
            "batch_rows": cfg.inference_batch,
            "precision": cfg.precision,
        }
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
        stored = ray.put(packed((message, noise_factor)))
        for child in self._children:
            child.send_packed("load", stored)
        for number, child in enumerate(self._children):
            try:
                child.result(_LOAD_TIMEOUT_S)
            except ChildError:
                self._replace(number)
        self.sync_bytes = num_bytes(message) * len(self._children)
        self.sync_s += time.perf_counter() - begin

    def leave(self) -> None:
        """Free the devices of the actors, until weights are loaded."""
        self.offload_bytes = 0
        for child in self._children:
            child.send("leave")
        for number, child in enumerate(self._children):
            try:
                self.offload_bytes += child.result(_LOAD_TIMEOUT_S)
            except ChildError:
                self._replace(number)

    def submit(
        self, observation: Observation, generators: Sequence[torch.Generator] | None
    ) -> "Call":
        """Begin to choose chunks, by the actor that has least to do."""
        states = None if generators is None else _states(generators)
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
                answer = child.result()
                break
            except ChildError:
                self._replace(call.number)
        self._waiting[call.number].remove(call)
        inference_s, num_passes = answer["spent"]
        self.inference_s += inference_s
        self.num_passes += num_passes
        self.timeline.add_answer(f"rollout {call.number}", answer["worked"], call.asked_s)
        if call.generators is not None:
            for generator, state in zip(call.generators, answer["states"], strict=True):
                generator.set_state(torch.from_numpy(state))
        return Sample(
            actions=answer["actions"],
            log_prob=_tensor(answer["log_prob"]),
            replay={name: torch.from_numpy(values) for name, values in answer["replay"].items()},
            value=_tensor(answer["value"]),
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
        call.answer, call.sent_at, call.asked_s = child.answer, time.monotonic(), time.time()

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
    asked_s: float = 0.0  # the same by `time.time`


def _states(generators: Sequence[torch.Generator]) -> np.ndarray:
    """A row each."""
    return torch.stack([each.get_state() for each in generators]).numpy()


def _generator(state: np.ndarray) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(torch.from_numpy(state.copy()))
    return generator


def _array(values: torch.Tensor | None) -> np.ndarray | None:
    return None if values is None else values.numpy()


def _tensor(values: np.ndarray | None) -> torch.Tensor | None:
    return None if values is None else torch.from_numpy(values)
