"""Exponential moving average of a module's weights."""

import copy

import torch
from torch import nn

from rrf.runners.sharded_tensors import own_part


class EMA:
    """A copy of `module` with averaged parameters: average <- d * average + (1 - d) * current.

    d is `decay`, but at most (1 + n) / (10 + n) at update n, counted from 0, so that the random
    initial weights are forgotten quickly. Buffers are copied, not averaged. Parameters that are not
    trained are shared with `module`. If weights are divided among processes, both modules must be
    divided in the same way, after this was built.
    """

    def __init__(self, module: nn.Module, decay: float):
        frozen = {id(p): p for p in module.parameters() if not p.requires_grad}
        self.module = copy.deepcopy(module, memo=frozen).eval().requires_grad_(False)
        self.decay = decay
        self.num_updates = 0

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        self.num_updates += 1
        pairs = zip(self.module.parameters(), module.parameters(), strict=True)
        moving = [(own_part(a), own_part(current)) for a, current in pairs if a is not current]
        averages, currents = [a for a, _ in moving], [current for _, current in moving]
        torch._foreach_lerp_(averages, currents, 1 - decay)
        for average, current in zip(self.module.buffers(), module.buffers(), strict=True):
            if average.shape == current.shape:  # one that grows is a cache, which fills itself
                average.copy_(current)
