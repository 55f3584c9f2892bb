"""A variational autoencoder, arXiv:1312.6114, whose latent vector another network reads.

    L = E[1/2 ||x - decode(z)||^2] + beta KL(N(m, s^2) || N(0, 1)),  z = m + s n,  n ~ N(0, 1)
    y(x) = network(m)

m and s are the encoder's. The outputs y are not random, so that a policy's log-probability is
exact. Gradients of whatever y is used for also reach the encoder.

Legend: B batch, I input width, O output width, Z latent width.
"""

import torch
from torch import nn

from rrf.networks.block_configs import VAEBackboneCfg
from rrf.networks.mlp import MLP


class VAEBackbone(nn.Module):
    """Maps [..., I] to [..., O]."""

    def __init__(self, cfg: VAEBackboneCfg, in_features: int, out_features: int):
        super().__init__()
        self.beta = cfg.beta
        self.encoder = MLP(cfg.encoder_cfg, in_features, 2 * cfg.latent_dim)
        self.decoder = MLP(cfg.decoder_cfg, cfg.latent_dim, in_features)
        self.network = MLP(cfg, cfg.latent_dim, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, _ = self.encoder(x).chunk(2, -1)
        return self.network(mean)

    def auxiliary_loss(
        self, x_bi: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss L, and its two parts to log. `generator` draws the noise."""
        mean, log_var = self.encoder(x_bi).chunk(2, -1)
        noise = torch.empty_like(mean).normal_(generator=generator)
        decoded = self.decoder(mean + (0.5 * log_var).exp() * noise)
        error = 0.5 * (x_bi - decoded).square().sum(-1).mean()
        divergence = standard_normal_kl(mean, log_var).mean()
        metrics = {"loss/reconstruction": error.detach(), "loss/kl": divergence.detach()}
        return error + self.beta * divergence, metrics


def standard_normal_kl(mean_bz: torch.Tensor, log_var_bz: torch.Tensor) -> torch.Tensor:
    """KL(N(mean, exp(log_var)) || N(0, 1)), summed over the dimensions, [B]."""
    return 0.5 * (mean_bz.square() + log_var_bz.exp() - 1 - log_var_bz).sum(-1)
