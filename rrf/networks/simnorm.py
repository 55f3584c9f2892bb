"""Simplicial normalisation (arXiv:2204.00616). Legend: D width, G size of a group."""

import torch
from torch import nn


class SimNorm(nn.Module):
    """Splits a vector into groups of G numbers and makes each a probability vector by softmax."""

    def __init__(self, group_size: int = 8):
        super().__init__()
        self.group_size = group_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [..., D] to [..., D]; D is a multiple of G."""
        # Softmax along the short rows of x itself would take ten times as long on a CPU.
        groups = x.float().unflatten(-1, (-1, self.group_size)).transpose(-1, -2).contiguous()
        return groups.softmax(-2).transpose(-1, -2).flatten(-2).to(x.dtype)
