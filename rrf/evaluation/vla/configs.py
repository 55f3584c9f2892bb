"""The protocol for policies that see images and act in chunks, in any simulator of `rrf.envs.ENVS`:
what they have to do. `rrf.evaluation.vla.protocol` runs it.

This file imports neither torch nor a simulator.
"""

import typing
from collections.abc import Collection, Mapping
from pathlib import Path

from rrf.atomic import digest_of
from rrf.config import TYPE_KEY, configclass, did_you_mean, first_error
from rrf.envs import ENVS
from rrf.envs.configs import VecEnvCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.action_metrics import ACTION_METRICS
from rrf.evaluation.protocols.base import BaseProtocolCfg, versions_here
from rrf.evaluation.vla.execution_configs import ExecutionCfg, RecedingHorizonCfg

VIDEO_SIZE = 192
"""Height and width of an episode's video in pixels."""
CHAIN_LENGTH = "chain_length"
"""The metric of a chain: how many of its instructions were followed, one after the other."""
_LONGEST_CHAIN = 5
MAX_REWARD = "max_reward"
"""The metric of an episode whose rewards are gains: the largest value it has reached."""
_NOT_IN_HASH = ("name", "num_slots", "used_seeds", "type", "groups")
_SET_HERE = (
    *("num_envs", "chunk_length", "action_repeat", "max_episode_steps", "image_size", "cameras"),
    "renderer",
)


