"""What every environment config has, as data. This file imports no simulator.

A new simulator is a folder beside the others with a config that inherits one of these two, and the
environment that the config builds; one of images has a name in `rrf.envs.ENVS` too.
"""

import typing

from rrf.config import Cfg, configclass, did_you_mean
from rrf.envs.vec_env import InitialState

_MAX_ENVS = 1_000_000  # more is a slip of the pen that would fill the memory
_MAX_SEED = 2**32 - 1


@configclass
class VecEnvCfg(Cfg):
    """Tasks that are seen through images and acted on in chunks, in parallel slots.

    `cfg.build()` gives a `rrf.envs.vec_env.VecEnv`. Protocols and runners set the fields below and
    leave the simulator's own, which a subclass adds, at their defaults.
    """

    simulator: typing.ClassVar[str]
    """What messages call it."""

    num_envs: int = 8
    """Slots, each running one episode of any task."""
    chunk_length: int = 2
    """Actions per chunk; one observation per chunk."""
    action_repeat: int = 1
    """Control steps an action is held for."""
    max_episode_steps: int = 40
    """Horizon in actions."""
    image_size: int = 64
    """Height and width of the images in pixels."""
    cameras: list[str] = []
    """Camera names; empty for no images."""
    renderer: str = "warp"
    """Which renderer draws, where the simulator leaves a choice."""
    draws_final: bool = True
    """Whether an episode's last images, on which nobody acts any more, are drawn (else black)."""

    def __post_init__(self):
        for name in ("num_envs", "chunk_length", "action_repeat", "max_episode_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.image_size < 1:
            raise ValueError(f"image_size={self.image_size} must be at least 1")

    @property
    def action_dim(self) -> int:
        """Numbers in an action, each in [-1, 1]."""
        raise NotImplementedError

    @property
    def tasks(self) -> typing.Sequence[str]:
        """The names of its tasks."""
        raise NotImplementedError

    @property
    def num_initial_states(self) -> int:
        """How many initial states one seed has of each task, numbered from 0."""
        raise NotImplementedError

    def check_initial_state(self, initial_state: InitialState) -> None:
        """Raise ValueError for an unknown task, or a seed or index out of range."""
        task, seed, index = initial_state.task, initial_state.seed, initial_state.index
        if task not in self.tasks:
            raise ValueError(f"no {self.simulator} task '{task}'{did_you_mean(task, self.tasks)}")
        if not 0 <= index < self.num_initial_states:
            raise ValueError(
                f"{task} has no initial state {index}; a seed has {self.num_initial_states}, "
                "numbered from 0"
            )
        if not 0 <= seed <= _MAX_SEED:
            raise ValueError(f"seed {seed} of {task} must lie in 0..{_MAX_SEED}")


@configclass
class ControlEnvCfg(Cfg):
    """A task that is seen as a vector of states, and how many copies of it are stepped together.

    `cfg.build(seed=0, device="cpu")` gives a `rrf.envs.control_env.ControlEnv`.
    """

    task: str
    """The task's registered name, e.g. HalfCheetah-v5."""
    num_envs: int = 1
    """Environments stepped together."""

    def __post_init__(self):
        if not 1 <= self.num_envs <= _MAX_ENVS:
            raise ValueError(f"num_envs is {self.num_envs}, allowed: 1 to {_MAX_ENVS:,}")

    @property
    def undecided(self) -> str | None:
        """What of this config the machine decides, so that two machines may simulate differently,
        and what to write instead; None if nothing."""
        return None

    @property
    def prefers_gpu(self) -> bool:
        """Whether it should simulate on a GPU where there is one."""
        return False

    def drawable(self) -> typing.Self:
        """The same task in the variant whose pictures can be drawn."""
        return self


def task_id(task: str) -> str:
    """Without the module that registers it: "my_tasks:MyTask-v0" is MyTask-v0."""
    return task.rpartition(":")[2]
