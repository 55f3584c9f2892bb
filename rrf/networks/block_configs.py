"""Configs of backbones that learn more than their outputs, and of a filter. No torch here."""

from rrf.config import Cfg, configclass
from rrf.networks.configs import MLPCfg, plain_mlp


@configclass(builds="rrf.networks.blocks:MixtureOfExperts")
class MixtureOfExpertsCfg(MLPCfg):
    """Networks of one architecture, of which a gate picks some for each input (arXiv:1701.06538).

    `hidden_features` and `activations` are those of each expert.
    """

    num_experts: int = 4
    """Number of experts."""
    num_active: int = 2
    """Experts whose outputs count for an input, weighted by the gate."""

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.num_active <= self.num_experts:
            raise ValueError(
                f"num_active is {self.num_active}, allowed: 1 to num_experts, which is "
                f"{self.num_experts}"
            )


@configclass(builds="rrf.networks.blocks:VAEBackbone")
class VAEBackboneCfg(MLPCfg):
    """A variational autoencoder (arXiv:1312.6114) whose latent vector a network reads.

    `hidden_features` and `activations` are those of the network that reads it.
    """

    latent_dim: int = 8
    """Width of the latent vector."""
    encoder_cfg: MLPCfg = plain_mlp([64], "Tanh")
    """Network from the input to mean and log-variance of the latent vector."""
    decoder_cfg: MLPCfg = plain_mlp([64], "Tanh")
    """Network from the latent vector back to the input."""
    beta: float = 0.1
    """Weight of the KL divergence from a standard normal distribution (arXiv:1804.03599)."""

    def __post_init__(self):
        super().__post_init__()
        if self.latent_dim < 1 or self.beta < 0:
            raise ValueError(
                f"latent_dim is {self.latent_dim} and beta {self.beta}, allowed: latent_dim of 1 "
                "or more, beta of 0 or more"
            )


@configclass(builds="rrf.networks.blocks:FFTFilter")
class FFTFilterCfg(Cfg):
    """A low-pass filter of a sequence, which looks back only."""

    window: int = 8
    """Number of last values that it sees."""
    cutoff: float = 0.25
    """Highest frequency that passes, as a fraction of half the sampling rate."""

    def __post_init__(self):
        if self.window < 2 or not 0 < self.cutoff <= 1:
            raise ValueError(
                f"window is {self.window} and cutoff {self.cutoff}, allowed: a window of 2 or "
                "more, a cutoff above 0 and up to 1"
            )
