"""An evaluation protocol as data: which initial states, which horizon, how actions are chosen and
executed.

Two results may be compared when their protocols have the same hash. The hash covers everything that
can change a result and leaves out what cannot: the name, the number of slots.
"""

import typing

from rrf.atomic import digest_of
from rrf.config import Cfg, configclass
from rrf.envs.metaworld_tasks import NUM_INITIAL_STATES
from rrf.envs.vec_env import InitialState

_NOT_IN_HASH = ("name", "num_slots", "used_seeds", "type")


@configclass
class BaseProtocolCfg(Cfg):
    """What gates, reports and the registry need of a protocol, whatever it runs."""

    name: str
    """Name shown in reports; not part of the hash."""
    seed: int
    """Seed that generates the initial states of each task."""
    episodes_per_task: int = 20
    """Episodes per task, each from an initial state of its own."""

    @property
    def max_episodes_per_task(self) -> int:
        """How far `extended` may go."""
        raise NotImplementedError

    @property
    def hash(self) -> str:
        """Hex SHA-256 of what can change a result, independent of the order of keys in the file."""
        raise NotImplementedError

    def initial_states(self) -> list[InitialState]:
        """The episodes to run, in order: all initial states of the first task, then of the second,
        ...
        """
        raise NotImplementedError

    def extended(self, extra_episodes: int) -> typing.Self:
        """The same protocol with more initial states per task; those run already stay its first
        ones.
        """
        return self.replace(episodes_per_task=self.episodes_per_task + extra_episodes)


@configclass
class ProtocolCfg(BaseProtocolCfg):
    """What every policy that sees images and acts in chunks has to do."""

    env: str = "metaworld"
    """Environment, a name of `rrf.envs.ENVS`."""
    tasks: list[str]
    """Tasks, e.g. drawer-open-v3."""
    first_index: int = 0
    """First initial state used, 0..49: first_index, first_index + 1, ..."""
    max_episode_steps: int = 40
    """Horizon in action steps; an episode not solved by then failed."""
    execute_steps: int = 2
    """Action steps executed from each predicted chunk before the policy looks again."""
    action_repeat: int = 5
    """Control steps per action step."""
    image_size: int = 64
    """Side of the square camera image in pixels."""
    cameras: list[str] = ["corner2"]
    """Cameras the policy sees."""
    greedy: bool = True
    """Take the mode of the policy; otherwise sample from it."""
    policy_seed: int = 0
    """Seed of the policy's sampling; each episode has a stream of its own."""
    inference_batch: int = 8
    """Observations per call of a greedy policy, padded if fewer: its rounding depends on it."""
    num_slots: int = 8
    """Episodes run side by side; does not change results."""
    used_seeds: dict[str, int] = {
        "demonstrations": 777,
        "reinforcement learning": 42,
        "validation": 2024,
    }
    """Seeds whose initial states policies were trained or selected on; this protocol may not use
    them.
    """

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError(f"protocol '{self.name}' has no tasks; e.g. tasks: [drawer-open-v3]")
        if len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"protocol '{self.name}' lists a task twice: {', '.join(self.tasks)}")
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
        last = self.first_index + self.episodes_per_task
        if self.first_index < 0 or last > NUM_INITIAL_STATES:
            raise ValueError(
                f"protocol '{self.name}': initial states {self.first_index}..{last - 1} asked for, "
                f"one seed has 0..{NUM_INITIAL_STATES - 1}; lower episodes_per_task"
            )
        for use, seed in self.used_seeds.items():
            if seed == self.seed:
                raise ValueError(
                    f"protocol '{self.name}': seed {seed} is the seed of {use}; "
                    "evaluate on held-out initial states, e.g. seed: 4242"
                )

    @property
    def max_episodes_per_task(self) -> int:
        return NUM_INITIAL_STATES - self.first_index

    def initial_states(self) -> list[InitialState]:
        indices = range(self.first_index, self.first_index + self.episodes_per_task)
        return [InitialState(task, self.seed, index) for task in self.tasks for index in indices]

    @property
    def hash(self) -> str:
        return digest_of({k: v for k, v in self.to_dict().items() if k not in _NOT_IN_HASH})
