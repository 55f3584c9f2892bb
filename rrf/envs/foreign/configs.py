"""The config of a simulator in a foreign interpreter. Imports no simulator."""

import typing
from pathlib import Path

from rrf.config import configclass, did_you_mean
from rrf.envs.configs import VecEnvCfg
from rrf.envs.foreign.interpreters import interpreter


@configclass(builds="rrf.envs.foreign.env:ForeignVecEnv")
class ForeignVecEnvCfg(VecEnvCfg):
    """A simulator that runs in an interpreter of its own.

    A subclass says which; the simulator's file has the class that `rrf_child.episodes.Simulator`
    describes. Nothing of this is a field: a config may come with somebody else's checkpoint, and
    must not be able to name what is started.
    """

    interpreter: typing.ClassVar[str]
    """Name of the interpreter, as in `rrf envs setup NAME`."""
    simulator_file: typing.ClassVar[Path]
    """The file with the simulator's class, which the interpreter reads."""
    simulator_class: typing.ClassVar[str]
    """Name of the class."""
    is_batched: typing.ClassVar[bool] = False
    """Whether the class steps all slots in one call: it then has the methods of
    `rrf_child.episodes.Episodes`, whose arguments come before its own."""
    state_names: typing.ClassVar[tuple[str, ...]]
    """Names of the dimensions of a state."""
    known_cameras: typing.ClassVar[tuple[str, ...] | None] = None
    """The cameras that can be named; None for any."""

    can_ignore_terminations: typing.ClassVar[bool] = True

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
    def state_dim(self) -> int:
        return len(self.state_names)

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
        installed = interpreter(self.interpreter).versions
        return {name: installed[name] for name in packages if name in installed}

    def how_to_pin(self, versions: typing.Mapping[str, str]) -> str:
        """See `VecEnvCfg.how_to_pin`."""
        lock = f"configs/envs/{self.interpreter}.lock"
        pins = ", ".join(f"{name}=={version}" for name, version in versions.items())
        return f"pin {pins} in {lock} and type: rrf envs setup {self.interpreter}"

    def instruction(self, task: str) -> str:
        """The instruction of a task in words."""
        raise NotImplementedError
