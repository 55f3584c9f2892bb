"""An evaluation protocol of state-based control as data. This file imports no torch.

Environments are stepped together in blocks of `env.num_envs`, each of which runs one episode; a
block has its own seed and always the same size. So the first episodes stay what they are, to the
last bit, when a protocol is extended by further blocks, and batch sizes never vary. The commands
alternate from environment to environment, because simulators give kinds of ground to environments
in one piece: so every command meets every kind.
"""

from rrf.atomic import digest_of
from rrf.config import configclass
from rrf.envs.control_configs import ControlEnvCfg, MjlabEnvCfg, task_id
from rrf.envs.vec_env import InitialState
from rrf.evaluation.limits import OF_COMMANDS, LimitCfg, check_metrics
from rrf.evaluation.protocol import BaseProtocolCfg

_NOT_IN_HASH = ("name", "type")
_MAX_EPISODES = 10_000


@configclass
class ControlProtocolCfg(BaseProtocolCfg):
    """What every state-based policy evaluated under this protocol has to do."""

    env: ControlEnvCfg
    """The environment; its num_envs is the size of a block, shared equally by the commands."""
    commands: dict[str, list[float]] = {}
    """Velocity commands, name -> [forward m/s, left m/s, turn left rad/s], each held for the whole
    episode and reported as a task of its own; none for tasks that take no command."""
    max_episode_steps: int
    """Horizon in steps; an episode that lasts so long has reached its time limit."""
    settling_s: float = 1.0
    """Seconds at the start of an episode that no tracking error is taken of."""
    success: dict[str, LimitCfg]
    """An episode succeeds if each of these numbers of it lies in its range."""
    greedy: bool = True
    """Take the mode of the policy; otherwise sample from it."""
    policy_seed: int = 0
    """Seed of the policy's sampling."""

    def __post_init__(self) -> None:
        where = f"protocol '{self.name}'"
        if not self.success:
            raise ValueError(f"{where}: success is empty; e.g. success: {{return: {{min: 475}}}}")
        check_metrics(self.success, where)
        unmeasured = [name for name in self.success if name in OF_COMMANDS]
        if unmeasured and not self.commands:
            raise ValueError(
                f"{where}: success asks for {', '.join(unmeasured)}, measured only under "
                "`commands`, of which there are none; no episode could succeed. Add commands, or "
                "ask for return or length"
            )
        for field in ("episodes_per_task", "max_episode_steps"):
            if getattr(self, field) < 1:
                raise ValueError(f"{where}: {field} is {getattr(self, field)}, not at least 1")
        for name, command in self.commands.items():
            if len(command) != 3:
                raise ValueError(
                    f"{where}: command '{name}' is {command}, not [forward m/s, left m/s, "
                    "turn left rad/s]"
                )
        if self.env.num_envs < 1:
            raise ValueError(f"{where}: env.num_envs is {self.env.num_envs}; say how many")
        if self.env.num_envs % len(self.tasks):
            raise ValueError(
                f"{where}: env.num_envs is {self.env.num_envs}, which {len(self.tasks)} commands "
                "cannot share equally"
            )
        if isinstance(self.env, MjlabEnvCfg) and self.env.backend == "auto":
            raise ValueError(
                f"{where}: env.backend is auto, which simulates differently on a GPU; "
                "say native or mjlab"
            )

    @property
    def tasks(self) -> list[str]:
        """What is reported separately: the commands, or the environment's task."""
        return list(self.commands) or [self.env.task]

    @property
    def block_episodes(self) -> int:
        """Episodes per task in one block."""
        return self.env.num_envs // len(self.tasks)

    @property
    def max_episodes_per_task(self) -> int:
        return _MAX_EPISODES

    @property
    def hash(self) -> str:
        data = {k: v for k, v in self.to_dict().items() if k not in _NOT_IN_HASH}
        data["env"].pop("num_threads", None)  # decides the time it takes and nothing else
        if self.commands:
            data["rows"] = "commands alternate"  # once each had a block of neighbours to itself
        return digest_of(data)

    def initial_states(self) -> list[InitialState]:
        indices = range(self.episodes_per_task)
        return [InitialState(task, self.seed, index) for task in self.tasks for index in indices]

    def is_about(self, env: ControlEnvCfg) -> bool:
        """Whether a policy trained in `env` has what this protocol asks for: the same task, seen
        through the same observations."""
        places = ("hidden", "kwargs")
        ours, theirs = self.env.to_dict(), env.to_dict()
        if task_id(self.env.task) != task_id(env.task):
            return False
        return all((ours.get(place) or None) == (theirs.get(place) or None) for place in places)
