"""Configs of networks. This file does not import torch, so that `rrf show` stays fast."""

import typing

from rrf.config import Cfg, configclass, did_you_mean

LAYERS_AFTER_LINEAR = (
    *("CELU", "Dropout", "ELU", "GELU", "LayerNorm", "LeakyReLU", "Mish"),
    *("ReLU", "SELU", "SiLU", "Sigmoid", "SimNorm", "Softplus", "Tanh"),
)


@configclass(builds="rrf.networks.mlp:MLP")
class MLPCfg(Cfg):
    """A stack of linear layers: one per entry of `hidden_features`, then the output layer."""

    hidden_features: list[int] = [256, 256]
    """Width of each hidden layer."""
    activations: list[list[tuple[str, dict[str, typing.Any]]]] = [[("ELU", {})], [("ELU", {})], []]
    """For each linear layer, including the output layer, the torch.nn layers (or SimNorm) that
    follow it, as (name, arguments)."""

    def __post_init__(self):
        if min(self.hidden_features, default=1) < 1:
            raise ValueError(
                f"hidden_features is {self.hidden_features}, allowed: widths of 1 or more"
            )
        expected = len(self.hidden_features) + 1
        if len(self.activations) != expected:
            raise ValueError(
                f"activations has {len(self.activations)} entries, expected {expected}: one for "
                f"each of the {len(self.hidden_features)} hidden layers and one for the output"
            )
        for name in (name for after in self.activations for name, _ in after):
            if name not in LAYERS_AFTER_LINEAR:
                raise ValueError(
                    f"activations: there is no layer '{name}'"
                    f"{did_you_mean(name, LAYERS_AFTER_LINEAR)}"
                )


def without_dropout(cfg: MLPCfg) -> MLPCfg:
    """`cfg` itself, checked for use in reinforcement learning.

    Raises:
        ValueError: If it has dropout. Dropout uses torch's global random generator, so a resumed
            run would differ, and the network that learns would not be the one that acted.
    """
    if "Dropout" in (name for after in cfg.activations for name, _ in after):
        raise ValueError(
            "activations: 'Dropout' is random, but reinforcement learning must reproduce its own "
            "outputs; use LayerNorm instead"
        )
    return cfg


def plain_mlp(hidden_features: list[int], activation: str) -> MLPCfg:
    """An MLP with the same activation after each hidden layer, and none after the output layer."""
    hidden = [[(activation, {})] for _ in hidden_features]
    return MLPCfg(hidden_features=list(hidden_features), activations=[*hidden, []])


def is_plain(cfg: MLPCfg, activation: str) -> bool:
    """Whether `plain_mlp` would make this network."""
    return cfg.activations == plain_mlp(cfg.hidden_features, activation).activations


def normed_mlp(hidden_features: list[int], activation: str = "Mish") -> MLPCfg:
    """An MLP with layer normalisation and an activation after each hidden layer."""
    hidden = [[("LayerNorm", {}), (activation, {})] for _ in hidden_features]
    return MLPCfg(hidden_features=list(hidden_features), activations=[*hidden, []])


@configclass(builds="rrf.networks.encoders:ImageEncoder")
class ImageEncoderCfg(Cfg):
    """A small convolutional network that the instruction modulates (FiLM, arXiv:1709.07871)."""

    channels: list[int] = [24, 48, 64, 64]
    """Output channels of each convolution."""
    kernel_sizes: list[int] = [5, 3, 3, 3]
    """Kernel size of each convolution; must be odd."""
    strides: list[int] = [2, 2, 2, 1]
    """Stride of each convolution."""
    num_film_layers: int = 2
    """Number of convolutions, counted from the last, that the instruction scales and shifts."""
    out_features: int = 256
    """Width of an image's feature vector."""

    def __post_init__(self):
        if not len(self.channels) == len(self.kernel_sizes) == len(self.strides) > 0:
            raise ValueError(
                f"channels, kernel_sizes and strides have {len(self.channels)}, "
                f"{len(self.kernel_sizes)} and {len(self.strides)} entries; each needs one per "
                "convolution"
            )
        if not 0 <= self.num_film_layers <= len(self.channels):
            raise ValueError(
                f"num_film_layers is {self.num_film_layers}, allowed: 0 to {len(self.channels)}"
            )
        if even := [size for size in self.kernel_sizes if size % 2 == 0]:
            raise ValueError(f"kernel_sizes holds {even[0]}, allowed: odd numbers")


@configclass(builds="rrf.networks.encoders:InstructionEncoder")
class InstructionEncoderCfg(Cfg):
    """The mean of learned word vectors, one per word of a fixed vocabulary."""

    vocabulary: list[str] = []
    """Known words in lower case. All other words share one vector."""
    out_features: int = 64
    """Width of a word vector and of the output."""

    def __post_init__(self):
        if len(set(self.vocabulary)) != len(self.vocabulary):
            doubled = next(word for word in self.vocabulary if self.vocabulary.count(word) > 1)
            raise ValueError(f"vocabulary holds '{doubled}' more than once")
