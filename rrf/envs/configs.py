"""The fields that every environment config has. This file imports no simulator.

A new simulator is a folder beside the others. It holds a config that inherits one of the two
classes below, and the environment that this config builds. An environment that observes through
images also needs a name in `rrf.envs.ENVS`.
"""

import typing
from collections.abc import Collection
from pathlib import Path

from rrf.config import Cfg, configclass, did_you_mean, require_at_least_one, trust

if typing.TYPE_CHECKING:
    from rrf.envs.vec_env import InitialState

_MAX_ENVS = 1_000_000  # a larger number is a typing error that would fill the memory
_MAX_SEED = 2**32 - 1


@configclass
class VecEnvCfg(Cfg):
    """Tasks that the policy sees through images and acts on in action chunks, in parallel slots.

    `cfg.build()` returns a `rrf.envs.vec_env.VecEnv`. Protocols and runners set the fields below.
    Those that a subclass adds for its simulator are set by a protocol's `env_options` only.
    """

    left_out_if_empty: typing.ClassVar[Collection[str]] = ("ignore_terminations",)
    simulator: typing.ClassVar[str]
    """The simulator's name in error messages."""
    has_expert: typing.ClassVar[bool] = False
    """Whether the environment is a `rrf.envs.vec_env.ExpertVecEnv`."""
    conventions: typing.ClassVar[tuple[str, ...]] = ()
    """Fields that say what images and actions mean; a policy must be evaluated with those that it
    was trained with."""
    in_checkpoint: typing.ClassVar[typing.Mapping[str, str]] = {}
    """Field -> folder of a policy's checkpoint that the field is set to where the policy is played,
    if the checkpoint has it: a part of the policy that runs inside the simulator. One of `packages`
    with the name of such a field is that part's version."""
    packages: typing.ClassVar[tuple[str, ...]] = ()
    """Packages whose version decides how the simulator moves and draws. It is part of what a policy
    is evaluated under."""
    can_ignore_terminations: typing.ClassVar[bool] = False
    """Whether episodes can go on after success (`ignore_terminations`)."""
    can_repeat: typing.ClassVar[bool] = False
    """Whether a demonstration can be repeated in other initial states."""
    measures: typing.ClassVar[typing.Mapping[str, str]] = {}
    """Metrics of an episode that the simulator measures itself, name -> unit: each is in the
    `metrics` of every step's extras, as it stands after the step."""
    action_limit: typing.ClassVar[float] = 1.0
    """Largest distance of an action's numbers from 0. What is further away is clipped."""
    noisy_dimensions: typing.ClassVar[tuple[int, ...]] = (0, 1, 2)
    """Dimensions of an action to which recorded demonstrations add noise."""
    control_hz: typing.ClassVar[int]
    """Control steps per second."""
    state_parts: typing.ClassVar[typing.Mapping[str, int]]
    """What a state consists of when it is recorded: name -> dimensions, in their order."""

    num_envs: int = 8
    """Slots, each running one episode of any task."""
    chunk_length: int = 2
    """Actions per chunk. The policy gets one observation per chunk."""
    action_repeat: int = 1
    """Control steps an action is held for."""
    max_episode_steps: int = 40
    """Horizon in actions."""
    horizons: dict[str, int] = {}
    """Shorter horizons of single tasks, by name: an episode that goes on for much longer than a
    demonstration is rarely solved."""
    image_size: int = 64
    """Height and width of the images in pixels."""
    cameras: list[str] = []
    """Camera names; empty for no images."""
    renderer: str = "warp"
    """The renderer that draws the images, if the simulator offers several."""
    draws_final: bool = True
    """Whether to draw the last images of an episode, on which no action follows. If not, they are
    black."""
    ignore_terminations: bool = False
    """Whether an episode goes on to its horizon after success, as with RLinf's field of this
    name."""

    def __post_init__(self):
        require_at_least_one(
            self, "num_envs", "chunk_length", "action_repeat", "max_episode_steps", "image_size"
        )
        if self.ignore_terminations and not self.can_ignore_terminations:
            raise ValueError(
                f"ignore_terminations is true, but episodes of {self.simulator} end with success; "
                "set ignore_terminations=false"
            )
        for task, steps in self.horizons.items():
            if task not in self.tasks:
                near = did_you_mean(task, self.tasks)
                raise ValueError(f"horizons: no {self.simulator} task '{task}'{near}")
            if not 1 <= steps <= self.max_episode_steps:
                raise ValueError(
                    f"horizons: {steps} of {task} must lie in 1..{self.max_episode_steps} "
                    "(max_episode_steps)"
                )

    def horizon(self, task: str) -> int:
        """The horizon of a task in actions."""
        return self.horizons.get(task, self.max_episode_steps)

    def brought_by(self, checkpoint: Path | None) -> dict[str, str]:
        """Field -> folder, of what a policy's checkpoint brings along; see `in_checkpoint`."""
        if checkpoint is None:
            return {}
        parts = {name: checkpoint.resolve() / part for name, part in self.in_checkpoint.items()}
        return {name: str(part) for name, part in parts.items() if part.is_dir()}

    @property
    def fps(self) -> float | None:
        """Actions per second; None if that is only known once the environment is built."""
        known = hasattr(self, "control_hz")
        return self.control_hz / self.action_repeat if known else None

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of the images in pixels."""
        return self.image_size, self.image_size

    @property
    def action_dim(self) -> int:
        """Numbers in an action, each in [-1, 1], or as far as `action_limit`."""
        raise NotImplementedError

    @property
    def state_dim(self) -> int | None:
        """Numbers in a state; None if that is only known once the environment is built."""
        return None

    @property
    def tasks(self) -> typing.Sequence[str]:
        """The names of the simulator's tasks."""
        raise NotImplementedError

    @property
    def plain_tasks(self) -> typing.Sequence[str]:
        """The tasks without those that are another one changed, TASK@CHANGE."""
        return tuple(task for task in self.tasks if "@" not in task)

    @property
    def expert_tasks(self) -> typing.Sequence[str]:
        """The tasks whose demonstrations can be recorded, if the config sets `has_expert`."""
        return self.tasks

    @property
    def num_initial_states(self) -> int:
        """How many initial states one seed generates for each task. They are numbered from 0."""
        raise NotImplementedError

    def versions(self, packages: typing.Collection[str]) -> dict[str, str]:
        """Package -> version where the simulator runs, of those that are installed there.

        Raises:
            ValueError: If the simulator is not set up; the message says what to type.
        """
        from rrf import code_digest  # only who evaluates asks

        return code_digest.versions(packages)

    def how_to_pin(self, versions: typing.Mapping[str, str]) -> str:
        """What to type so that the simulator runs with these versions, for an error message."""
        return _how_to_pin(versions)

    def check_task(self, task: str) -> None:
        """Raise ValueError for an unknown task, or one that cannot be played here."""
        if task not in self.tasks:
            raise ValueError(f"no {self.simulator} task '{task}'{did_you_mean(task, self.tasks)}")

    def check_initial_state(self, initial_state: "InitialState") -> None:
        """Raise ValueError for an unknown task, or a seed or index out of range."""
        task, seed, index = initial_state.task, initial_state.seed, initial_state.index
        self.check_task(task)
        if not 0 <= index < self.num_initial_states:
            raise ValueError(
                f"{task} has no initial state {index}; a seed has {self.num_initial_states}, "
                "numbered from 0"
            )
        if not 0 <= seed <= _MAX_SEED:
            raise ValueError(f"seed {seed} of {task} must lie in 0..{_MAX_SEED}")


