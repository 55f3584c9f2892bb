"""The configs of OpenVLA-OFT's heads (arXiv:2502.19645). No torch here."""

import typing

from rrf.config import configclass
from rrf.networks.vlm.configs import Ability
from rrf.policies.vla.configs import ActionHeadCfg, GaussianDensityCfg
from rrf.policies.vla.heads.action_tokens_configs import ActionTokenHeadCfg


@configclass(builds="rrf.policies.vla.heads.oft:OFTRegressionHead")
class OFTRegressionHeadCfg(GaussianDensityCfg):
    """Predicts a chunk from one slot per step and dimension, with an L1 loss. Policy gradients use
    a normal distribution around the prediction."""

    reads: typing.ClassVar[Ability] = "slots"

    hidden_features: int = 4096
    """Width of the residual MLP."""
    num_blocks: int = 2
    """Residual blocks of the MLP."""
    uses_state: bool = True
    """Whether the state stands as one token after the images."""
    clips_state: bool = True
    """Whether the normalised state is clipped to [-1, 1]; meant for a state that is normalised by
    its quantiles or bounds."""

    @property
    def sees_state(self) -> bool:
        return self.uses_state

    def __post_init__(self):
        super().__post_init__()
        check_sizes(self.hidden_features, self.num_blocks)


@configclass(builds="rrf.policies.vla.heads.oft:OFTDiffusionHead")
class OFTDiffusionHeadCfg(ActionHeadCfg):
    """Denoises a chunk that stands in the slots, by DDIM (arXiv:2010.02502). It has no density, so
    policy gradients cannot train it."""

    reads: typing.ClassVar[Ability] = "slots"

    hidden_features: int = 4096
    """Width of the residual MLP that predicts the noise."""
    num_blocks: int = 2
    """Residual blocks of the MLP."""
    uses_state: bool = True
    """Whether the state stands as one token after the images."""
    clips_state: bool = True
    """Whether the normalised state is clipped to [-1, 1]."""
    num_train_steps: int = 50
    """Number of noise levels in training."""
    num_denoise_steps: int = 50
    """Number of noise levels in sampling. Each of them is one pass of the language model; the
    images are encoded once."""

    @property
    def lacks_density(self) -> str | None:
        return "OpenVLA-OFT's diffusion head has no density; use OFTRegressionHeadCfg"

    @property
    def sees_state(self) -> bool:
        return self.uses_state

    def __post_init__(self):
        check_sizes(self.hidden_features, self.num_blocks)
        if not 1 <= self.num_denoise_steps <= self.num_train_steps:
            raise ValueError(
                f"num_denoise_steps is {self.num_denoise_steps}, allowed: 1 to num_train_steps, "
                f"{self.num_train_steps}"
            )


@configclass(builds="rrf.policies.vla.heads.oft:OFTTokenHead")
class OFTTokenHeadCfg(ActionTokenHeadCfg):
    """Each action dimension of each step is a token of the language, all of them decoded in one
    pass, as RLinf (arXiv:2510.06710) and SimpleVLA-RL (arXiv:2509.09674) train OpenVLA-OFT."""

    reads: typing.ClassVar[Ability] = "slot_words"

    uses_state: bool = False
    """Whether the state stands as one token after the images."""
    clips_state: bool = True
    """Whether the normalised state is clipped to [-1, 1]."""

    @property
    def sees_state(self) -> bool:
        return self.uses_state


def check_sizes(hidden_features: int, num_blocks: int) -> None:
    """Raise ValueError for sizes of a residual MLP that cannot be."""
    if hidden_features < 1 or num_blocks < 0:
        raise ValueError(
            f"hidden_features is {hidden_features} and num_blocks is {num_blocks}, allowed: 1 or "
            "more features, and 0 or more blocks"
        )
