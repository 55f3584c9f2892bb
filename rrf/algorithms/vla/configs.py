"""Configs of the algorithms for policies that see images. This file does not import torch."""

import typing

from rrf.config import Cfg, configclass, require_not_negative, require_positive

SUCCESS, ENV = "success", "env"  # rewards that need no function


def require_reward(reward: str) -> None:
    """Raise ValueError for what cannot be rewarded."""
    if reward not in (SUCCESS, ENV) and ":" not in reward:
        raise ValueError(
            f"reward is '{reward}', allowed: {SUCCESS}, {ENV}, or a function of yours as "
            "module:function"
        )


@configclass
class AugmentationCfg(Cfg):
    """Augmentation of training batches. Validation batches are never augmented."""

    shift_px: int = 3
    """Images are shifted by up to this many pixels in each direction (arXiv:2107.09645)."""
    state_noise: float = 0.02
    """Standard deviation of the noise on the state, in standard deviations of the dataset."""
    color: float = 0.0
    """Each of the three colours of an image is multiplied by 1 - color to 1 + color, and up to half
    of this share of its range is added or taken away. 0 changes none."""

    def __post_init__(self):
        if self.shift_px < 0 or self.state_noise < 0:
            raise ValueError(
                f"shift_px is {self.shift_px} and state_noise {self.state_noise}, "
                "allowed: 0 or more"
            )
        if not 0 <= self.color <= 1:
            raise ValueError(f"color is {self.color}, allowed: 0 to 1")


@configclass(builds="rrf.algorithms.vla.behavior_cloning:BehaviorCloning")
class BehaviorCloningCfg(Cfg):
    """Supervised imitation of demonstrated action chunks."""

    augmentation: AugmentationCfg | None = AugmentationCfg()
    """Augmentation of training batches; null trains on the unchanged recorded frames."""
    kl_coef: float = 0.0
    """Weight of the KL divergence from the policy that training started from, which keeps a
    fine-tuned policy close to it. 0 for none. With adapters, that policy is the base without
    them."""

    def __post_init__(self):
        require_not_negative(self, "kl_coef")


@configclass
class DecoupledCfg(Cfg):
    """Two ratios instead of one, for episodes that other weights played (arXiv:2505.24298): clipped
    is the ratio to the weights at the begin of the update, and the loss is weighted by how much
    likelier those would have acted so."""

    proximal: typing.Literal["recomputed", "interpolated"] = "recomputed"
    """Where the log-probabilities at the begin of the update come from: one more forward pass, or
    between those of the policy that acted and of the policy being trained, by their versions."""
    max_weight: float | None = 2.0
    """Elements that would have been likelier by a larger factor are left out; null for none."""

    def __post_init__(self):
        if self.max_weight is not None and self.max_weight <= 1:
            raise ValueError(f"max_weight is {self.max_weight}, allowed: above 1, or null for none")


