"""Configs of algorithms that plan. This file does not import torch."""

from rrf.algorithms.off_policy.configs import OffPolicyCfg
from rrf.config import configclass, require_not_negative, require_positive

_DISCOUNT_RANGE = (0.95, 0.995)
_DISCOUNTED_SHARE = 5  # the horizon of the discount is a fifth of the episode


def discount_for(episode_length: int) -> float:
    """TD-MPC2's discount factor for episodes of this length in steps (arXiv:2310.16828, table 8).

    clip((T / 5 - 1) / (T / 5), 0.95, 0.995).
    """
    share = episode_length / _DISCOUNTED_SHARE
    low, high = _DISCOUNT_RANGE
    return min(max((share - 1) / share, low), high)


@configclass(builds="rrf.algorithms.planning.tdmpc2:TDMPC2")
class TDMPC2Cfg(OffPolicyCfg):
    """TD-MPC2 (arXiv:2310.16828). Use it with components.WorldModelPackCfg."""

    gamma: float = 0.995
    """Discount factor per step, for values and plans. The paper chooses it by the length T of
    episodes: (T / 5 - 1) / (T / 5), between 0.95 and 0.995."""
    batch_size: int = 256
    """Sequences per gradient step; each has as many steps as a plan."""
    actor_lr: float = 3e-4
    """Learning rate of the policy."""
    critic_lr: float = 3e-4
    """Learning rate of dynamics, reward, termination and critics."""
    encoder_lr_scale: float = 0.3
    """Learning rate of the encoder, as a factor on `critic_lr`."""
    tau = 0.01
    max_grad_norm: float | None = 20.0
    """The gradient of the model and its critics together is scaled down to this norm where it is
    longer; so is that of the policy. null: never."""
    warmup_steps: int = 5000
    """Transitions with uniformly random actions before learning begins. The paper takes five
    episodes, at least 1,000."""
    pretraining_updates: int = 5000
    """Gradient steps that become due when the warm-up ends; the paper takes `warmup_steps`. They
    are made within the next steps."""
    rho: float = 0.5
    """Weight of a step in the losses relative to the step before it."""
    consistency_coef: float = 20.0
    """Weight of the error of predicted latent states."""
    reward_coef: float = 0.1
    """Weight of the error of predicted rewards."""
    value_coef: float = 0.1
    """Weight of the error of the critics, averaged over them."""
    termination_coef: float = 1.0
    """Weight of the error of predicted terminations."""
    entropy_coef: float = 1e-4
    """Weight of the policy's entropy, relative to values divided by their running scale."""
    dropout: float = 0.01
    """Share of the outputs of the critics' first layer that are dropped while these learn."""
    scales_values: bool = True
    """In the policy's loss, divide values by their running range (5th to 95th percentile)."""

    def __post_init__(self):
        super().__post_init__()
        if self.n_steps != 1:
            raise ValueError(f"n_steps is {self.n_steps}, but learning from sequences needs 1")
        require_positive(self, "encoder_lr_scale", "rho")
        coefs = ("consistency_coef", "reward_coef", "value_coef", "termination_coef")
        require_not_negative(self, *coefs, "entropy_coef", "pretraining_updates")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, allowed: from 0 to below 1")


@configclass(builds="rrf.algorithms.planning.tdmpc:TDMPC")
class TDMPCCfg(TDMPC2Cfg):
    """TD-MPC (arXiv:2203.04955). Use it with components.WorldModelPackCfg and a model of plain
    numbers, as `rrf.presets.model_based` makes it."""

    gamma: float = 0.99
    """Discount factor per step, for values and plans."""
    batch_size: int = 512
    """Sequences per gradient step; each has as many steps as a plan."""
    actor_lr: float = 1e-3
    """Learning rate of the policy."""
    critic_lr: float = 1e-3
    """Learning rate of dynamics, reward, termination and critics."""
    encoder_lr_scale = 1.0
    tau = 0.005
    max_grad_norm: float | None = 10.0
    """The gradient of the model and its critics together is scaled down to this norm where it is
    longer; so is that of the policy. null: never."""
    consistency_coef = 2.0
    reward_coef = 0.5
    value_coef: float = 0.2
    """Weight of the error of the critics, averaged over them. The paper weighs the sum over two
    critics with half of it."""
    entropy_coef = 0.0
    dropout = 0.0
    scales_values = False
