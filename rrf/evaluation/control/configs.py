"""The protocol of state-based control as data; `rrf.evaluation.control.protocol` runs it. No torch
here.

Environments are stepped together in blocks of `env.num_envs`, and each environment runs one
episode. A block has its own seed and always the same size, so batch sizes never vary. When a
protocol is extended by further blocks, the results of the first episodes stay bit-identical.

The commands alternate from environment to environment. Simulators assign each kind of terrain to a
contiguous range of environments, so alternation lets every command meet every kind of terrain.
"""

import typing
from collections.abc import Collection, Mapping
from pathlib import Path

from rrf import code_digest
from rrf.atomic import digest_of
from rrf.config import configclass
from rrf.envs.configs import ControlEnvCfg, task_id
from rrf.envs.vec_env import InitialState
from rrf.evaluation.action_metrics import ACTION_METRICS
from rrf.evaluation.protocols.base import BaseProtocolCfg, versions_here
from rrf.evaluation.protocols.limits import LimitCfg, check_metrics

METRICS = {
    "return": "sum of rewards",
    "length": "steps",
    "fall": "1 if the episode ended before its time limit",
    "success_once": "1 if the task was solved at any time, as the task says",
    "success_at_end": "1 if it was solved when the episode ended",
    "completed": "parts of the task that were done, for tasks with parts",
    "velocity_error": "m/s, of tasks that draw their commands themselves",
    "height_error": "m, of such tasks",
    "torso_error": "rad, of such tasks",
    "mpjpe": "mm, of tasks with motions: of the joints' places beside the pelvis, in its heading",
    "unasked_sway": "rad/s of the pelvis, of such tasks; 0 while something asks it to step",
    "tracking_error_xy": "m/s",
    "tracking_error_yaw": "rad/s",
    "power": "W",
    "cost_of_transport": "",
    **ACTION_METRICS,
    "motion_distance": "rad, for environments with reference motions",
    "goal_distance": "m at the end, for environments with an object and its goal",
}
"""Metrics of an episode and their units; `rrf.evaluation.control.metrics` computes them."""
OF_COMMANDS = ("fall", "tracking_error_xy", "tracking_error_yaw", "power", "cost_of_transport")
"""Metrics that are measured only for tasks with velocity commands; "fall" also for those that draw
commands themselves."""
OF_OWN_COMMANDS = ("velocity_error", "height_error", "torso_error", "unasked_sway", "mpjpe")
"""Metrics that are measured only for tasks that draw themselves what a robot is to do; which of
them a task measures, its config says (`ControlEnvCfg.measures`)."""
OF_TASK = ("success_once", "success_at_end", "completed")
"""Metrics that are measured only where the task itself says something of them."""
_NOT_IN_HASH = ("name", "type")
_MAX_EPISODES = 10_000
_PLACES = ("hidden", "kwargs", "slow", "slow_interval", "clips")
"""Fields of an environment's config that decide its observations, or what motions are compared
with."""


