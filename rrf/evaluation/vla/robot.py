"""A policy on a real robot: what lerobot's robot observes in, one action per control step out.

Pictures are resized to the size that the policy was trained on, as conversion does. Chunks are
executed by the schedules of `rrf.client`.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rrf import workspace
from rrf.client import RealTimeChunking, RecedingHorizon, RobotHistory, TemporalEnsemble
from rrf.config import did_you_mean
from rrf.data.dataset import layout
from rrf.data.dataset.history import camera_of
from rrf.data.images import resize
from rrf.data.schema import IMAGE_PREFIX, STATE, Schema, Vector
from rrf.runners.checkpoints.deployable import load_lineage
from rrf.runners.checkpoints.deployed import Deployed, Signature, deployed_class

SCHEDULES = ("receding", "ensemble", "real-time")
_INSTRUCTION = "instruction"


class RobotPolicy:
    """A policy that drives one robot.

    Args:
        checkpoint: A checkpoint of a policy that sees images.
        states: The robot's observed numbers, in their order.
        actions: The numbers of its actions, in their order.
        cameras: Its cameras.
        instruction: What it is told.
        execute: Actions of a chunk that are executed before the next one is asked for; None for the
            whole chunk, with real-time chunking for half of it.
        schedule: One of `SCHEDULES`.
        device: Where the policy computes.

    Raises:
        ValueError: If the policy does not fit the robot, or cannot continue chunks.
    """

    def __init__(
        self,
        checkpoint: Path,
        states: Sequence[str],
        actions: Sequence[str],
        cameras: Sequence[str],
        instruction: str,
        execute: int | None = None,
        schedule: str = "receding",
        device: str = "cpu",
    ):
        owner = deployed_class(checkpoint)
        self._signature = owner.signature(checkpoint)
        self._states, self._actions, self._instruction = states, actions, instruction
        self._sizes = _check_fit(self._signature, states, actions, cameras)
        self._policy: Deployed = owner(checkpoint, device)
        self._history = RobotHistory(dataclasses.asdict(self._signature.past))
        length = self._signature.output.shape[1]
        self._controller = self._scheduled(schedule, execute, length)

    def warm_up(self) -> None:
        """Answer once, so that the first step of an episode is as fast as the others."""
        pictures = {name: np.zeros((*size, 3), np.uint8) for name, size in self._sizes.items()}
        self.begin(0)
        self.act({**dict.fromkeys(self._states, 0.0), **pictures})
        self.begin(0)

    def begin(self, index: int) -> None:
        """Forget the episode before."""
        self._controller.reset()
        self._history.reset()

    def act(self, observation: Mapping[str, typing.Any]) -> dict[str, float]:
        """The action of this control step, by the robot's names."""
        inputs: dict[str, typing.Any] = {
            f"{IMAGE_PREFIX}{camera}": _resized(observation[camera], size)
            for camera, size in self._sizes.items()
        }
        inputs[STATE] = np.array([observation[name] for name in self._states], np.float32)
        action = self._controller.act(
            {**self._history.seen(inputs), _INSTRUCTION: self._instruction}
        )
        return {name: float(value) for name, value in zip(self._actions, action, strict=True)}

    def close(self) -> None:
        """End the thread of real-time chunking."""
        if isinstance(self._controller, RealTimeChunking):
            self._controller.close()

    def _scheduled(
        self, schedule: str, execute: int | None, length: int
    ) -> RecedingHorizon | TemporalEnsemble | RealTimeChunking:
        if schedule not in SCHEDULES:
            raise ValueError(f"no schedule '{schedule}'{did_you_mean(schedule, SCHEDULES)}")
        if schedule == "ensemble":
            if execute is not None:
                raise ValueError("the schedule ensemble asks in every step; leave --execute out")
            return TemporalEnsemble(self._ask)
        usual = length if schedule == "receding" else max(1, length // 2)
        execute = usual if execute is None else execute
        if not 1 <= execute <= length:
            raise ValueError(f"--execute is {execute}, allowed: 1 to {length}, the policy's chunk")
        if schedule == "receding":
            return RecedingHorizon(self._ask, execute)
        self._check_resumes()
        return RealTimeChunking(self._resume, execute)

    def _check_resumes(self) -> None:
        shape = self._signature.output.shape[1:]
        inputs = {
            str(tensor.name): np.array("warm up")
            if tensor.dtype == "str"
            else np.zeros(tensor.shape[1:], tensor.dtype)
            for tensor in self._signature.inputs
        }
        try:
            self._resume(inputs, np.zeros(shape, np.float32), 0)
        except NotImplementedError as error:
            raise ValueError(
                f"this policy cannot continue a running chunk ({error}); choose another --schedule"
            ) from error

    def _ask(self, inputs: Mapping[str, typing.Any]) -> np.ndarray:
        return self._policy.answer(_as_batch(inputs), {})[0]

    def _resume(
        self, inputs: Mapping[str, typing.Any], running: np.ndarray, num_frozen: int
    ) -> np.ndarray:
        if len(running) == 0:
            return self._ask(inputs)
        return self._policy.resume(_as_batch(inputs), running[None], num_frozen)[0]


def check_recordings(checkpoint: Path, schema: Schema) -> None:
    """Compare a robot with the datasets that a policy learned from, those that are here.

    Raises:
        ValueError: For another rate, and for numbers of other names, in another order or in other
            units.
    """
    for name in load_lineage(checkpoint).dataset_names:
        root = workspace.dataset(name)
        if not isinstance(root, Path) or not root.is_dir():
            continue
        learned = layout.schema_of(layout.read_info(root))
        for what, theirs, ours in (
            ("rate", f"{learned.fps:g} steps/s", f"{schema.fps:g} steps/s"),
            ("states", _named(learned.state), _named(schema.state)),
            ("actions", _named(learned.action), _named(schema.action)),
        ):
            if theirs != ours:
                raise ValueError(
                    f"the policy learned from {name}, whose {what}: {theirs}; the robot's {what}: "
                    f"{ours}"
                )


def _named(vector: Vector) -> str:
    pairs = zip(vector.names, vector.units, strict=True)
    return ", ".join(f"{name} ({unit})" for name, unit in pairs)


def _check_fit(
    signature: Signature, states: Sequence[str], actions: Sequence[str], cameras: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """The size of the policy's picture of each camera that it sees; ValueError for a misfit."""
    shapes = {str(tensor.name): tensor.shape[1:] for tensor in signature.inputs}
    if STATE not in shapes or _INSTRUCTION not in shapes or len(signature.output.shape) != 3:
        raise ValueError(
            f"the policy reads {', '.join(shapes)}; a robot is driven by one that reads {STATE} "
            "and an instruction and answers with chunks"
        )
    width = shapes[STATE][0] // (1 + signature.past.states)
    for what, has, names in (
        ("states", width, states),
        ("actions", signature.output.shape[2], actions),
    ):
        if has != len(names):
            raise ValueError(
                f"the policy has {what} of {has} numbers, but the robot's are {len(names)}: "
                f"{', '.join(names)}"
            )
    sizes: dict[str, tuple[int, int]] = {}
    for name, shape in shapes.items():
        if name.startswith(IMAGE_PREFIX):
            camera = camera_of(name.removeprefix(IMAGE_PREFIX))
            sizes[camera] = (shape[0], shape[1])
            if camera not in cameras:
                raise ValueError(
                    f"the policy sees through '{camera}', but the robot has no such camera"
                    f"{did_you_mean(camera, cameras)}; give it that name under robot.cameras"
                )
    return sizes


def _resized(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return image if image.shape[:2] == size else resize(image, size)


def _as_batch(inputs: Mapping[str, typing.Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value)[None] for name, value in inputs.items()}
