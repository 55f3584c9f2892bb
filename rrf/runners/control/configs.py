"""Configs of on-policy training runs, and what all runs of state-based policies share. No torch."""

import typing

from rrf.algorithms.on_policy.configs import EPOCfg, PPOCfg, SAPGCfg
from rrf.config import Cfg, configclass, locate, require_at_least_one
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.policies.control.configs import ActorCriticPackCfg, PopulationPackCfg
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
    extends: typing.ClassVar[str] = "max_iterations"

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
    """Iterations between checkpoints. The last iteration always writes one, and so does one at
    which the last checkpoint is ten minutes old."""
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
        require_at_least_one(self, "max_iterations", "num_checkpoints_kept", *intervals)
        for name in ("video_interval", "num_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, allowed: 1 or more, or null")

    def build(self, run_dir, *args, **runtime):
        """The runner, with checkpoints and all extras (`rrf.runners.control.equipment`)."""
        equipment = locate("rrf.runners.control.equipment:equipment")
        return super().build(run_dir, *args, **(equipment(self) | runtime))


@configclass
class RolloutRunnerCfg(ControlRunnerCfg):
    """Every iteration collects a rollout of fixed length and learns from it."""

    num_steps_per_env: int = 24
    """Steps of each environment per iteration."""
    init_at_random_ep_len: bool = True
    """Start the episode counters of the first episodes at random values, so that the episodes do
    not all reach the time limit at once."""

    def __post_init__(self):
        super().__post_init__()
        require_at_least_one(self, "num_steps_per_env")


@configclass(builds="rrf.runners.control.on_policy:OnPolicyRunner")
class OnPolicyRunnerCfg(RolloutRunnerCfg):
    """On-policy training: every iteration collects a rollout of fixed length and learns from it."""

    policy: ActorCriticPackCfg = ActorCriticPackCfg()
    """Actor and critic."""
    algorithm: PPOCfg = PPOCfg()
    """The learning algorithm."""

    def spread_over_run(self) -> str | None:
        """See `RunnerCfg.spread_over_run`."""
        return "algorithm.schedule is linear" if self.algorithm.schedule == "linear" else None


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


@configclass(builds="rrf.runners.control.sapg:EPOOnPolicyRunner")
class EPOOnPolicyRunnerCfg(SAPGOnPolicyRunnerCfg):
    """On-policy training of a population that evolves: the followers' latents are bred by their
    returns."""

    policy: PopulationPackCfg = PopulationPackCfg(num_members=8, learn_latents=False)
    """Actor and critic of the population."""
    algorithm: EPOCfg = EPOCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The learning algorithm, including evolution."""