@configclass
class PolicyGradientCfg(Cfg):
    """The settings that GRPO and PPO share: the clipped surrogate and the passes over a batch."""

    group_size: int = 1
    """Episodes played from one initial state."""
    log_prob_level: typing.Literal["token", "action", "chunk"] = "token"
    """Level of the probability ratios: one ratio per element of an action (token), per action, or
    per action chunk."""
    clip_low: float = 0.2
    """Lower clip range: a ratio is clipped below 1 - clip_low."""
    clip_high: float = 0.28
    """Upper clip range: a ratio is clipped above 1 + clip_high."""
    dual_clip: float | None = None
    """With a negative advantage A, the loss is at most dual_clip * |A| (arXiv:1912.09729); null for
    no such bound."""
    min_log_ratio: float | None = None
    """Lower bound of the log-ratio, which is clamped before the ratio is clipped: what became much
    less likely has no gradient, not even with a positive advantage; null for no such bound."""
    max_log_ratio: float | None = None
    """Upper bound of the log-ratio: what became much more likely has no gradient, not even with a
    negative advantage; null for no such bound."""
    decoupled: DecoupledCfg | None = None
    """For episodes played by older weights, or computed in bfloat16; null: the policy that acted is
    the one at the begin of the update."""
    kl_coef: float = 0.0
    """Weight of the KL penalty that keeps the policy close to the one that training started
    from."""
    kl_kind: typing.Literal["k1", "k2", "k3", "abs"] = "k3"
    """Estimator of the KL penalty. k3 has a useful gradient; the gradient of k1 is 0 on average."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""
    reward: str = SUCCESS
    """What is rewarded. success: 1 when the task is solved, less `time_cost`. env: what the
    environment gives for each action. module:function: a function of yours, which is given a
    `rrf.storage.trajectories.PlayedEpisode` and returns a reward for each executed action."""
    reward_scale: float = 1.0
    """Factor on all rewards. Advantages are normalised, so that it matters for the critic only."""
    relative_reward: bool = False
    """Reward the change from action to action: for rewards that say how far the task has come."""
    time_cost: float = 0.3
    """With reward=success: what a success loses if it takes the whole horizon; a faster one loses
    proportionally less. An instant success earns 1."""
    num_epochs: int = 2
    """Passes over the rows of a round."""
    minibatch_size: int = 128
    """Rows per optimizer step."""

    @property
    def bootstraps_success(self) -> bool:
        """Whether a critic is asked what follows a success."""
        return False

    def __post_init__(self):
        if not (0 < self.clip_low < 1 and self.clip_high > 0):
            raise ValueError(
                f"clip_low is {self.clip_low} and clip_high is {self.clip_high}, allowed: clip_low "
                "between 0 and 1, and clip_high above 0"
            )
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise ValueError(f"dual_clip is {self.dual_clip}, allowed: above 1, or null for none")
        is_below = self.min_log_ratio is None or self.min_log_ratio < 0
        is_above = self.max_log_ratio is None or self.max_log_ratio > 0
        if not (is_below and is_above):
            raise ValueError(
                f"min_log_ratio is {self.min_log_ratio} and max_log_ratio {self.max_log_ratio}, "
                "allowed: min_log_ratio below 0 and max_log_ratio above 0, or null for none"
            )
        has_range = self.min_log_ratio is not None or self.max_log_ratio is not None
        if has_range and self.decoupled is not None:
            raise ValueError(
                f"min_log_ratio is {self.min_log_ratio} and max_log_ratio {self.max_log_ratio}, "
                "but decoupled limits its weights itself; set decoupled.max_weight, or "
                "decoupled=null"
            )
        if self.kl_coef < 0 or self.entropy_coef < 0:
            raise ValueError(
                f"kl_coef is {self.kl_coef} and entropy_coef {self.entropy_coef}, allowed: 0 or "
                "more"
            )
        require_reward(self.reward)
        require_positive(self, "reward_scale")
        if self.relative_reward and self.reward == SUCCESS:
            raise ValueError(
                "relative_reward is true, but reward=success is given only once in an episode; set "
                "reward=env or relative_reward=false"
            )
        if not 0 <= self.time_cost < 1:
            raise ValueError(f"time_cost is {self.time_cost}, allowed: from 0 to below 1")
        if self.num_epochs < 1 or self.minibatch_size < 1:
            raise ValueError(
                f"num_epochs is {self.num_epochs} and minibatch_size {self.minibatch_size}, "
                "allowed: 1 or more"
            )


@configclass
class OutcomeCfg(PolicyGradientCfg):
    """The settings of algorithms without a critic, which compare the scores of whole episodes."""

    group_size: int = 8
    """Episodes from one initial state that are compared with one another."""
    weighting: typing.Literal["trajectory", "token"] = "trajectory"
    """trajectory: every episode has the same weight. token: every row (action chunk) has the same
    weight, so that longer episodes have more (DAPO, arXiv:2503.14476)."""
    overlong_share: float = 0.0
    """Soft punishment of long episodes (DAPO, eq. 13): within this last share of the horizon, the
    score falls in proportion, by 1 in all. 0 for none."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.overlong_share <= 1:
            raise ValueError(f"overlong_share is {self.overlong_share}, allowed: 0 to 1")


