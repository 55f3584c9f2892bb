"""The configs of simulators in a foreign interpreter. Imports no simulator.

A subclass says which interpreter, and which file there has the simulator's class. Neither is a
field: a config may come with somebody else's checkpoint, and must not be able to name what is
started.
"""

import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrf.config import configclass, did_you_mean
from rrf.envs.configs import ControlEnvCfg, VecEnvCfg
from rrf.envs.foreign.interpreters import interpreter
from rrf.envs.vec_env import InitialState


@configclass(builds="rrf.envs.foreign.env:ForeignVecEnv")
class ForeignVecEnvCfg(VecEnvCfg):
    """Episodes seen through images. The simulator's class is a `rrf_child.episodes.Simulator`."""

    interpreter: typing.ClassVar[str]
    """Name of the interpreter, as in `rrf envs setup NAME`."""
    simulator_file: typing.ClassVar[Path]
    """The file with the simulator's class, which the interpreter reads."""
    simulator_class: typing.ClassVar[str]
    """Name of the class."""
    is_batched: typing.ClassVar[bool] = False
    """Whether the class steps all slots in one call: it then has the methods of
    `rrf_child.episodes.Episodes`, whose arguments come before its own."""
    has_stages: typing.ClassVar[bool] = False
    """Whether an episode may have several tasks, one after the other, each with its instruction and
    its horizon. The class then has `stage` of `rrf_child.episodes.Simulator`."""
    state_names: typing.ClassVar[tuple[str, ...]]
    """Names of the dimensions of a state."""
    action_names: typing.ClassVar[tuple[str, ...]]
    """Names of the dimensions of an action; without them, a subclass says `action_dim`."""
    instructions: typing.ClassVar[Mapping[str, str]] = {}
    """Task -> its instruction in words; where there are more, a subclass says `tasks`."""
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = None
    """The cameras that can be named; None for any."""

    def __post_init__(self):
        super().__post_init__()
        if self.control_hz % self.action_repeat:
            raise ValueError(f"action_repeat={self.action_repeat} must divide {self.control_hz}")
        for camera in self.cameras:
            if self.known_cameras is not None and camera not in self.known_cameras:
                raise ValueError(f"no camera '{camera}'{did_you_mean(camera, self.known_cameras)}")

    @property
    def fps(self) -> int:
        """Actions per second."""
        return self.control_hz // self.action_repeat

    @property
    def state_dim(self) -> int | None:
        return len(self.state_names)

    @property
    def action_dim(self) -> int:
        return len(self.action_names)

    @property
    def tasks(self) -> Sequence[str]:
        return tuple(self.instructions)

    @property
    def num_initial_states(self) -> int:
        return 1000

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of the simulator's class, as JSON data."""
        return {}

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that the simulator needs, besides those of its interpreter."""
        return {}

    def versions(self, packages: typing.Collection[str]) -> dict[str, str]:
        """See `VecEnvCfg.versions`; those of the interpreter."""
        return _versions(self.interpreter, packages)

    def how_to_pin(self, versions: typing.Mapping[str, str]) -> str:
        """See `VecEnvCfg.how_to_pin`."""
        return _how_to_pin(self.interpreter, versions)

    def instruction(self, task: str) -> str:
        """The instruction of a task in words."""
        return self.instructions[task]

    def worded(self, task: str, state: InitialState) -> str:
        """The instruction of a task in the words of an episode that began in `state`."""
        return self.instruction(task)


@configclass(builds="rrf.envs.foreign.control:build")
class ForeignControlEnvCfg(ControlEnvCfg):
    """Environments of states that step together. The simulator's class is a
    `rrf_child.batch.Batch`."""

    interpreter: typing.ClassVar[str]
    """Name of the interpreter, as in `rrf envs setup NAME`."""
    simulator_file: typing.ClassVar[Path]
    """The file with the simulator's class, which the interpreter reads."""
    simulator_class: typing.ClassVar[str]
    """Name of the class."""
    timeout_s: typing.ClassVar[float] = 300.0
    """How long a step may take before the process counts as hung."""

    @property
    def simulator_arguments(self) -> dict[str, typing.Any]:
        """Arguments of the simulator's class, as JSON data, besides `num_envs`, `seed` and
        `device`."""
        return {"task": self.task}

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that the simulator needs, besides those of its interpreter."""
        return {}

    def versions(self, packages: typing.Collection[str]) -> dict[str, str]:
        """See `ControlEnvCfg.versions`; those of the interpreter."""
        return _versions(self.interpreter, packages)

    def how_to_pin(self, versions: typing.Mapping[str, str]) -> str:
        """See `ControlEnvCfg.how_to_pin`."""
        return _how_to_pin(self.interpreter, versions)


def _versions(name: str, packages: typing.Collection[str]) -> dict[str, str]:
    installed = interpreter(name).versions
    return {package: installed[package] for package in packages if package in installed}


def _how_to_pin(name: str, versions: typing.Mapping[str, str]) -> str:
    pins = ", ".join(f"{package}=={version}" for package, version in versions.items())
    return f"pin {pins} in configs/envs/{name}.lock and type: rrf envs setup {name}"
