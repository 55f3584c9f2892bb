"""Configs of PPO and its variants. This file does not import torch."""

import typing

from rrf.config import (
    Cfg,
    configclass,
    require_at_least_one,
    require_not_negative,
    require_positive,
)
from rrf.networks.configs import MLPCfg, plain_mlp


@configclass(builds="rrf.algorithms.on_policy.rnd:RND")
class RNDCfg(Cfg):
    """Random network distillation (arXiv:1810.12894): an extra reward for states that are new."""

    weight: float = 0.5
    """Weight of the intrinsic reward. Before it is weighted, the intrinsic reward is scaled such
    that its discounted sum has a standard deviation of 1."""
    final_weight: float | None = None
    """The weight changes linearly to this value; null keeps it constant."""
    num_weight_iterations: int = 100
    """Iterations until the weight reaches final_weight."""
    observation_groups: list[str] | None = None
    """Observation groups whose novelty is rewarded, concatenated in this order; null uses the
    groups that the actor reads."""
    num_features: int = 32
    """Outputs of the random network; the predictor learns to predict them."""
    network_cfg: MLPCfg = plain_mlp([64, 64], "ELU")
    """Architecture of the random network and of the predictor."""
    learning_rate: float = 1e-3
    """Learning rate of the predictor."""
    num_mini_batches: int = 4
    """Gradient steps of the predictor per rollout. The rollout's states are divided among them."""

    def __post_init__(self):
        require_not_negative(self, "weight")
        require_at_least_one(self, "num_features", "num_mini_batches", "num_weight_iterations")


@configclass(builds="rrf.algorithms.on_policy.symmetry:Symmetry")
class SymmetryCfg(Cfg):
    """Use of a robot's left-right symmetry (arXiv:2403.04359): mirrored samples, a mirror loss."""

    mirrors: str = "rrf.algorithms.mirrors:left_right"
    """A function, written "module:attr". It takes the environment's Interface and returns a
    mapping: from each observation group, and from "actions", to a function that mirrors a tensor
    [..., D]. The default fits mjlab's velocity tasks. A function of your own also needs
    `--import module`."""
    use_data_augmentation: bool = True
    """Learn from every sample and from its mirror image."""
    mirror_loss_coef: float = 0.0
    """Weight of the mirror loss: the squared difference between the mean action in a mirrored state
    and the mirrored mean action, averaged over the action dimensions."""

    def __post_init__(self):
        require_not_negative(self, "mirror_loss_coef")
        if ":" not in self.mirrors:
            raise ValueError(
                f"mirrors is '{self.mirrors}', expected module:attr, e.g. my_robot.mirrors:sagittal"
            )
        if not self.use_data_augmentation and self.mirror_loss_coef == 0:
            raise ValueError(
                "use_data_augmentation is false and mirror_loss_coef is 0, so symmetry has no "
                "effect; set symmetry_cfg=null instead"
            )


