"""Exponential moving average of a module's weights."""

import copy

import torch
from torch import nn


class EMA:
    """A copy of `module` with averaged parameters: average <- d * average + (1 - d) * current.

    d is `decay`, but at most (1 + n) / (10 + n) at update n, counted from 0, so that the random
    initial weights are forgotten quickly. Buffers are copied, not averaged.
    """

    def __init__(self, module: nn.Module, decay: float):
        self.module = copy.deepcopy(module).eval().requires_grad_(False)
        self.decay = decay
        self.num_updates = 0

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        self.num_updates += 1
        torch._foreach_lerp_(list(self.module.parameters()), list(module.parameters()), 1 - decay)
        for mine, current in zip(self.module.buffers(), module.buffers(), strict=True):
            mine.copy_(current)
