"""What the algorithms are told, as data. This file imports no torch."""

import typing

from rrf.config import Cfg, configclass


@configclass
class AugmentationCfg(Cfg):
    """How training batches are varied; validation batches never are."""

    shift_px: int = 3
    """Images move by up to this many pixels in each direction (arXiv:2107.09645)."""
    state_noise: float = 0.02
    """Standard deviation of noise on the state, in standard deviations of the dataset."""

    def __post_init__(self):
        if self.shift_px < 0 or self.state_noise < 0:
            raise ValueError(
                f"shift_px is {self.shift_px} and state_noise {self.state_noise}, "
                "allowed: 0 or more"
            )


@configclass(builds="rrf.algorithms.vla.behavior_cloning:BehaviorCloning")
class BehaviorCloningCfg(Cfg):
    """Supervised imitation of demonstrated action chunks."""

    augmentation: AugmentationCfg | None = AugmentationCfg()
    """How training batches are varied; null trains on the recorded frames alone."""


@configclass
class PolicyGradientCfg(Cfg):
    """What GRPO and PPO have in common: the clipped surrogate and the passes over a batch."""

    group_size: int = 1
    """Episodes played from one initial state."""
    log_prob_level: typing.Literal["token", "action", "chunk"] = "token"
    """What a probability ratio is taken of: each element of an action, an action, a whole chunk."""
    clip_low: float = 0.2
    """A ratio below 1 - clip_low earns nothing more."""
    clip_high: float = 0.28
    """A ratio above 1 + clip_high earns nothing more."""
    dual_clip: float | None = None
    """Bounds the loss of a negative advantage to this many times its size (arXiv:1912.09729)."""
    kl_coef: float = 0.0
    """Weight of the penalty for leaving the policy that training started from."""
    kl_kind: typing.Literal["k1", "k2", "k3", "abs"] = "k3"
    """Its form; k3 has a useful gradient, k1 has none on average."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""
    time_cost: float = 0.3
    """What a success that takes the whole horizon earns less than one at once; it earns 1."""
    num_epochs: int = 2
    """Passes over the rows of a round."""
    minibatch_size: int = 128
    """Rows per optimizer step."""

    def __post_init__(self):
        if not (0 < self.clip_low < 1 and self.clip_high > 0):
            raise ValueError(
                f"clip_low is {self.clip_low} and clip_high {self.clip_high}, allowed: between 0 "
                "and 1, and above 0"
            )
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise ValueError(f"dual_clip is {self.dual_clip}, allowed: above 1, or null for none")
        if self.kl_coef < 0 or self.entropy_coef < 0:
            raise ValueError(
                f"kl_coef is {self.kl_coef} and entropy_coef {self.entropy_coef}, allowed: 0 or "
                "more"
            )
        if not 0 <= self.time_cost < 1:
            raise ValueError(f"time_cost is {self.time_cost}, allowed: from 0 to below 1")
        if self.num_epochs < 1 or self.minibatch_size < 1:
            raise ValueError(
                f"num_epochs is {self.num_epochs} and minibatch_size {self.minibatch_size}, "
                "allowed: 1 or more"
            )


@configclass(builds="rrf.algorithms.vla.grpo:GRPO")
class GRPOCfg(PolicyGradientCfg):
    """Group-relative policy optimisation (arXiv:2402.03300): no critic, a group is the baseline."""

    group_size: int = 8
    """Episodes from one initial state that are compared with one another."""
    weighting: typing.Literal["trajectory", "token"] = "trajectory"
    """Whether episodes weigh alike, or rows do, so that long episodes weigh more."""
    uses_std: bool = True
    """Divide by the group's standard deviation; false is Dr. GRPO (arXiv:2503.20783)."""

    def __post_init__(self):
        super().__post_init__()
        if self.group_size < 2:
            raise ValueError(
                f"group_size is {self.group_size}: one episode has nothing to be compared with; "
                "allowed: 2 or more, e.g. 8"
            )


@configclass(builds="rrf.algorithms.vla.ppo:VLAPPO")
class VLAPPOCfg(PolicyGradientCfg):
    """PPO (arXiv:1707.06347) over action chunks with a value head on the policy's features."""

    clip_high: float = 0.2
    """A ratio above 1 + clip_high earns nothing more."""
    gamma: float = 0.97
    """Discount per decision (level chunk) or per action (level action)."""
    lam: float = 0.9
    """Mixes one-step and whole-episode advantages (arXiv:1506.02438)."""
    reward_level: typing.Literal["chunk", "action"] = "chunk"
    """Whether time passes per chunk or per action."""
    value_coef: float = 1.0
    """Weight of the value loss."""
    value_clip: float | None = 0.2
    """How far a value may move from what it was when the batch was played; null: anywhere."""
    huber_delta: float = 10.0
    """Error of a value where its loss turns linear."""
    critic_warmup_rounds: int = 2
    """Rounds in which only the critic learns."""

    def __post_init__(self):
        super().__post_init__()
        if not (0 <= self.gamma <= 1 and 0 <= self.lam <= 1):
            raise ValueError(f"gamma is {self.gamma} and lam {self.lam}, allowed: from 0 to 1")
        if self.value_coef <= 0 or self.huber_delta <= 0 or (self.value_clip or 1) <= 0:
            raise ValueError(
                f"value_coef is {self.value_coef}, huber_delta {self.huber_delta} and value_clip "
                f"{self.value_clip}, allowed: above 0"
            )
        if self.critic_warmup_rounds < 0:
            raise ValueError(
                f"critic_warmup_rounds is {self.critic_warmup_rounds}, allowed: 0 or more"
            )