@configclass(builds="rrf.algorithms.vla.grpo:GRPO")
class GRPOCfg(OutcomeCfg):
    """Group-relative policy optimisation (arXiv:2402.03300): the mean score of a group of episodes
    is the baseline; there is no critic."""

    uses_std: bool = True
    """Divide advantages by the group's standard deviation; false is Dr. GRPO (arXiv:2503.20783)."""

    def __post_init__(self):
        super().__post_init__()
        _check_compared(self.group_size)


@configclass(builds="rrf.algorithms.vla.grpo:Reinforce")
class ReinforceCfg(OutcomeCfg):
    """REINFORCE with a baseline from other episodes: leave-one-out (RLOO, arXiv:2402.14740) by
    default; with baseline=batch and normalizes=true it is REINFORCE++ (arXiv:2501.03262)."""

    baseline: typing.Literal["leave_one_out", "group", "batch"] = "leave_one_out"
    """What is subtracted from an episode's score: the mean score of the other episodes of its
    group, of its whole group, or of all episodes of the round."""
    normalizes: bool = False
    """Divide advantages by their standard deviation over all episodes of the round."""

    def __post_init__(self):
        super().__post_init__()
        if self.baseline != "batch":
            _check_compared(self.group_size)


def _check_compared(group_size: int) -> None:
    if group_size < 2:
        raise ValueError(
            f"group_size is {group_size}, but an episode needs at least one other to be compared "
            "with; allowed: 2 or more, e.g. 8"
        )


@configclass(builds="rrf.algorithms.vla.ppo:VLAPPO")
class VLAPPOCfg(PolicyGradientCfg):
    """PPO (arXiv:1707.06347) over action chunks with a value head on the policy's features."""

    clip_high: float = 0.2
    """Upper clip range: a ratio is clipped above 1 + clip_high."""
    gamma: float = 0.97
    """Discount factor per chunk (reward_level=chunk) or per action (reward_level=action)."""
    lam: float = 0.9
    """Lambda of generalised advantage estimation (arXiv:1506.02438): 0 uses one-step advantages, 1
    those of whole episodes."""
    reward_level: typing.Literal["chunk", "action"] = "chunk"
    """Length of a time step for rewards, values and advantages: an action chunk or an action."""
    bootstrap: typing.Literal["truncated", "always"] = "truncated"
    """Where the value of an episode's last observation is added to its last reward: where the
    horizon ended it, or always, also after a success, as if the task went on."""
    value_coef: float = 1.0
    """Weight of the value loss."""
    value_clip: float | None = 0.2
    """Clip range of a value around its value when the episode was played; null for no clipping."""
    huber_delta: float = 10.0
    """Value error above which the value loss is linear instead of quadratic (Huber loss)."""
    weighting: typing.Literal["trajectory", "token"] = "token"
    """token: every row (action chunk) has the same weight, so that longer episodes have more.
    trajectory: every episode has the same weight, in the value loss too."""
    critic_warmup_rounds: int = 2
    """Number of first rounds in which only the critic learns."""

    @property
    def bootstraps_success(self) -> bool:
        return self.bootstrap == "always"

    def __post_init__(self):
        super().__post_init__()
        if self.bootstrap == "always" and self.reward == SUCCESS:
            raise ValueError(
                "bootstrap is always, but reward=success ends with success, after which there is "
                "nothing to gain; set reward=env or bootstrap=truncated"
            )
        if not (0 <= self.gamma <= 1 and 0 <= self.lam <= 1):
            raise ValueError(f"gamma is {self.gamma} and lam {self.lam}, allowed: from 0 to 1")
        require_positive(self, "value_coef", "huber_delta", "value_clip")
        require_not_negative(self, "critic_warmup_rounds")
