"""Which environment a state-based policy is trained in, as data. This file imports no simulator."""

import typing

from rrf.config import Cfg, configclass

_MAX_ENVS = 1_000_000  # more is a slip of the pen that would fill the memory


@configclass
class ControlEnvCfg(Cfg):
    """A task, and how many copies of it are stepped together.

    `cfg.build(seed=0, device="cpu")` gives a `rrf.envs.control_env.ControlEnv`.
    """

    task: str
    """The task's registered name, e.g. HalfCheetah-v5."""
    num_envs: int = 1
    """Environments stepped together."""

    def __post_init__(self):
        if not 1 <= self.num_envs <= _MAX_ENVS:
            raise ValueError(f"num_envs is {self.num_envs}, allowed: 1 to {_MAX_ENVS:,}")


@configclass(builds="rrf.envs.gymnasium_env:GymnasiumEnv")
class GymnasiumEnvCfg(ControlEnvCfg):
    """A task of the gym registry, stepped in this process (on few cores faster than processes)."""

    task: str = "CartPole-v1"
    """A registered id, e.g. HalfCheetah-v5."""
    kwargs: dict[str, typing.Any] = {}
    """Arguments of the task, e.g. {"healthy_reward": 0.0}."""
    hidden: list[int] = []
    """Dimensions of the observation that the policy may not see."""
    max_episode_steps: int | None = None
    """Time limit in steps; null takes the task's own."""

    def __post_init__(self):
        super().__post_init__()
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise ValueError(
                f"max_episode_steps is {self.max_episode_steps}, allowed: 1 or more, or null"
            )


@configclass(builds="rrf.envs.envpool_env:EnvPoolEnv")
class EnvPoolEnvCfg(ControlEnvCfg):
    """A task of EnvPool: the same MuJoCo tasks in C++, several threads."""

    task: str = "HalfCheetah-v5"
    """EnvPool's name of the task."""
    num_threads: int = 2
    """Threads that step."""
    hidden: list[int] = []
    """Dimensions of the observation that the policy may not see."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_threads < 1:
            raise ValueError(f"num_threads is {self.num_threads}, allowed: 1 or more")


@configclass(builds="rrf.envs.mjlab_env:build")
class MjlabEnvCfg(ControlEnvCfg):
    """A task of mjlab: on a GPU mjlab itself, on a CPU its terms over native MuJoCo."""

    task: str = "Mjlab-Velocity-Flat-Unitree-Go1"
    """mjlab's name of the task."""
    num_envs: int = 512
    """Environments stepped together."""
    backend: typing.Literal["auto", "native", "mjlab"] = "auto"
    """native: MuJoCo's C library on all of `num_threads`; mjlab: mujoco_warp, for GPUs (on a CPU it
    is some 40 times slower); auto: native on a CPU, mjlab on a GPU."""
    physics: typing.Literal["exact", "fast"] = "exact"
    """exact: mjlab's own solver settings; fast: pyramidal friction cones and half as many steps,
    twice as long."""
    num_threads: int = 2
    """Threads of the native backend."""
    fresh_contacts: bool = True
    """Of the native backend: solve for contact forces once more after each step where observations
    read them, as mjlab does. Without, they are those of the last substep, and steps cost a fifth
    less."""
    play: bool = False
    """mjlab's variant for watching: no noise, no pushes, endless episodes."""
    overrides: dict[str, typing.Any] = {}
    """Changes to mjlab's own config by dotted path, e.g. {"rewards.air_time.weight": 1.0}; null
    removes a term."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_threads < 0:
            raise ValueError(
                f"num_threads is {self.num_threads}, allowed: 0 (none beside this one) or more"
            )


@configclass(builds="rrf.envs.two_goals:TwoGoals")
class TwoGoalsEnvCfg(ControlEnvCfg):
    """A line with a small reward near and a large one far: a test of exploration."""

    task: str = "TwoGoals"
    """Its name in reports."""
    num_envs: int = 32
    """Environments stepped together."""


@configclass(builds="rrf.envs.registered_env:build")
class RegisteredEnvCfg(ControlEnvCfg):
    """A task added by `gymnasium.register`: an mjlab environment, or one of Gymnasium's kind."""

    task: str = "CartPole-v1"
    """The id it was registered under; "module:id" imports the module that registers it first."""
    num_envs: int = 0
    """Environments stepped together; 0 takes the scene.num_envs of a registered mjlab config that
    has more than one, which is mjlab's default, and 64 otherwise."""
    options: dict[str, typing.Any] = {}
    """Further fields of MjlabEnvCfg (e.g. physics) or of GymnasiumEnvCfg (e.g. hidden), whichever
    the entry point needs."""

    def __post_init__(self):
        if self.num_envs != 0:
            super().__post_init__()
        for name in ("task", "num_envs"):
            if name in self.options:
                raise ValueError(f"options names {name}, which is a field of its own: set {name}")


def task_id(task: str) -> str:
    """Without the module that registers it: "my_tasks:MyTask-v0" is MyTask-v0."""
    return task.rpartition(":")[2]