@configclass(builds="rrf.algorithms.on_policy.ppo:PPO")
class PPOCfg(Cfg):
    """Proximal policy optimisation (arXiv:1707.06347), with rsl_rl's adaptive learning rate."""

    clip_param: float = 0.2
    """Clip range of the probability ratio (new to old): 1 - clip_param to 1 + clip_param."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus."""
    value_loss_coef: float = 1.0
    """Weight of the value loss."""
    use_clipped_value_loss: bool = True
    """Clip the value loss: a value that moves by more than clip_param gains nothing further."""
    num_learning_epochs: int = 5
    """Passes over a rollout. Each pass shuffles the samples anew."""
    num_mini_batches: int = 4
    """Mini-batches per pass."""
    learning_rate: float = 1e-3
    """Learning rate of Adam. With schedule=adaptive it is the initial one."""
    schedule: typing.Literal["adaptive", "fixed", "linear"] = "adaptive"
    """adaptive: divide the learning rate by 1.5 where the KL divergence is above twice desired_kl,
    and multiply it by 1.5 where the divergence is below half of desired_kl. linear: decrease it to
    0 over the run. fixed: keep it."""
    desired_kl: float = 0.01
    """KL divergence that the adaptive learning rate aims at."""
    min_learning_rate: float = 1e-5
    """Lower bound of the adaptive learning rate."""
    max_learning_rate: float = 1e-2
    """Upper bound of the adaptive learning rate."""
    gamma: float = 0.99
    """Discount factor per step."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation (arXiv:1506.02438): 0 uses one-step advantages, 1
    those of whole episodes."""
    max_grad_norm: float = 1.0
    """The gradient of the actor is scaled down to this norm where it is longer; so is that of the
    critic."""
    normalize_advantage_per_mini_batch: bool = False
    """Normalise advantages to zero mean and unit variance in each mini-batch instead of over the
    rollout."""
    normalize_rewards: bool = False
    """Divide rewards, including intrinsic ones, by the running standard deviation of the discounted
    return."""
    adam_eps: float = 1e-8
    """Added to the square root of Adam's second moment."""
    precision: typing.Literal["fp32", "bf16", "auto"] = "fp32"
    """Precision of the update's forward and backward pass. auto: bf16 where the processor
    multiplies it faster, that is with AMX, or with AVX512-BF16 on AMD."""
    learner_threads: typing.Literal[1, 2] = 2
    """With 2, actor and critic learn in parallel, or in compiled code the two halves of a large
    mini-batch. The result is bit for bit the same."""
    rnd_cfg: RNDCfg | None = None
    """Extra reward for states that are new (random network distillation); null for none."""
    symmetry_cfg: SymmetryCfg | None = None
    """Use of the robot's left-right symmetry; null for none."""

    def __post_init__(self):
        if not (0 <= self.gamma <= 1 and 0 <= self.lam <= 1):
            raise ValueError(f"gamma is {self.gamma} and lam {self.lam}, allowed: from 0 to 1")
        require_positive(self, "clip_param", "learning_rate", "max_grad_norm", "desired_kl")
        require_at_least_one(self, "num_learning_epochs", "num_mini_batches")
        if not 0 < self.min_learning_rate <= self.max_learning_rate:
            raise ValueError(
                f"min_learning_rate is {self.min_learning_rate} and max_learning_rate is "
                f"{self.max_learning_rate}, allowed: above 0, and min_learning_rate not above "
                "max_learning_rate"
            )
        low, high = self.min_learning_rate, self.max_learning_rate
        if self.schedule == "adaptive" and not low <= self.learning_rate <= high:
            raise ValueError(
                f"learning_rate is {self.learning_rate}, allowed with an adaptive schedule: from "
                f"min_learning_rate={low} to max_learning_rate={high}"
            )
        if self.entropy_coef < 0 or self.value_loss_coef < 0:
            raise ValueError(
                f"entropy_coef is {self.entropy_coef} and value_loss_coef {self.value_loss_coef}, "
                "allowed: 0 or more"
            )


@configclass(builds="rrf.algorithms.on_policy.sapg:SAPG")
class SAPGCfg(PPOCfg):
    """Split and aggregate policy gradients (arXiv:2407.20230).

    Every member of a population acts in its own block of environments. The first member, the
    leader, learns from its own block and also from the samples of the others, the followers. With
    one member, SAPG is PPO.
    """

    off_policy_ratio: float = 1.0
    """Number of followers' samples that the leader learns from, per sample of its own."""
    off_policy_coef: float = 1.0
    """Weight of the policy loss and the value loss of these samples."""
    max_importance: float = 2.0
    """Upper bound of a follower's sample's importance weight, that is of the ratio of the leader's
    to the follower's probability of the action."""
    follower_entropy_coef: float = 0.005
    """Weight of an entropy bonus in addition to entropy_coef. The last follower gets all of it; it
    decreases linearly with the member's number, to 0 for the leader."""

    def __post_init__(self):
        super().__post_init__()
        names = ("off_policy_ratio", "off_policy_coef", "follower_entropy_coef")
        require_not_negative(self, *names)
        require_positive(self, "max_importance")


@configclass(builds="rrf.algorithms.on_policy.epo:EPO")
class EPOCfg(SAPGCfg):
    """Evolutionary policy optimisation (arXiv:2503.19037): SAPG that selects and breeds followers
    by their returns."""

    evolution_interval: int = 10
    """Iterations between generations."""
    elite_fraction: float = 0.5
    """Fraction of the followers that survive unchanged. They are the parents of those that replace
    the others."""
    mutation_std: float = 0.2
    """Standard deviation of the noise that is added to a child's latent."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "mutation_std")
        require_at_least_one(self, "evolution_interval")
        if not 0 < self.elite_fraction < 1:
            raise ValueError(
                f"elite_fraction is {self.elite_fraction}, allowed: above 0 and below 1"
            )
