"""The numerics of learned dynamics, as pure functions.

PETS arXiv:1805.12114 (appendix A.1), MBPO arXiv:1906.08253 (appendix C).

Legend: K members, B batch, D predicted numbers.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional


def softly_bounded(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """`x`, bent smoothly such that it stays (almost) between `low` and `high`."""
    x = high - functional.softplus(high - x)
    return low + functional.softplus(x - low)


def gaussian_nll(
    mean_kbd: torch.Tensor, log_var_kbd: torch.Tensor, target_kbd: torch.Tensor
) -> torch.Tensor:
    """(mean - y)^2 / var + log var, [K, B, D]: twice the negative log-likelihood, no constant."""
    return (mean_kbd - target_kbd).square() * (-log_var_kbd).exp() + log_var_kbd


def ensemble_loss(
    nll_kbd: torch.Tensor, min_log_var: torch.Tensor, max_log_var: torch.Tensor
) -> torch.Tensor:
    """The members' mean losses, summed, and 0.01 times the width of the bounds of log var."""
    return nll_kbd.mean((1, 2)).sum() + 0.01 * (max_log_var.sum() - min_log_var.sum())


def elites(errors_k: torch.Tensor, num_elites: int) -> torch.Tensor:
    """Indices of the members with the lowest errors, int64 [E], the best first."""
    return errors_k.argsort()[:num_elites]


def branch_length(num_observed: int, schedule: Sequence[int]) -> int:
    """The length of a branch after so many observed transitions; see `MBPOCfg.branch_schedule`."""
    begin, end, first, last = schedule
    progress = min(max((num_observed - begin) / (end - begin), 0.0), 1.0)
    return int(first + progress * (last - first))
