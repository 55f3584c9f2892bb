"""Action distributions. Each consists of a single parameter tensor, which a rollout can store.

Legend: B batch, A action dimension, C choices, P parameters of one distribution.
"""

import math
import typing

import torch
from torch import nn

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class Distribution(typing.Protocol):
    """A policy's distribution over actions in B states."""

    parameters: torch.Tensor  # float32 [B, P]; `of_parameters` makes a distribution of it again

    @classmethod
    def of_parameters(cls, parameters: torch.Tensor) -> "Distribution": ...

    @property
    def mode(self) -> torch.Tensor:
        """The greedy action, [B, A]; for a Gaussian the mean, with gradient."""
        ...

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor: ...

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Summed over the dimensions, [B]."""
        ...

    def entropy(self) -> torch.Tensor:
        """In nats, summed over the dimensions, [B]."""
        ...

    def kl_to(self, other: typing.Any) -> torch.Tensor:
        """KL(self || other), [B]."""
        ...


class DiagonalGaussian:
    """Independent normal distributions. The parameters are [mean, std]."""

    def __init__(self, mean_ba: torch.Tensor, std_ba: torch.Tensor):
        self.mean, self.std = mean_ba, std_ba

    @classmethod
    def of_parameters(cls, parameters: torch.Tensor) -> "DiagonalGaussian":
        return cls(*parameters.chunk(2, -1))

    @property
    def parameters(self) -> torch.Tensor:
        return torch.cat([self.mean, self.std], -1)

    @property
    def mode(self) -> torch.Tensor:
        return self.mean

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + self.std * noise

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        squares = ((actions - self.mean) / self.std).square()
        return -(0.5 * squares + self.std.log() + _LOG_SQRT_2_PI).sum(-1)

    def entropy(self) -> torch.Tensor:
        return (0.5 + _LOG_SQRT_2_PI + self.std.log()).sum(-1)

    def kl_to(self, other: "DiagonalGaussian") -> torch.Tensor:
        squares = self.std.square() + (self.mean - other.mean).square()
        each = (other.std / self.std).log() + squares / (2 * other.std.square()) - 0.5
        return each.sum(-1)


class Categorical:
    """A choice among C. The parameters are log-probabilities; actions are indices, [B, 1]."""

    def __init__(self, logits_bc: torch.Tensor):
        self.parameters = nn.functional.log_softmax(logits_bc, -1)

    @classmethod
    def of_parameters(cls, parameters: torch.Tensor) -> "Categorical":
        return cls(parameters)

    @property
    def mode(self) -> torch.Tensor:
        return self.parameters.argmax(-1, keepdim=True).float()

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        return torch.multinomial(self.parameters.exp(), 1, generator=generator).float()

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        return self.parameters.gather(-1, actions.long()).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        return -(self.parameters.exp() * self.parameters).sum(-1)

    def kl_to(self, other: "Categorical") -> torch.Tensor:
        return (self.parameters.exp() * (self.parameters - other.parameters)).sum(-1)
