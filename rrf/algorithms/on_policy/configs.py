"""What PPO and its variants are told, as data. This file imports no torch."""

import typing

from rrf.config import Cfg, configclass
from rrf.networks.configs import MLPCfg, plain_mlp


def require_not_negative(cfg: Cfg, *names: str) -> None:
    for name in names:
        if getattr(cfg, name) < 0:
            raise ValueError(f"{name} is {getattr(cfg, name)}, allowed: 0 or more")


@configclass(builds="rrf.algorithms.on_policy.rnd:RND")
class RNDCfg(Cfg):
    """Random network distillation (arXiv:1810.12894): reward for states that are new."""

    weight: float = 0.5
    """What the intrinsic reward, whose discounted sum has a standard deviation of 1, is multiplied
    by."""
    final_weight: float | None = None
    """The weight moves in a straight line to this; null keeps it."""
    num_weight_iterations: int = 100
    """Iterations until final_weight is reached."""
    observation_groups: list[str] | None = None
    """Groups whose novelty counts, joined in this order; null takes those the actor reads."""
    num_features: int = 32
    """Outputs of the random network that are predicted."""
    network_cfg: MLPCfg = plain_mlp([64, 64], "ELU")
    """Both the random network and its predictor."""
    learning_rate: float = 1e-3
    """Of the predictor."""
    num_mini_batches: int = 4
    """Steps of the predictor per rollout, which share its states among them."""

    def __post_init__(self):
        require_not_negative(self, "weight")
        for name in ("num_features", "num_mini_batches", "num_weight_iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")


@configclass(builds="rrf.algorithms.on_policy.symmetry:Symmetry")
class SymmetryCfg(Cfg):
    """What is right on the left is right on the right, mirrored (arXiv:2403.04359)."""

    mirrors: str = "rrf.algorithms.mirrors:left_right"
    """A function as "module:attr". Given the environment's Interface, it returns a mapping from
    each observation group, and from "actions", to a function that mirrors such a tensor [..., D].
    The default fits mjlab's velocity tasks."""
    use_data_augmentation: bool = True
    """Learn from every sample and from its mirror image."""
    mirror_loss_coef: float = 0.0
    """Weight of the squared difference, the mean over the action's dimensions, between the mean
    action in a mirrored state and the mirrored mean action."""

    def __post_init__(self):
        require_not_negative(self, "mirror_loss_coef")
        if ":" not in self.mirrors:
            raise ValueError(
                f"mirrors is '{self.mirrors}', expected module:attr, e.g. my_robot.mirrors:sagittal"
            )
        if not self.use_data_augmentation and self.mirror_loss_coef == 0:
            raise ValueError(
                "use_data_augmentation is false and mirror_loss_coef 0: nothing is left to do; set "
                "symmetry_cfg=null instead"
            )


@configclass(builds="rrf.algorithms.on_policy.ppo:PPO")
class PPOCfg(Cfg):
    """Proximal policy optimisation (arXiv:1707.06347), with rsl_rl's adaptive learning rate."""

    clip_param: float = 0.2
    """How far the ratio of new to old probability may earn: from 1 - this to 1 + this."""
    entropy_coef: float = 0.01
    """Reward for randomness."""
    value_loss_coef: float = 1.0
    """Weight of the value loss."""
    use_clipped_value_loss: bool = True
    """Values may move by clip_param at most before their loss stops falling."""
    num_learning_epochs: int = 5
    """Passes over a rollout, each in an order of its own."""
    num_mini_batches: int = 4
    """Parts that a pass is divided into."""
    learning_rate: float = 1e-3
    """Of Adam; where the schedule is adaptive, where it begins."""
    schedule: typing.Literal["adaptive", "fixed", "linear"] = "adaptive"
    """adaptive: divided by 1.5 where the KL divergence exceeds twice desired_kl, multiplied where
    it is below half of it; linear: down to 0 over the run."""
    desired_kl: float = 0.01
    """KL divergence that an adaptive learning rate aims at."""
    min_learning_rate: float = 1e-5
    """An adaptive learning rate stays at or above this."""
    max_learning_rate: float = 1e-2
    """An adaptive learning rate stays at or below this."""
    gamma: float = 0.99
    """Discount per step."""
    lam: float = 0.95
    """Mixes one-step and whole-episode advantages (arXiv:1506.02438)."""
    max_grad_norm: float = 1.0
    """Gradients of the actor, and of the critic, longer than this are scaled down to it."""
    normalize_advantage_per_mini_batch: bool = False
    """Bring advantages to zero mean and unit variance per mini-batch, not over the rollout."""
    normalize_rewards: bool = False
    """Divide rewards, intrinsic ones included, by the running standard deviation of the discounted
    return."""
    adam_eps: float = 1e-8
    """Added to the root of Adam's second moment."""
    precision: typing.Literal["fp32", "bf16", "auto"] = "fp32"
    """Arithmetic of the update's forward and backward pass; auto: bf16 where the processor
    multiplies it faster: with AMX, or with AVX512-BF16 by AMD."""
    learner_threads: typing.Literal[1, 2] = 2
    """With 2, actor and critic learn at the same time; the result is the same to the last bit."""
    rnd_cfg: RNDCfg | None = None
    """Reward for states that are new; null for none."""
    symmetry_cfg: SymmetryCfg | None = None
    """Use of the robot's symmetry; null for none."""

    def __post_init__(self):
        if not (0 <= self.gamma <= 1 and 0 <= self.lam <= 1):
            raise ValueError(f"gamma is {self.gamma} and lam {self.lam}, allowed: from 0 to 1")
        for name in ("clip_param", "learning_rate", "max_grad_norm", "desired_kl"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: above 0")
        for name in ("num_learning_epochs", "num_mini_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
        if not 0 < self.min_learning_rate <= self.max_learning_rate:
            raise ValueError(
                f"min_learning_rate is {self.min_learning_rate} and max_learning_rate "
                f"{self.max_learning_rate}, allowed: above 0 and in this order"
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

    Every member of a population acts in a block of the environments; the first, the leader, learns
    from its own block and from what others did. With one member it is PPO.
    """

    off_policy_ratio: float = 1.0
    """Samples of followers that the leader learns from, per sample of its own."""
    off_policy_coef: float = 1.0
    """Weight of their losses, the policy's and the critic's."""
    max_importance: float = 2.0
    """A sample that the leader would have chosen this many times as often as its follower, or more
    often still, counts so many times."""
    follower_entropy_coef: float = 0.005
    """Reward for randomness besides entropy_coef: that of the last follower, falling in a straight
    line to 0 for the leader."""

    def __post_init__(self):
        super().__post_init__()
        names = ("off_policy_ratio", "off_policy_coef", "follower_entropy_coef")
        require_not_negative(self, *names)
        if self.max_importance <= 0:
            raise ValueError(f"max_importance is {self.max_importance}, allowed: above 0")


@configclass(builds="rrf.algorithms.on_policy.epo:EPO")
class EPOCfg(SAPGCfg):
    """Evolutionary policy optimisation (arXiv:2503.19037): followers are bred by their returns."""

    evolution_interval: int = 10
    """Iterations between generations."""
    elite_fraction: float = 0.5
    """Share of the followers that live on unchanged and are parents of the others."""
    mutation_std: float = 0.2
    """Standard deviation of the noise on a child's latent."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "mutation_std")
        if self.evolution_interval < 1:
            raise ValueError(f"evolution_interval is {self.evolution_interval}, allowed: 1 or more")
        if not 0 < self.elite_fraction < 1:
            raise ValueError(
                f"elite_fraction is {self.elite_fraction}, allowed: above 0 and below 1"
            )
