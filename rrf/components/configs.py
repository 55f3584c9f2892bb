"""What policies and action heads look like, as data. This file imports no torch."""

import typing

from rrf.config import Cfg, configclass
from rrf.networks.configs import ImageEncoderCfg, InstructionEncoderCfg, MLPCfg


@configclass
class ActionHeadCfg(Cfg):
    """The last layer of a policy: what it predicts about an action chunk, and how it is trained."""


@configclass(builds="rrf.components.action_heads:RegressionHead")
class RegressionHeadCfg(ActionHeadCfg):
    """Predicts the chunk itself; it has no density, so it cannot be trained by policy gradients."""

    huber_beta: float = 0.1
    """Error, in normalised action units, where the loss turns from quadratic to linear."""

    def __post_init__(self):
        if self.huber_beta <= 0:
            raise ValueError(f"huber_beta is {self.huber_beta}, allowed: above 0")


@configclass(builds="rrf.components.action_heads:DiscreteTokenHead")
class DiscreteTokenHeadCfg(ActionHeadCfg):
    """Predicts one token per step and dimension, all at once (arXiv:2502.19645)."""

    num_bins: int = 32
    """Number of tokens; their values are spread evenly over [-1, 1] in normalised action units."""
    temperature: float = 1.0
    """Divides the logits before sampling, and likewise in every log-probability."""
    label_sigma_bins: float = 1.0
    """Width in bins of the soft label around the demonstrated value; 0 takes the nearest bin."""
    label_smoothing: float = 0.02
    """Share of the label spread evenly over all bins."""

    def __post_init__(self):
        if not 2 <= self.num_bins <= 256:
            raise ValueError(f"num_bins is {self.num_bins}, allowed: 2 to 256")
        if self.temperature <= 0:
            raise ValueError(
                f"temperature is {self.temperature}, allowed: above 0 (sample greedily instead)"
            )
        if self.label_sigma_bins < 0 or not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"label_sigma_bins is {self.label_sigma_bins} and label_smoothing "
                f"{self.label_smoothing}, allowed: 0 or more, and from 0 to below 1"
            )


@configclass
class PolicyCfg(Cfg):
    """What every policy says of its inputs and outputs; data and environment must agree with it."""

    cameras: list[str] = ["corner2"]
    """Camera names, in the order the policy reads them."""
    image_size: tuple[int, int] = (64, 64)
    """Height and width of each image in pixels."""
    state_dim: int = 4
    """Dimensions of the proprioceptive state."""
    action_dim: int = 4
    """Dimensions of one action."""
    chunk_length: int = 2
    """Actions predicted, and executed, per observation."""

    def __post_init__(self):
        for name in ("state_dim", "action_dim", "chunk_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
        if not self.cameras:
            raise ValueError("cameras is empty; name at least one")


@configclass(builds="rrf.components.compact_vla:CompactVLA")
class CompactVLACfg(PolicyCfg):
    """A vision-language-action policy of 1.4 million parameters, for 64 px images on a CPU."""

    image_encoder: ImageEncoderCfg = ImageEncoderCfg()
    """One encoder for all cameras."""
    instruction_encoder: InstructionEncoderCfg = InstructionEncoderCfg()
    """Its vocabulary is part of the policy: the same words must mean the same vectors later."""
    state_features: int = 64
    """Width of the layer that reads the proprioceptive state."""
    trunk: MLPCfg = MLPCfg(
        hidden_features=[256], activations=[[("ReLU", {})], [("LayerNorm", {}), ("ReLU", {})]]
    )
    """Joins image, state and instruction."""
    features: int = 256
    """Width of the joined feature vector, which the head reads."""
    head: ActionHeadCfg = RegressionHeadCfg()
    """What is predicted."""
    state_normalization: typing.Literal["mean_std", "min_max", "quantile"] = "mean_std"
    """Which of the dataset's statistics bring the state to unit scale."""
    action_normalization: typing.Literal["mean_std", "min_max", "quantile"] = "min_max"
    """Which of the dataset's statistics bring the action to [-1, 1], the range of tokens."""
