"""Configs of the training runs of state-based policies. This file does not import torch."""

import typing

from rrf.algorithms.off_policy.configs import OffPolicyCfg, SACCfg
from rrf.algorithms.offline.configs import IQLCfg
from rrf.algorithms.on_policy.configs import EPOCfg, PPOCfg, SAPGCfg
from rrf.algorithms.planning.configs import TDMPC2Cfg
from rrf.config import Cfg, configclass
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.policies.control.configs import ActorCriticPackCfg, ControlPolicyCfg, PopulationPackCfg
from rrf.policies.control.off_policy_configs import ActorQPackCfg
from rrf.policies.control.offline_configs import IQLPackCfg
from rrf.policies.control.world_model_configs import WorldModelPackCfg
from rrf.runners.configs import RunnerCfg

# Fields that may change when a run is resumed, because they do not change its results. `guard` only
# matters when something went wrong.
FREE = (
    *("trackers", "experiment_name", "save_interval", "num_checkpoints_kept", "log_interval"),
    *("video_interval", "init_from", "teacher", "guard"),
)


@configclass
class GuardCfg(Cfg):
    """What to do when training goes wrong."""

    on_nan: typing.Literal["stop", "rollback"] = "stop"
    """What to do if a loss, weight or observation is not a finite number. stop: end the run.
    rollback: return to the last checkpoint and halve the learning rate. In both cases the last step
    is written to disk."""
    max_rollbacks: int = 3
    """Maximum number of rollbacks. After these, the run ends."""
    divergence_drop: float = 0.5
    """Fraction of its rise (from the first to the best value) that the mean return must lose before
    a warning; see divergence_iterations."""
    divergence_iterations: int = 50
    """Number of consecutive iterations with such a drop before the warning."""

    def __post_init__(self):
        if self.max_rollbacks < 0 or self.divergence_iterations < 1:
            raise ValueError(
                f"max_rollbacks is {self.max_rollbacks} and divergence_iterations is "
                f"{self.divergence_iterations}, allowed: max_rollbacks of 0 or more, and "
                "divergence_iterations of 1 or more"
            )
        if not 0 < self.divergence_drop <= 1:
            raise ValueError(
                f"divergence_drop is {self.divergence_drop}, allowed: above 0 and up to 1"
            )


@configclass
class ControlRunnerCfg(RunnerCfg):
    """Reinforcement learning of a state-based policy."""

    loop: typing.ClassVar[str] = "control"
    policy_kind: typing.ClassVar[str] = "control"

    env: ControlEnvCfg = GymnasiumEnvCfg()
    """The environment to train in."""
    max_iterations: int = 300
    """Number of iterations of acting and learning."""
    device: str = "cpu"
    """Device to train on: cpu, cuda, cuda:1."""
    num_threads: int | None = 1
    """Torch threads of this process; null tries 1 and 2 in the first iterations and keeps the
    faster number."""
    save_interval: int = 50
    """Iterations between checkpoints. The last iteration always writes one."""
    num_checkpoints_kept: int = 2
    """Number of newest checkpoints to keep; older ones are removed."""
    log_interval: int = 1
    """Iterations between logged metrics."""
    video_interval: int | None = None
    """Iterations between videos; null for no videos."""
    statistics_window: int = 100
    """Number of last finished episodes over which mean return and length are computed."""
    guard: GuardCfg = GuardCfg()
    """What to do when training goes wrong."""
    init_from: str | None = None
    """Checkpoint with the initial weights; null starts from random weights."""

    def __post_init__(self):
        super().__post_init__()
        intervals = ("save_interval", "log_interval", "statistics_window")
        for name in ("max_iterations", "num_checkpoints_kept", *intervals):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
        for name in ("video_interval", "num_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, allowed: 1 or more, or null")


