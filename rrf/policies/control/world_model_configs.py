"""Configs of world models that plan, for TD-MPC and TD-MPC2. This file does not import torch."""

import typing

from rrf.config import Cfg, configclass, require_at_least_one
from rrf.networks.configs import MLPCfg, normed_mlp
from rrf.policies.control.configs import ControlPolicyCfg
from rrf.policies.control.off_policy_configs import RealActorCfg


@configclass
class PlannerCfg(Cfg):
    """Model-predictive path integral control (arXiv:1509.01149): sample, weigh, average, repeat."""

    horizon: int = 3
    """Steps of a plan; also the length of the sequences that the model learns from."""
    num_samples: int = 512
    """Action sequences per iteration, including those of the policy."""
    num_policy_samples: int = 24
    """How many of them follow the learned policy."""
    num_elites: int = 64
    """Number of best sequences that the next mean and standard deviation are computed from."""
    iterations: int = 6
    """Rounds of sampling."""
    temperature: float = 0.5
    """Sharpness of the elites' weights, per unit of return: 0 weighs all of them alike."""
    min_std: float = 0.05
    """Lower bound of the standard deviation, in units of the action limit."""
    max_std: float = 2.0
    """Initial standard deviation and its upper bound, in units of the action limit."""
    momentum: float = 0.0
    """Share of the previous mean in the next one."""

    def __post_init__(self):
        require_at_least_one(self, "horizon", "num_elites", "iterations")
        if not 0 <= self.num_policy_samples < self.num_samples:
            raise ValueError(
                f"num_policy_samples is {self.num_policy_samples}, allowed: 0 to num_samples - 1, "
                f"which is {self.num_samples - 1}"
            )
        if self.num_elites > self.num_samples:
            raise ValueError(
                f"num_elites is {self.num_elites}, allowed: up to num_samples, which is "
                f"{self.num_samples}"
            )
        if not 0 < self.min_std <= self.max_std:
            raise ValueError(
                f"min_std is {self.min_std} and max_std is {self.max_std}, allowed: above 0 and in "
                "increasing order"
            )
        if self.temperature < 0 or not 0 <= self.momentum < 1:
            raise ValueError(
                f"temperature is {self.temperature} and momentum is {self.momentum}, allowed: "
                "temperature of 0 or more, and momentum from 0 to below 1"
            )


@configclass(builds="rrf.policies.control.world_model:WorldModel")
class WorldModelCfg(RealActorCfg):
    """A latent world model that plans. The default is TD-MPC2's of 5M parameters."""

    backbone_cfg: MLPCfg = normed_mlp([512, 512])
    """Hidden layers of dynamics, reward, termination, policy and critics."""
    critic_backbone_cfg: MLPCfg | None = None
    """Hidden layers of the critics, if they differ."""
    encoder_backbone_cfg: MLPCfg = normed_mlp([256])
    """Hidden layers between the observation and its latent state."""
    min_log_std = -10.0
    planner: PlannerCfg = PlannerCfg()
    """How actions are chosen."""
    latent_dim: int = 512
    """Width of a latent state."""
    simnorm_group: int | None = 8
    """Latent states consist of probability vectors of this length (SimNorm). null: of any
    numbers."""
    num_critics: int = 5
    """Critics of actions. Targets and plans use two of them, drawn each time."""
    num_bins: int | None = 101
    """Bins in which rewards and values are predicted. null: as plain numbers."""
    bin_range: tuple[float, float] = (-10.0, 10.0)
    """The outermost bins, as symlog of rewards and values."""
    policy_std: float | None = None
    """Standard deviation of the learned policy, in units of the action limit; null learns it."""
    takes_lowest: bool = False
    """Plans and the policy's loss use the lower of two critics instead of their mean."""
    predicts_termination: bool = True
    """Predict where episodes terminate. Only false saves time, in tasks that never do."""
    init: typing.Literal["truncated_normal", "orthogonal"] = "truncated_normal"
    """How weights are initialised."""

    def __post_init__(self):
        super().__post_init__()
        require_at_least_one(self, "latent_dim", "num_critics")
        if self.encoder is not None:
            raise ValueError("encoder is set, but a world model has no memory; leave it out")
        group = self.simnorm_group
        if group is not None and (group < 1 or self.latent_dim % group):
            raise ValueError(
                f"simnorm_group is {group}, allowed: a divisor of latent_dim, which is "
                f"{self.latent_dim}, or null"
            )
        if self.num_bins is not None and self.num_bins < 2:
            raise ValueError(f"num_bins is {self.num_bins}, allowed: 2 or more, or null")
        if not self.bin_range[0] < self.bin_range[1]:
            raise ValueError(f"bin_range is {self.bin_range}, allowed: two increasing numbers")
        if self.policy_std is not None and self.policy_std <= 0:
            raise ValueError(f"policy_std is {self.policy_std}, allowed: above 0, or null")


@configclass(builds="rrf.policies.control.world_model:WorldModelPack")
class WorldModelPackCfg(ControlPolicyCfg):
    """A world model that plans, and nothing else."""

    actor_cfg: WorldModelCfg = WorldModelCfg()
    """The model."""
