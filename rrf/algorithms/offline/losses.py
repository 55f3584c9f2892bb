"""The objectives of offline algorithms, as pure functions.

IQL arXiv:2110.06169, CQL arXiv:2006.04779, TD3+BC arXiv:2106.06860.

Legend: K critics, B batch, M proposed actions.
"""

import math

import torch


def expectile_loss(errors: torch.Tensor, expectile: float) -> torch.Tensor:
    """E[|expectile - 1(u < 0)| u^2] of errors u = target - prediction; a 0-d tensor."""
    weights = torch.where(errors < 0, 1 - expectile, expectile)
    return (weights * errors.square()).mean()


def advantage_weights(advantages: torch.Tensor, beta: float, limit: float) -> torch.Tensor:
    """min(exp(beta A), limit)."""
    return (beta * advantages).exp().clamp(max=limit)


def soft_maximum(values_kbm: torch.Tensor, temperature: float) -> torch.Tensor:
    """T logsumexp(values / T) over the proposed actions, [K, B]."""
    return temperature * torch.logsumexp(values_kbm / temperature, -1)


def uniform_log_density(num_actions: int, limit: float) -> float:
    """The log-density of uniformly random actions of so many dimensions within +-limit."""
    return -num_actions * math.log(2 * limit)


def value_against_imitation(
    values_b: torch.Tensor, imitation: torch.Tensor, alpha: float
) -> torch.Tensor:
    """-alpha E[Q] / E[|Q|] + imitation, where the divisor has no gradient."""
    return imitation - alpha * values_b.mean() / values_b.detach().abs().mean()
