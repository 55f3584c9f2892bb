"""The configs of the whole-body task and of what its kind share. Imports no simulator."""

import typing

from rrf.config import configclass, require_at_least_one, require_not_negative
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.humanoid.robot_configs import RobotCfg

HISTORIES = ("none", "short", "both")


@configclass
class HumanoidTaskCfg(ControlEnvCfg):
    """What a humanoid on flat ground learns by reinforcement (`rrf.envs.humanoid.humanoid_env`)."""

    packages: typing.ClassVar[tuple[str, ...]] = ("mujoco",)

    robot: RobotCfg | None = None
    """Another robot than the G1, by its MJCF file and the names of its parts."""
    num_envs: int = 512
    """Environments stepped together."""
    episode_s: float = 20.0
    """Length of an episode in seconds."""
    physics: typing.Literal["exact", "fast"] = "exact"
    """exact: 4 steps of 5 ms per action; fast: 2 of 10 ms, and a solver that is less exact."""
    num_threads: int = 2
    """Threads of the simulation."""
    first_level: float = 0.2
    """Share of the range of commands, arm motions and all that is random at the start of a
    training. It grows to 1 while the robots stay on their feet. 1: everything from the start."""
    randomises: bool = True
    """Whether friction, masses, motors, latency, noise and pushes are drawn at random."""
    pushes: bool = True
    """Whether something pushes the robots now and then, where things are drawn at random."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "num_threads")
        require_at_least_one(self, "num_envs")
        if not 0 <= self.first_level <= 1:
            raise ValueError(f"first_level is {self.first_level}, allowed: 0 to 1")
        if self.episode_s < 1:
            raise ValueError(f"episode_s is {self.episode_s}, allowed: 1 or more")

    def drawable(self) -> typing.Self:
        """With all that is asked of the robot, whatever a training begins with."""
        return super().drawable().replace(first_level=1.0)


@configclass(builds="rrf.envs.humanoid.whole_body_env:WholeBodyEnv")
class WholeBodyEnvCfg(HumanoidTaskCfg):
    """A humanoid follows commands: velocity, height, orientation of the torso, while its arms move.

    It is what AMO (arXiv:2505.03738) trains: 15 actions for legs and waist at 50 Hz; the arms are
    driven by motions that are sampled. What it sees is in `rrf.envs.humanoid.proprioception`, what
    it is rewarded for in `rrf.envs.humanoid.whole_body_rewards`.
    """

    simulator: typing.ClassVar[str] = "the whole-body task"
    measures: typing.ClassVar[tuple[str, ...]] = (
        *("velocity_error", "height_error", "torso_error", "unasked_sway"),
    )

    task: str = "G1-Whole-Body"
    """The task's name."""
    histories: str = "both"
    """Which histories are observed: none, short (10 frames) or both (10 and 25)."""

    def __post_init__(self):
        super().__post_init__()
        if self.histories not in HISTORIES:
            raise ValueError(f"histories is '{self.histories}', allowed: {', '.join(HISTORIES)}")
