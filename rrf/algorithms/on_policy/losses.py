"""PPO's losses and its adaptive learning rate: pure functions (arXiv:1707.06347, eq. 7 and 9).

Legend: B samples.
"""

import torch


def clipped_surrogate(
    log_prob_b: torch.Tensor, old_log_prob_b: torch.Tensor, advantages_b: torch.Tensor, clip: float
) -> torch.Tensor:
    """max(-A rho, -A clip(rho, 1 - clip, 1 + clip)), [B], with rho = pi_new / pi_old."""
    ratio = (log_prob_b - old_log_prob_b).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return torch.maximum(-advantages_b * ratio, -advantages_b * clipped)


def value_errors(
    values_b: torch.Tensor, old_values_b: torch.Tensor, returns_b: torch.Tensor, clip: float | None
) -> torch.Tensor:
    """(V - R)^2, [B]; with `clip`, the maximum of it and (V_old + clip(V - V_old) - R)^2."""
    errors = (values_b - returns_b).square()
    if clip is None:
        return errors
    near = old_values_b + (values_b - old_values_b).clamp(-clip, clip)
    return torch.maximum(errors, (near - returns_b).square())


def adapted_learning_rate(
    learning_rate: torch.Tensor, kl: torch.Tensor, desired: float, low: float, high: float
) -> torch.Tensor:
    """The learning rate of rsl_rl's adaptive schedule.

    It is divided by 1.5 where the divergence is above twice the desired one. It is multiplied by
    1.5 where the divergence is below half the desired one, but not 0. The result is a tensor, so
    that nothing waits for a GPU.
    """
    slower = (learning_rate / 1.5).clamp(min=low)
    faster = (learning_rate * 1.5).clamp(max=high)
    is_small = (kl < desired / 2) & (kl > 0)
    return torch.where(kl > desired * 2, slower, torch.where(is_small, faster, learning_rate))
