"""A Gaussian squashed into a box by tanh (arXiv:1812.05905, appendix C).

a = limit tanh(u) with u ~ N(mean, std), so log p(a) = log p(u) - log(limit) - log(1 - tanh(u)^2).
The last logarithm is computed as 2 (log 2 - u - softplus(-2u)). This is exact even where tanh
saturates, and it needs no epsilon.

Legend: B batch, A action dimension.
"""

import math

import torch
from torch.nn import functional

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


def log_tanh_slope(u: torch.Tensor) -> torch.Tensor:
    """log(1 - tanh(u)^2), elementwise."""
    return 2 * (math.log(2) - u - functional.softplus(-2 * u))


class TanhGaussian:
    """A policy's distribution in B states. The parameters are [mean, log_std], both before tanh."""

    def __init__(self, mean_ba: torch.Tensor, log_std_ba: torch.Tensor, limit: float = 1.0):
        self.mean, self.log_std, self.limit = mean_ba, log_std_ba, limit

    @property
    def parameters(self) -> torch.Tensor:
        return torch.cat([self.mean, self.log_std], -1)

    @property
    def mode(self) -> torch.Tensor:
        """The greedy action, [B, A]: the median of each dimension."""
        return self.limit * self.mean.tanh()

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Actions [B, A] between minus and plus `limit`."""
        return self.at(torch.empty_like(self.mean).normal_(generator=generator))

    def at(self, noise_ba: torch.Tensor) -> torch.Tensor:
        """Actions [B, A] from standard normal noise, with gradient."""
        return self.limit * torch.addcmul(self.mean, self.log_std.exp(), noise_ba).tanh()

    def sample_with_log_prob(self, noise_ba: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [B, A] from standard normal noise, with gradient, and their log-prob [B]."""
        u = torch.addcmul(self.mean, self.log_std.exp(), noise_ba)
        each = 0.5 * noise_ba.square() + self.log_std + log_tanh_slope(u)
        return self.limit * u.tanh(), -each.sum(-1) - self._constant(u)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Log-probability of actions [B, A], summed over the dimensions: [B].

        An action exactly at the limit is treated as the largest float below it.
        """
        eps = torch.finfo(actions.dtype).eps
        u = (actions / self.limit).clamp(-1 + eps, 1 - eps).atanh()
        squares = ((u - self.mean) * (-self.log_std).exp()).square()
        return -(0.5 * squares + self.log_std + log_tanh_slope(u)).sum(-1) - self._constant(u)

    def kl_to(self, other: "TanhGaussian") -> torch.Tensor:
        """KL(self || other), [B]; squashing both distributions does not change it."""
        squares = (2 * self.log_std).exp() + (self.mean - other.mean).square()
        each = other.log_std - self.log_std + 0.5 * squares * (-2 * other.log_std).exp() - 0.5
        return each.sum(-1)

    def _constant(self, u: torch.Tensor) -> float:
        return u.shape[-1] * (_LOG_SQRT_2_PI + math.log(self.limit))
