"""What PPO and every variant of it can be given besides: more rewards, more samples, a loss."""

import torch

from rrf.policies.control.distributions import Distribution
from rrf.storage.rollout import Batch, ControlStep, Samples

Penalty = tuple[torch.Tensor, dict[str, torch.Tensor]]
"""What is added to a loss, and numbers to log."""


class Extension:
    """Does nothing; subclasses override what they need."""

    def rewards(self, step: ControlStep, rewards: torch.Tensor) -> torch.Tensor:
        """The rewards [N] to learn from, given those so far."""
        return rewards

    def augmented(self, samples: Samples) -> Samples:
        """The samples to learn from; advantages are not normalised yet."""
        return samples

    def penalty(self, batch: Batch, distribution: Distribution) -> Penalty | None:
        """Added to the actor's loss; None for nothing."""
        return None

    def learn(self) -> dict[str, float]:
        """Once per rollout, after the policy has learned from it; what to log."""
        return {}

    def state(self) -> dict[str, torch.Tensor]:
        """Named tensors that `load_state` needs."""
        return {}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on from what `state` gave."""