@configclass(builds="rrf.evaluation.vla.protocol:VLAProtocol")
class ProtocolCfg(BaseProtocolCfg):
    """What every policy evaluated under this protocol has to do."""

    policy_kind: typing.ClassVar[str] = "vla"
    options: typing.ClassVar[Collection[str]] = ("slots", "baselines", "device")
    left_out_if_empty: typing.ClassVar[Collection[str]] = (
        *("simulator_versions", "groups", "action_metrics"),
    )
    num_videos: typing.ClassVar[int] = 12
    play_options: typing.ClassVar[Mapping[str, typing.Any]] = {
        "protocol": None,
        "task": None,
        "env": None,
        "index": 0,
        "size": VIDEO_SIZE,
        "max_episode_steps": None,
        "renderer": "warp",
    }
    default_video: typing.ClassVar[str | None] = "episode.mp4"

    env: str = "metaworld"
    """Name of the environment in `rrf.envs.ENVS`."""
    env_options: dict[str, typing.Any] = {}
    """Fields that this environment's config has besides those below, e.g. settle_steps of
    libero."""
    simulator_versions: dict[str, str] = {}
    """Package -> version that the episodes must be played with, e.g. {mujoco: 3.3.2}: another
    version draws or moves otherwise. An evaluation records those that it was played with."""
    tasks: list[str]
    """Tasks, e.g. drawer-open-v3."""
    groups: dict[str, list[str]] = {}
    """Title -> tasks whose common success the report shows in a table of its own, e.g. those with
    objects that were not trained."""
    first_index: int = 0
    """Index of the first initial state, from 0; the episodes use first_index, first_index + 1, ...
    """
    max_episode_steps: int = 40
    """Horizon in action steps; an episode that is not solved by then has failed."""
    execute_steps: int = 2
    """Action steps executed from each predicted chunk before the policy predicts the next one."""
    execution: ExecutionCfg = RecedingHorizonCfg()
    """How chunks are executed and joined (`rrf/evaluation/vla/execution_configs.py`)."""
    action_repeat: int = 5
    """Control steps per action step."""
    image_size: int = 64
    """Side of the square camera image in pixels."""
    cameras: list[str] = ["corner2"]
    """Cameras the policy sees."""
    greedy: bool = True
    """Take the mode of the policy; otherwise sample from it."""
    policy_seed: int = 0
    """Seed of the policy's sampling; each episode has its own random stream."""
    action_metrics: bool = False
    """Measure how smooth the executed actions of each episode are: smoothness and action_change."""
    inference_batch: int = 8
    """Observations per call of a greedy policy; smaller batches are padded, because rounding
    depends on the batch size."""
    num_slots: int = 8
    """Number of episodes run side by side; does not change results."""
    used_seeds: dict[str, int] = {
        "demonstrations": 777,
        "reinforcement learning": 42,
        "validation": 2024,
    }
    """Seeds whose initial states were used to train or select policies, by use; this protocol must
    use another seed."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError(f"protocol '{self.name}' has no tasks; e.g. tasks: [drawer-open-v3]")
        if len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"protocol '{self.name}' lists a task twice: {', '.join(self.tasks)}")
        for title, members in self.groups.items():
            if not members:
                raise ValueError(f"protocol '{self.name}': groups: '{title}' has no tasks")
            for task in members:
                if task not in self.tasks:
                    near = did_you_mean(task, self.tasks)
                    raise ValueError(
                        f"protocol '{self.name}': groups: '{title}' has '{task}', which is not "
                        f"among its tasks{near}"
                    )
        for field in (
            "episodes_per_task",
            "max_episode_steps",
            "execute_steps",
            "inference_batch",
            "num_slots",
        ):
            if getattr(self, field) < 1:
                raise ValueError(
                    f"protocol '{self.name}': {field} is {getattr(self, field)}, not at least 1"
                )
        for field in self.env_options:
            if field in _SET_HERE:
                raise ValueError(
                    f"protocol '{self.name}': env_options has {field}, which is a field of the "
                    "protocol itself or of the machine; leave it out there"
                )
        try:
            self.execution.check(self.execute_steps)
        except ValueError as error:
            raise ValueError(f"protocol '{self.name}': {error}") from error
        last, available = self.first_index + self.episodes_per_task, self._num_initial_states
        if self.first_index < 0 or last > available:
            raise ValueError(
                f"protocol '{self.name}' asks for initial states {self.first_index}..{last - 1}, "
                f"but one seed has only 0..{available - 1}; lower episodes_per_task"
            )
        for use, seed in self.used_seeds.items():
            if seed == self.seed:
                raise ValueError(
                    f"protocol '{self.name}': seed {seed} is the seed of {use}; "
                    "evaluate on held-out initial states, e.g. seed: 4242"
                )

    @property
    def measures(self) -> Mapping[str, str]:
        of_simulator = ENVS.get(self.env).measures
        of_actions = ACTION_METRICS if self.action_metrics else {}
        return {**self.metrics, **of_simulator, **of_actions}

    @property
    def max_episodes_per_task(self) -> int:
        return self._num_initial_states - self.first_index

    def initial_states(self) -> list[InitialState]:
        indices = range(self.first_index, self.first_index + self.episodes_per_task)
        return [InitialState(task, self.seed, index) for task in self.tasks for index in indices]

    @property
    def hash(self) -> str:
        return digest_of({k: v for k, v in self.to_dict().items() if k not in _NOT_IN_HASH})

    @property
    def base_hash(self) -> str:
        return self.replace(episodes_per_task=1, simulator_versions={}).hash

    @property
    def versions(self) -> Mapping[str, str]:
        return self.simulator_versions

    def here(self, checkpoint: Path | None = None) -> typing.Self:
        env, wanted = self._env_defaults, self.simulator_versions
        if not env.packages and not wanted:
            return self
        brought = env.brought_by(checkpoint)
        versions = versions_here(self, env.replace(**brought))
        own = {name for name in brought if name not in wanted}
        return self.replace(simulator_versions={k: v for k, v in versions.items() if k not in own})

    @property
    def environment_class(self) -> type:
        return ENVS.get(self.env)

    @property
    def _num_initial_states(self) -> int:
        return self._env_defaults.num_initial_states

    @property
    def _env_defaults(self) -> VecEnvCfg:
        defaults = ENVS.get(self.env)(max_episode_steps=self.max_episode_steps)  # of `horizons`
        if not self.env_options:
            return defaults
        try:
            return defaults.override(self.env_options)
        except ValueError as error:
            raise ValueError(
                f"protocol '{self.name}': env_options: {first_error(error)}"
            ) from error

    def measured(self, episode_return: float) -> dict[str, float]:
        """The `metrics` of an episode, by the sum of its rewards."""
        return {}

    def with_options(self, **given: typing.Any) -> typing.Self:
        """See `BaseProtocolCfg.with_options`."""
        slots = given.get("slots")
        return self.replace(num_slots=slots) if slots else self

    def is_about(self, config: Mapping) -> bool:
        """Whether this is the default protocol of the policy's simulator, e.g. `metaworld-demo`.

        If the training config names no simulator, the default protocol of every simulator fits.
        """
        return self.name == f"{self.env}-demo" and self.simulator_of(config) in (None, self.env)

    def environment_cfg(self, **changes) -> VecEnvCfg:
        """The config of the simulator for this protocol, with no more slots than episodes."""
        return self._env_defaults.replace(
            **{
                "num_envs": min(self.num_slots, len(self.initial_states())),
                "chunk_length": self.execute_steps,
                "action_repeat": self.action_repeat,
                "max_episode_steps": self.max_episode_steps,
                "image_size": self.image_size,
                "cameras": self.cameras,
            }
            | changes
        )

    @property
    def film_camera(self) -> str | None:
        """The camera that films episodes: the first one that the policy sees through, or else the
        first of the simulator's; None if it has none."""
        return next(iter([*self.cameras, *self._env_defaults.cameras]), None)

    def too_short(self, chunk_length: int) -> str | None:
        """What is wrong with chunks of this length; None if they are long enough."""
        needed = self.execution.required_steps(self.execute_steps)
        if chunk_length >= needed:
            return None
        waits = needed - self.execute_steps
        return (
            f"predicts {chunk_length} steps, but protocol '{self.name}' executes "
            f"{self.execute_steps}{f' and waits for {waits} more' if waits else ''}"
        )

    @staticmethod
    def simulator_of(config: Mapping) -> str | None:
        """The simulator in `rrf.envs.ENVS` that a training config uses, if any."""
        trained_in = (config.get("env") or {}).get(TYPE_KEY)
        return next(
            (name for name in ENVS if ENVS.get(name)().to_dict()[TYPE_KEY] == trained_in), None
        )


