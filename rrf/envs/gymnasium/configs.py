"""Configs of Gymnasium's tasks, EnvPool's tasks and registered tasks. Imports no simulator."""

import typing

from rrf.config import configclass, require_at_least_one
from rrf.envs.configs import ControlEnvCfg


@configclass(builds="rrf.envs.gymnasium.env:GymnasiumEnv")
class GymnasiumEnvCfg(ControlEnvCfg):
    """A task of Gymnasium's registry, stepped in this process (with few cores, faster than
    workers).
    """

    task: str = "CartPole-v1"
    """A registered id, e.g. HalfCheetah-v5."""
    kwargs: dict[str, typing.Any] = {}
    """Keyword arguments of the task, e.g. {"healthy_reward": 0.0}."""
    hidden: list[int] = []
    """Dimensions of the observation that the policy may not see."""
    max_episode_steps: int | None = None
    """Time limit in steps; null keeps the task's own limit."""

    def __post_init__(self):
        super().__post_init__()
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise ValueError(
                f"max_episode_steps is {self.max_episode_steps}, allowed: 1 or more, or null"
            )


@configclass(builds="rrf.envs.gymnasium.slow_sensors:SlowSensorEnv")
class SlowSensorEnvCfg(GymnasiumEnvCfg):
    """A task some of whose dimensions are seen every few steps only. The observation also has the
    action before, and whether and when the slow dimensions were seen
    (`rrf.envs.gymnasium.slow_sensors`)."""

    slow: list[int]
    """Dimensions of the task's observation that are not seen at every step."""
    slow_interval: int = 10
    """Steps between two sightings of the slow dimensions. The first observation of an episode shows
    them."""

    def __post_init__(self):
        super().__post_init__()
        if not self.slow:
            raise ValueError("slow names no dimension; use GymnasiumEnvCfg if all are fast")
        if self.slow_interval < 2:
            raise ValueError(f"slow_interval is {self.slow_interval}, allowed: 2 or more")


@configclass(builds="rrf.envs.gymnasium.envpool_env:EnvPoolEnv")
class EnvPoolEnvCfg(ControlEnvCfg):
    """A task of EnvPool, which runs the same MuJoCo tasks in C++ on several threads."""

    task: str = "HalfCheetah-v5"
    """EnvPool's name of the task."""
    num_threads: int = 2
    """Threads that step the environments."""
    hidden: list[int] = []
    """Dimensions of the observation that the policy may not see."""

    def __post_init__(self):
        super().__post_init__()
        require_at_least_one(self, "num_threads")


@configclass(builds="rrf.envs.gymnasium.registered:build")
class RegisteredEnvCfg(ControlEnvCfg):
    """A task added by `gymnasium.register`: an mjlab environment or a Gymnasium environment."""

    task: str = "CartPole-v1"
    """The id of the task; "module:id" first imports the module that registers it."""
    num_envs: int = 0
    """Environments stepped together. 0 takes scene.num_envs of the registered mjlab config if that
    is above 1 (mjlab's default is 1), and 64 otherwise."""
    options: dict[str, typing.Any] = {}
    """Further fields of MjlabEnvCfg (e.g. physics) or of GymnasiumEnvCfg (e.g. hidden), depending
    on the task's entry point."""

    def __post_init__(self):
        if self.num_envs != 0:
            super().__post_init__()
        for name in ("task", "num_envs"):
            if name in self.options:
                raise ValueError(
                    f"options contains {name}, which is a field of its own; set {name} instead"
                )
