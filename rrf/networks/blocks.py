"""Blocks for policies: a mixture of experts, a variational autoencoder, and a low-pass filter.

Legend: T time, B batch or environments, I input width, O output width, E experts, k active ones, Z
latent width, W window, D width of what is filtered.
"""

import torch
from torch import nn

from rrf.networks.block_configs import FFTFilterCfg, MixtureOfExpertsCfg, VAEBackboneCfg
from rrf.networks.mlp import MLP


class MixtureOfExperts(nn.Module):
    """A mixture of experts, arXiv:1701.06538, [..., I] to [..., O], with the loss that balances it,
    arXiv:2101.03961.

        y(x) = sum_e g_e(x) y_e(x),  g = softmax of the gate's k largest logits, 0 for the others
        L = E sum_e f_e P_e

    f_e is the share of inputs that the gate sends to expert e (each input counts for k experts),
    P_e the mean probability that the gate gives it. L is 1 where all experts get the same. Every
    expert is computed for every input, which for networks this small costs less than sorting the
    inputs.
    """

    def __init__(self, cfg: MixtureOfExpertsCfg, in_features: int, out_features: int):
        super().__init__()
        self.num_active = cfg.num_active
        self.gate = nn.Linear(in_features, cfg.num_experts)
        experts = [MLP(cfg, in_features, out_features) for _ in range(cfg.num_experts)]
        self.experts = nn.ModuleList(experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = torch.stack([expert(x) for expert in self.experts], -2)
        return (self.weights(x).unsqueeze(-1) * outputs).sum(-2)

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """The weights of the experts, [..., E]; k of them are above 0 and sum to 1."""
        logits = self.gate(x)
        largest, indices = logits.topk(self.num_active, -1)
        return torch.zeros_like(logits).scatter(-1, indices, largest.softmax(-1))

    def auxiliary_loss(
        self, x_bi: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss that balances the experts, and metrics to log."""
        probabilities = self.gate(x_bi).softmax(-1)
        shares = (self.weights(x_bi) > 0).float().mean(0) / self.num_active
        loss = len(self.experts) * (shares * probabilities.mean(0)).sum()
        return loss, {"loss/balance": loss.detach(), "experts/largest_share": shares.max()}


class VAEBackbone(nn.Module):
    """A variational autoencoder, arXiv:1312.6114, whose latent vector another network reads; maps
    [..., I] to [..., O].

        L = E[1/2 ||x - decode(z)||^2] + beta KL(N(m, s^2) || N(0, 1)),  z = m + s n,  n ~ N(0, 1)
        y(x) = network(m)

    m and s are the encoder's. The outputs y are not random, so that a policy's log-probability is
    exact. Gradients of whatever y is used for also reach the encoder.
    """

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


def low_passed(window: torch.Tensor, cutoff: float) -> torch.Tensor:
    """The window [W, ...] without what is faster than `cutoff` of half the sampling rate."""
    mirrored = torch.cat([window, window.flip(0)])
    spectrum = torch.fft.rfft(mirrored, dim=0)
    frequencies = torch.linspace(0, 1, len(spectrum), dtype=torch.float64)  # 1: half the rate
    passes = (frequencies <= cutoff + 1e-9).view(-1, *[1] * (window.ndim - 1))
    return torch.fft.irfft(spectrum * passes, n=len(mirrored), dim=0)[: len(window)]


class FFTFilter(nn.Module):
    """A low-pass filter by FFT over the last W values of a sequence. It never looks ahead. It
    works step by step, for a deployed policy, and along sequences, for training.

        window of the last W values -> mirrored at its end -> FFT -> frequencies above the cutoff
        are set to 0 -> inverse FFT -> the value at the end of the window

    Mirroring makes the window periodic without a jump, which would smear over all frequencies. The
    filter is linear. So the FFT is taken once, of unit impulses, and gives W coefficients;
    filtering is then a weighted sum. Before an episode has W values, its first one stands for those
    before it.

    Its memory [W - 1, B, D + 1] holds the last values, the oldest first. Each is followed by a 1; a
    memory without values is all zeros.
    """

    coefficients: torch.Tensor

    def __init__(self, cfg: FFTFilterCfg, width: int):
        super().__init__()
        self.window, self.width = cfg.window, width
        impulses = torch.eye(cfg.window, dtype=torch.float64)
        coefficients = low_passed(impulses, cfg.cutoff)[-1].float()
        self.register_buffer("coefficients", coefficients, persistent=False)

    def initial_memory(self, num_envs: int) -> torch.Tensor:
        """The memory without values."""
        return self.coefficients.new_zeros(self.window - 1, num_envs, self.width + 1)

    def step(self, x_bd: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The filtered value [B, D], and the memory after it."""
        newest = self._flagged(x_bd.unsqueeze(0))
        values = torch.cat([torch.where(memory[:, :, -1:] > 0, memory, newest), newest])
        return self._filtered(values), values[1:]

    def sequence(
        self, x_tbd: torch.Tensor, memory: torch.Tensor, starts_tb: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Filtered values [T, B, D], and the memory after each step.

        Args:
            x_tbd: The sequences.
            memory: The memory before the first step.
            starts_tb: bool; true where an episode begins, before which nothing is remembered.
        """
        past, length = self.window - 1, len(x_tbd)
        values = torch.cat([memory, self._flagged(x_tbd)])
        places = torch.arange(past, past + length, device=x_tbd.device)
        is_new = memory[-1, :, -1] == 0  # nothing is remembered
        begins = torch.where(starts_tb, places.unsqueeze(1), past * is_new).cummax(0).values
        back = torch.arange(-past, 1, device=x_tbd.device)
        rows_wtb = torch.maximum((back.unsqueeze(1) + places).unsqueeze(-1), begins)
        index = rows_wtb.flatten(0, 1).unsqueeze(-1).expand(-1, -1, values.shape[-1])
        windows = values.gather(0, index).view(self.window, length, *values.shape[1:])
        return self._filtered(windows), list(windows[1:].unbind(1))

    def _flagged(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, torch.ones_like(x[..., :1])], -1)

    def _filtered(self, windows: torch.Tensor) -> torch.Tensor:
        """The weighted sums of windows [W, ..., D + 1], without the flag: [..., D]."""
        return torch.tensordot(self.coefficients, windows[..., :-1], 1)
