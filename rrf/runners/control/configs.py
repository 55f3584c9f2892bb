"""What training a state-based policy is, as data. This file imports no torch."""

import typing

from rrf.algorithms.off_policy.configs import SACCfg
from rrf.algorithms.on_policy.configs import EPOCfg, PPOCfg, SAPGCfg
from rrf.config import Cfg, configclass
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.policies.control.configs import ActorCriticPackCfg, PopulationPackCfg
from rrf.policies.control.off_policy_configs import ActorQPackCfg
from rrf.runners.configs import RunnerCfg


@configclass
class GuardCfg(Cfg):
    """What happens when training goes wrong."""

    on_nan: typing.Literal["stop", "rollback"] = "stop"
    """A loss, weight or observation that is not a finite number ends the run, or takes it back to
    the last checkpoint with half the learning rate. What led to it is dumped either way."""
    max_rollbacks: int = 3
    """After so many, it ends the run all the same."""
    divergence_drop: float = 0.5
    """Warn when the mean return has lost this share of its rise, below its best, ..."""
    divergence_iterations: int = 50
    """... for so many iterations."""

    def __post_init__(self):
        if self.max_rollbacks < 0 or self.divergence_iterations < 1:
            raise ValueError(
                f"max_rollbacks is {self.max_rollbacks} and divergence_iterations "
                f"{self.divergence_iterations}, allowed: 0 or more, and 1 or more"
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
    """What it learns in."""
    max_iterations: int = 300
    """Iterations of acting and learning."""
    device: str = "cpu"
    """Where it learns: cpu, cuda, cuda:1."""
    num_threads: int | None = 1
    """Torch threads of this process; null tries 1 and 2 on the first updates and keeps what is
    faster."""
    save_interval: int = 50
    """Iterations between checkpoints; there is always one at the end."""
    num_checkpoints_kept: int = 2
    """Older checkpoints are removed."""
    log_interval: int = 1
    """Iterations between metrics."""
    video_interval: int | None = None
    """Iterations between videos; null makes none."""
    statistics_window: int = 100
    """Mean return and length are those of so many episodes that ended last."""
    guard: GuardCfg = GuardCfg()
    """What happens when training goes wrong."""
    init_from: str | None = None
    """Checkpoint whose weights this run starts from; null starts at random."""

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
    """Rollouts of fixed length, each learned from once."""

    num_steps_per_env: int = 24
    """Steps of each environment per iteration."""
    policy: ActorCriticPackCfg = ActorCriticPackCfg()
    """Actor and critic."""
    algorithm: PPOCfg = PPOCfg()
    """How they learn."""
    init_at_random_ep_len: bool = True
    """Begin the first episodes at random times of their limit, so that they do not all end at
    once."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_steps_per_env < 1:
            raise ValueError(f"num_steps_per_env is {self.num_steps_per_env}, allowed: 1 or more")


@configclass(builds="rrf.runners.control.sapg:SAPGOnPolicyRunner")
class SAPGOnPolicyRunnerCfg(OnPolicyRunnerCfg):
    """A population in blocks of the environments; the leader learns from all."""

    env: ControlEnvCfg = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=24)
    """What it learns in."""
    policy: PopulationPackCfg = PopulationPackCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Actor and critic of the population."""
    algorithm: SAPGCfg = SAPGCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """How they learn."""

    def __post_init__(self):
        super().__post_init__()
        if self.env.num_envs % self.policy.num_members:
            raise ValueError(
                f"env.num_envs is {self.env.num_envs}, allowed: a multiple of policy.num_members, "
                f"which is {self.policy.num_members}"
            )


@configclass(builds="rrf.runners.control.epo:EPOOnPolicyRunner")
class EPOOnPolicyRunnerCfg(SAPGOnPolicyRunnerCfg):
    """A population in blocks of the environments, whose latents are bred by their returns."""

    policy: PopulationPackCfg = PopulationPackCfg(num_members=8, learn_latents=False)
    """Actor and critic of the population."""
    algorithm: EPOCfg = EPOCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """How they learn and evolve."""


@configclass(builds="rrf.runners.control.off_policy:OffPolicyRunner")
class OffPolicyRunnerCfg(ControlRunnerCfg):
    """Learning from a replay of all that was seen."""

    env: ControlEnvCfg = GymnasiumEnvCfg(task="Pendulum-v1")
    """What it learns in."""
    num_steps_per_env: int = 1000
    """Steps of each environment per iteration; learning goes on in between, so this says only how
    often numbers are logged."""
    max_iterations = 1000
    policy: ActorQPackCfg = ActorQPackCfg()
    """Actor and critics."""
    algorithm: SACCfg = SACCfg()
    """How they learn."""
    replay_size: int = 1_000_000
    """Transitions that are remembered."""
    replay_memory_gib: float | None = 8.0
    """A replay that would take more is refused; null allows any."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("num_steps_per_env", "replay_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