@configclass
class ControlEnvCfg(Cfg):
    """A task that the policy sees as a vector of states, and the number of copies stepped together.

    `cfg.build(seed=0, device="cpu")` returns a `rrf.envs.control_env.ControlEnv`.
    """

    simulator: typing.ClassVar[str] = "the simulator"
    """The simulator's name in error messages."""
    packages: typing.ClassVar[tuple[str, ...]] = ()
    """Packages outside rrf's own environment whose version decides how the simulator moves. It is
    part of what a policy is evaluated under."""
    measures: typing.ClassVar[tuple[str, ...]] = ()
    """Metrics that the task measures itself, because it draws what the robot is to do
    (`extras["measured"]` of `rrf.envs.control_env.ControlEnv.step`)."""
    has_recorder: typing.ClassVar[bool] = False
    """Whether the simulator writes recordings of its own, which one of `rrf.data.formats` reads."""

    task: str
    """The task's registered name, e.g. HalfCheetah-v5."""
    num_envs: int = 1
    """Environments stepped together."""

    def __post_init__(self):
        if not 1 <= self.num_envs <= _MAX_ENVS:
            raise ValueError(f"num_envs is {self.num_envs}, allowed: 1 to {_MAX_ENVS:,}")

    @property
    def undecided(self) -> str | None:
        """A message about a field whose effect depends on the machine, so that two machines may
        simulate differently. It says what to write instead. None if there is no such field.
        """
        return None

    @property
    def prefers_gpu(self) -> bool:
        """Whether the task should be simulated on a GPU if the machine has one."""
        return False

    def drawable(self) -> typing.Self:
        """The same task in a variant that can be drawn."""
        return self

    def with_recorder(self, file: Path) -> typing.Self:
        """The same task in a variant whose simulator writes the episodes that end into `file`; only
        if the config sets `has_recorder`."""
        raise NotImplementedError

    def versions(self, packages: typing.Collection[str]) -> dict[str, str]:
        """See `VecEnvCfg.versions`."""
        from rrf import code_digest  # only who evaluates asks

        return code_digest.versions(packages)

    def how_to_pin(self, versions: typing.Mapping[str, str]) -> str:
        """See `VecEnvCfg.how_to_pin`."""
        return _how_to_pin(versions)


def _how_to_pin(versions: typing.Mapping[str, str]) -> str:
    pins = " ".join(f"{name}=={version}" for name, version in versions.items())
    return f"type: uv pip install {pins}"


def trust_task(env: typing.Any) -> None:
    """Accept the module that registers the task of `env`, e.g. of "tasks:MyTask-v0".

    This is for configs that the user wrote, not for those that come with a checkpoint.

    Args:
        env: A config of an environment. All but those for states are ignored.
    """
    if isinstance(env, ControlEnvCfg) and (module := env.task.rpartition(":")[0]):
        trust(module)


def task_id(task: str) -> str:
    """The task's name without the module that registers it: "tasks:MyTask-v0" gives MyTask-v0."""
    return task.rpartition(":")[2]
