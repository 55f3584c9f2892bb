"""Regression by classification: a number as weights of two neighbouring bins (arXiv:2301.04104).

    symlog(x) = sign(x) log(1 + |x|),  symexp(x) = sign(x) (exp(|x|) - 1)

The bins lie at equal distances on the scale of symlog. A target has weights on the two bins around
its symlog; the network is trained by cross-entropy. Its estimate is symexp of the mean bin.

Legend: K bins.
"""

import torch
from torch import nn


def symlog(x: torch.Tensor) -> torch.Tensor:
    """sign(x) log(1 + |x|)."""
    return x.sign() * x.abs().log1p()


def symexp(x: torch.Tensor) -> torch.Tensor:
    """The inverse of `symlog`."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """Bins from `low` to `high`, both on the scale of symlog. Targets beyond them are clipped."""

    bins: torch.Tensor

    def __init__(self, low: float, high: float, num_bins: int):
        super().__init__()
        self.low, self.high, self.num_bins = low, high, num_bins
        self.width = (high - low) / (num_bins - 1)
        self.register_buffer("bins", torch.linspace(low, high, num_bins), persistent=False)

    def place(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """For numbers [...]: the index of the lower bin, int64, and the weight of the upper one."""
        position = (symlog(x).clamp(self.low, self.high) - self.low) / self.width
        lower = position.floor().clamp(max=self.num_bins - 2)
        return lower.long(), position - lower

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Cross-entropy [...] between logits [..., K] and numbers [...]."""
        logits = logits.float()
        lower, weight = self.place(targets)
        around = torch.stack([lower, lower + 1], -1).expand(*logits.shape[:-1], 2)
        low_logit, high_logit = logits.gather(-1, around).unbind(-1)
        return logits.logsumexp(-1) - torch.lerp(low_logit, high_logit, weight)

    def mean(self, logits: torch.Tensor) -> torch.Tensor:
        """The numbers [...] that logits [..., K] stand for."""
        with torch.autocast(logits.device.type, enabled=False):
            return symexp(logits.softmax(-1) @ self.bins)
