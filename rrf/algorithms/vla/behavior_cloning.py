"""Behaviour cloning: the policy's own supervised loss on augmented batches."""

from collections.abc import Mapping

import numpy as np
import torch

from rrf.algorithms.vla.augmentation import augment
from rrf.algorithms.vla.configs import BehaviorCloningCfg
from rrf.data.schema import STATE, Batch
from rrf.policies.policy import Policy


class BehaviorCloning:
    """Has a single verb, `loss`. The loop, the optimizer and logging belong to the runner."""

    def __init__(self, cfg: BehaviorCloningCfg, policy: Policy, norm_stats: Mapping[str, Mapping]):
        self.cfg = cfg
        self.policy = policy
        self._state_std = np.asarray(norm_stats[STATE]["std"], dtype=np.float32)

    def loss(
        self, batch: Batch, rng: np.random.Generator | None = None
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The loss, a scalar with gradient, and its metrics. Without `rng`, no augmentation."""
        if rng is not None and self.cfg.augmentation is not None:
            batch = augment(batch, self.cfg.augmentation, self._state_std, rng)
        return self.policy.loss(batch)