@configclass(builds="rrf.evaluation.control.protocol:ControlProtocol")
class ControlProtocolCfg(BaseProtocolCfg):
    """What every state-based policy evaluated under this protocol has to do."""

    policy_kind: typing.ClassVar[str] = "control"
    metrics: typing.ClassVar[Mapping[str, str]] = METRICS
    left_out_if_empty: typing.ClassVar[Collection[str]] = ("simulator_versions",)
    play_options: typing.ClassVar[Mapping[str, typing.Any]] = {
        "num_envs": 4,
        "viewer": False,
        "steps": None,
        "seconds": None,
    }

    env: ControlEnvCfg
    """The environment; its num_envs is the size of a block, shared equally by the commands."""
    commands: dict[str, list[float]] = {}
    """Velocity commands, name -> [forward m/s, left m/s, turn left rad/s]. A command is held for
    the whole episode and reported as a separate task. Empty for tasks that take no command."""
    max_episode_steps: int
    """Horizon in steps; an episode that reaches it ends by its time limit."""
    settling_s: float = 1.0
    """Seconds at the start of an episode that do not count for the tracking errors."""
    success: dict[str, LimitCfg]
    """Metric -> range; an episode succeeds if each of these metrics lies in its range."""
    greedy: bool = True
    """Take the mode of the policy; otherwise sample from it."""
    policy_seed: int = 0
    """Seed of the policy's sampling."""
    simulator_versions: dict[str, str] = {}
    """Package -> version that the episodes must be played with, for simulators in an interpreter of
    their own; an evaluation records those that it was played with."""

    def __post_init__(self) -> None:
        where = f"protocol '{self.name}'"
        if not self.success:
            raise ValueError(f"{where}: success is empty; e.g. success: {{return: {{min: 475}}}}")
        check_metrics(self.success, METRICS, where)
        measures = self.env.measures
        of_commands = set(OF_COMMANDS) - {"fall"} if measures else {*OF_COMMANDS}
        unmeasured = [name for name in self.success if name in of_commands]
        of_others = set(OF_OWN_COMMANDS) - set(measures)
        if asked := [name for name in self.success if name in of_others]:
            instead = ", ".join(measures) or "tracking_error_xy, with `commands`"
            raise ValueError(
                f"{where}: success asks for {', '.join(asked)}, but {self.env.task} does not "
                f"measure it; ask for {instead}"
            )
        if unmeasured and not self.commands:
            raise ValueError(
                f"{where}: success asks for {', '.join(unmeasured)}, which can be measured only "
                "with `commands`, and the protocol has none; no episode could succeed. Add "
                "commands, or ask for return or length"
            )
        for field in ("episodes_per_task", "max_episode_steps"):
            if getattr(self, field) < 1:
                raise ValueError(f"{where}: {field} is {getattr(self, field)}, not at least 1")
        for name, command in self.commands.items():
            if len(command) != 3:
                raise ValueError(
                    f"{where}: command '{name}' is {command}, expected three numbers: [forward "
                    "m/s, left m/s, turn left rad/s]"
                )
        if self.env.num_envs < 1:
            raise ValueError(
                f"{where}: env.num_envs is {self.env.num_envs}; set it to 1 or more, the size of a "
                "block"
            )
        if self.env.num_envs % len(self.tasks):
            raise ValueError(
                f"{where}: env.num_envs is {self.env.num_envs}, which cannot be shared equally by "
                f"{len(self.tasks)} commands; choose a multiple"
            )
        if self.env.undecided:
            raise ValueError(f"{where}: {self.env.undecided}")

    @property
    def tasks(self) -> list[str]:
        """The tasks that are reported separately: the commands, or the environment's task."""
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
        data["env"].pop("num_threads", None)  # changes only the time an evaluation takes
        return digest_of(data)

    @property
    def base_hash(self) -> str:
        return self.replace(episodes_per_task=1, simulator_versions={}).hash

    @property
    def versions(self) -> Mapping[str, str]:
        return self.simulator_versions

    def here(self, checkpoint: Path | None = None) -> typing.Self:
        if not self.env.packages and not self.simulator_versions:
            return self
        return self.replace(simulator_versions=versions_here(self, self.env))

    @property
    def environment_class(self) -> type:
        return type(self.env)

    @property
    def success_rule(self) -> str:
        return ", ".join(
            f"{name.replace('_', ' ')} {asked}" for name, asked in self.success.items()
        )

    def initial_states(self) -> list[InitialState]:
        indices = range(self.episodes_per_task)
        return [InitialState(task, self.seed, index) for task in self.tasks for index in indices]

    def is_about(self, config: Mapping) -> bool:
        """Whether the policy was trained on the same task with the same observations. A task that
        draws commands of its own is more than the velocities of a protocol."""
        if self.commands and self.env.measures:
            return False
        trained_in, env = config.get("env") or {}, self.env.to_dict()
        if task_id(self.env.task) != task_id(trained_in.get("task", "")):
            return False
        return all((env.get(place) or None) == (trained_in.get(place) or None) for place in _PLACES)

    def source(self) -> str:
        """Digest of this package's code, the simulators, and the source of a user's own task."""
        from rrf.envs.gymnasium.task_source import joined

        return joined(
            digest_of([code_digest.source_digest(), code_digest.simulator_versions()]),
            self.env.task,
        )