@configclass(builds="rrf.evaluation.vla.protocol:VLAProtocol")
class ProgressProtocolCfg(ProtocolCfg):
    """Episodes in which a reward is a gain over the largest value so far, as of a simulator whose
    `reward` is progress: the return is the largest value that the episode has reached.
    """

    metrics: typing.ClassVar[Mapping[str, str]] = {MAX_REWARD: "of the task's own unit"}

    def measured(self, episode_return: float) -> dict[str, float]:
        return {MAX_REWARD: episode_return}


@configclass(builds="rrf.evaluation.vla.protocol:VLAProtocol")
class ChainProtocolCfg(ProtocolCfg):
    """Episodes of several instructions in a row, each with `max_episode_steps` of its own. The
    first that is not done in time ends the episode. Success is all of them; what counts is the
    average length.
    """

    metrics: typing.ClassVar[Mapping[str, str]] = {
        CHAIN_LENGTH: f"of {_LONGEST_CHAIN}",
        **{f"at_least_{number}": "of the chains" for number in range(1, _LONGEST_CHAIN + 1)},
    }
    with_bounds: typing.ClassVar[Mapping[str, float]] = {CHAIN_LENGTH: _LONGEST_CHAIN}

    def measured(self, episode_return: float) -> dict[str, float]:
        length = round(episode_return)
        numbers = range(1, _LONGEST_CHAIN + 1)
        reached = {f"at_least_{number}": float(length >= number) for number in numbers}
        return {CHAIN_LENGTH: float(length), **reached}
