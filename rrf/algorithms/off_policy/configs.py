"""What the off-policy algorithms are told, as data. This file imports no torch."""

import typing

from rrf.config import Cfg, configclass


@configclass(builds="rrf.algorithms.off_policy.sac:SAC")
class SACCfg(Cfg):
    """Soft actor-critic (arXiv:1812.05905)."""

    gamma: float = 0.99
    """Worth of a reward one step later."""
    batch_size: int = 256
    """Transitions per gradient step."""
    updates_per_step: float = 1.0
    """Gradient steps per transition seen. Below 1 where many environments are stepped together,
    e.g. 0.01 for a thousand."""
    warmup_steps: int = 5000
    """Transitions with uniformly random actions before learning begins."""
    n_steps: int = 1
    """Rewards that are summed before the critic's estimate takes over; fewer where the episode
    ends, or the sequence that is learned from."""
    actor_lr: float = 3e-4
    """Learning rate of the policy."""
    critic_lr: float = 3e-4
    """Learning rate of the critics."""
    alpha_lr: float = 3e-4
    """Learning rate of the temperature."""
    init_alpha: float = 1.0
    """Temperature at the start: what one nat of entropy is worth."""
    learn_alpha: bool = True
    """Move the temperature such that the entropy stays at its target."""
    target_entropy: float | None = None
    """In nats; null takes minus the number of action dimensions."""
    tau: float = 0.005
    """Share of the critics that moves into their slow copies after each gradient step."""
    policy_delay: int = 1
    """Policy, temperature and slow copies move at every so many gradient steps of the critics."""
    max_grad_norm: float | None = None
    """Gradients of the critics, and of the policy, longer than this are scaled down; null never."""
    precision: typing.Literal["fp32", "bf16", "auto"] = "fp32"
    """Arithmetic of the update's hidden layers; auto: bf16 where the processor multiplies it
    faster: with AMX, or with AVX512-BF16 by AMD."""

    def __post_init__(self):
        for name in ("batch_size", "n_steps", "policy_delay"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
        positive = ("actor_lr", "critic_lr", "alpha_lr", "init_alpha", "updates_per_step")
        for name in (*positive, "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}, allowed: above 0")
        if not (0 <= self.gamma <= 1 and 0 < self.tau <= 1):
            raise ValueError(
                f"gamma is {self.gamma} and tau {self.tau}, allowed: 0 to 1, and above 0 to 1"
            )
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps is {self.warmup_steps}, allowed: 0 or more")


@configclass(builds="rrf.algorithms.off_policy.dsac:DSAC")
class DSACCfg(SACCfg):
    """Distributional soft actor-critic (arXiv:2001.02811): the critic learns how the return is
    distributed. Goes with components.DistributionalQCfg(num_critics=1)."""

    policy_delay = 2
    td_bound: float = 20.0
    """A sampled return is cut off this far from the mean before the standard deviation learns from
    it."""

    def __post_init__(self):
        super().__post_init__()
        if self.td_bound <= 0:
            raise ValueError(f"td_bound is {self.td_bound}, allowed: above 0")


@configclass(builds="rrf.algorithms.off_policy.dsac:DSACT")
class DSACTCfg(SACCfg):
    """DSAC-T (arXiv:2310.05858): DSAC with expected targets, twin distributions, and a step that
    adapts to their width. Goes with components.DistributionalQCfg()."""

    policy_delay = 2
    tau_b: float = 0.005
    """Share of a batch's mean standard deviation that moves into the running one."""
    bound_factor: float = 3.0
    """A sampled return is cut off so many running standard deviations from the mean."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.tau_b <= 1 or self.bound_factor <= 0:
            raise ValueError(
                f"tau_b is {self.tau_b} and bound_factor {self.bound_factor}, allowed: above 0 to "
                "1, and above 0"
            )


@configclass(builds="rrf.algorithms.off_policy.sac_seq:SACSeq")
class SACSeqCfg(SACCfg):
    """Recurrent SAC that learns from stored sequences, as R2D2 does (openreview r1lyTjAqYX). Goes
    with components.GRUEncoderCfg in actor and critics."""

    batch_size = 16
    sequence_length: int = 32
    """Steps of a sequence that are learned from; `batch_size` counts sequences."""
    burn_in: int = 8
    """Steps before them that only bring the memory up to date."""
    stride: int = 8
    """Steps between the places where sequences may begin and the memory is stored."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("sequence_length", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
        if self.burn_in < 0:
            raise ValueError(f"burn_in is {self.burn_in}, allowed: 0 or more")
        if self.precision != "fp32":
            raise ValueError(f"precision is {self.precision}; sequences are learned from in fp32")


@configclass(builds="rrf.algorithms.off_policy.sac_trans:SACTrans")
class SACTransCfg(SACSeqCfg):
    """SAC whose actor and critics look back on a history of observations with a causal transformer.
    Goes with components.TransformerEncoderCfg in actor and critics."""

    batch_size = 32
    sequence_length = 8
    burn_in = 8
    """Steps before them that are only looked back on."""
    stride = 1