@configclass(builds="rrf.runners.control.on_policy:OnPolicyRunner")
class OnPolicyRunnerCfg(ControlRunnerCfg):
    """On-policy training: every iteration collects a rollout of fixed length and learns from it."""

    num_steps_per_env: int = 24
    """Steps of each environment per iteration."""
    policy: ActorCriticPackCfg = ActorCriticPackCfg()
    """Actor and critic."""
    algorithm: PPOCfg = PPOCfg()
    """The learning algorithm."""
    init_at_random_ep_len: bool = True
    """Start the episode counters of the first episodes at random values, so that the episodes do
    not all reach the time limit at once."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_steps_per_env < 1:
            raise ValueError(f"num_steps_per_env is {self.num_steps_per_env}, allowed: 1 or more")


@configclass(builds="rrf.runners.control.sapg:SAPGOnPolicyRunner")
class SAPGOnPolicyRunnerCfg(OnPolicyRunnerCfg):
    """On-policy training of a population. Each member acts in its own block of environments, and
    the leader learns from all members."""

    env: ControlEnvCfg = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=24)
    """The environment to train in."""
    policy: PopulationPackCfg = PopulationPackCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Actor and critic of the population."""
    algorithm: SAPGCfg = SAPGCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The learning algorithm."""

    def __post_init__(self):
        super().__post_init__()
        if self.env.num_envs % self.policy.num_members:
            raise ValueError(
                f"env.num_envs is {self.env.num_envs}, allowed: a multiple of policy.num_members, "
                f"which is {self.policy.num_members}"
            )


@configclass(builds="rrf.runners.control.epo:EPOOnPolicyRunner")
class EPOOnPolicyRunnerCfg(SAPGOnPolicyRunnerCfg):
    """On-policy training of a population that evolves: the followers' latents are bred by their
    returns."""

    policy: PopulationPackCfg = PopulationPackCfg(num_members=8, learn_latents=False)
    """Actor and critic of the population."""
    algorithm: EPOCfg = EPOCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The learning algorithm, including evolution."""


@configclass(builds="rrf.runners.control.off_policy:OffPolicyRunner")
class OffPolicyRunnerCfg(ControlRunnerCfg):
    """Off-policy training: learns from a replay buffer after every step."""

    env: ControlEnvCfg = GymnasiumEnvCfg(task="Pendulum-v1")
    """The environment to train in."""
    num_steps_per_env: int = 1000
    """Steps of each environment per iteration. The policy learns after every step, so this only
    changes how often metrics are logged and checkpoints are saved."""
    max_iterations = 1000
    policy: ActorQPackCfg = ActorQPackCfg()
    """Actor and critics."""
    algorithm: SACCfg = SACCfg()
    """The learning algorithm."""
    replay_size: int = 1_000_000
    """Number of transitions that the replay buffer holds."""
    replay_memory_gib: float | None = 8.0
    """Upper limit of the replay buffer's memory in GiB. A larger one is refused; null for no
    limit."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("num_steps_per_env", "replay_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")


@configclass(builds="rrf.runners.control.offline:OfflineRunner")
class OfflineRunnerCfg(OffPolicyRunnerCfg):
    """Learning from a published dataset of states, and afterwards in the environment if wanted."""

    loop: typing.ClassVar[str] = "offline"

    dataset: str = ""
    """Name of the dataset, or a path. It needs the columns next.reward and next.terminated."""
    env: ControlEnvCfg = GymnasiumEnvCfg(task="HalfCheetah-v5")
    """The task that was recorded. It is only stepped in online iterations, and to be evaluated."""
    policy: ControlPolicyCfg = IQLPackCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The networks that the algorithm needs."""
    algorithm: OffPolicyCfg = IQLCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The learning algorithm."""
    updates_per_iteration: int = 1000
    """Gradient steps of an offline iteration."""
    online_iterations: int = 0
    """How many of the `max_iterations`, the last ones, learn in the environment."""
    replay_size = 250_000
    """Number of new transitions that the replay holds, beside the recorded ones."""
    reward_scale: float = 1.0
    """Factor on rewards, recorded and new."""
    reward_shift: float = 0.0
    """Added to rewards after scaling, e.g. -1 for mazes."""
    scales_by_returns: bool = False
    """Also scale rewards such that the returns of the recorded episodes span 1000."""

    def __post_init__(self):
        super().__post_init__()
        if self.updates_per_iteration < 1:
            raise ValueError(
                f"updates_per_iteration is {self.updates_per_iteration}, allowed: 1 or more"
            )
        if not 0 <= self.online_iterations <= self.max_iterations:
            raise ValueError(
                f"online_iterations is {self.online_iterations}, allowed: 0 to max_iterations, "
                f"which is {self.max_iterations}"
            )
        if self.algorithm.n_steps != 1:
            raise ValueError(
                f"algorithm.n_steps is {self.algorithm.n_steps}, but learning from a dataset needs "
                "1"
            )

    def require_dataset(self) -> None:
        """Raise ValueError if no dataset is named."""
        require_dataset(self.dataset)


@configclass(builds="rrf.runners.control.off_policy:OffPolicyRunner")
class PlanningRunnerCfg(OffPolicyRunnerCfg):
    """Off-policy training of a world model that plans."""

    policy: WorldModelPackCfg = WorldModelPackCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The world model."""
    algorithm: TDMPC2Cfg = TDMPC2Cfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The learning algorithm."""


def require_dataset(name: str) -> None:
    """Raise ValueError if `name` is empty."""
    if not name:
        raise ValueError("dataset is not given; name a published dataset: dataset=NAME")
