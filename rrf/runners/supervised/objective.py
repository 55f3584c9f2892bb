"""The supervised objective as a module, so that torch can replicate it over processes."""

import numpy as np
import torch
from torch import nn

from rrf.algorithms.vla.behavior_cloning import BehaviorCloning
from rrf.data.schema import Batch


class Objective(nn.Module):
    """Maps a batch to its loss, a scalar with gradient, and metrics.

    Args:
        algorithm: What is to be minimised. Its policy's parameters are those of this module.
        device_type: Where it computes, "cpu" or "cuda".
        bf16: Compute in bfloat16 where torch's autocast thinks it safe.
    """

    def __init__(self, algorithm: BehaviorCloning, device_type: str, bf16: bool):
        super().__init__()
        self.policy = algorithm.policy
        self._algorithm, self._device_type, self._bf16 = algorithm, device_type, bf16

    def forward(
        self, batch: Batch, rng: np.random.Generator | None
    ) -> tuple[torch.Tensor, dict[str, float]]:
        with torch.autocast(self._device_type, torch.bfloat16, enabled=self._bf16):
            return self._algorithm.loss(batch, rng)
