"""A Gaussian around a mean that tanh bounds, with one standard deviation for all states.

Actions are clipped to the bounds, the density is not corrected for that: so do IQL
(arXiv:2110.06169) and its implementations. Without a standard deviation it is a deterministic
policy.

Legend: B batch, A action dimension.
"""

import math

import torch

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class BoundedGaussian:
    """A policy's distribution in B states."""

    def __init__(self, mean_ba: torch.Tensor, log_std_a: torch.Tensor | None, limit: float = 1.0):
        self.mean, self.log_std, self.limit = mean_ba, log_std_a, limit

    @property
    def mode(self) -> torch.Tensor:
        """The greedy action, [B, A]."""
        return self.mean

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Actions [B, A] between minus and plus `limit`."""
        if self.log_std is None:
            return self.mean
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        actions = torch.addcmul(self.mean, self.log_std.exp(), noise)
        return actions.clamp(-self.limit, self.limit)

    def imitation_loss(self, actions_ba: torch.Tensor) -> torch.Tensor:
        """How badly each action is imitated, [B]: its negative log-likelihood, or the squared
        distance from a deterministic policy."""
        errors = actions_ba - self.mean
        if self.log_std is None:
            return errors.square().sum(-1)
        each = 0.5 * (errors * (-self.log_std).exp()).square() + self.log_std
        return each.sum(-1) + actions_ba.shape[-1] * _LOG_SQRT_2_PI
