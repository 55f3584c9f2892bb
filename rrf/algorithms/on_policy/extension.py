"""Extensions of PPO and its variants: each can add rewards, samples, or a loss."""

import torch

from rrf.policies.control.actor_critic import Distribution
from rrf.storage.rollout import Batch, ControlStep, Samples

Penalty = tuple[torch.Tensor, dict[str, torch.Tensor]]
"""A scalar that is added to a loss, and metrics to log."""


class Extension:
    """The base class does nothing; subclasses override what they need."""

    def rewards(self, step: ControlStep, rewards: torch.Tensor) -> torch.Tensor:
        """The rewards [N] to learn from, given `rewards` after the earlier extensions."""
        return rewards

    def augmented(self, samples: Samples) -> Samples:
        """The samples to learn from. Their advantages are not normalised yet."""
        return samples

    def penalty(self, batch: Batch, distribution: Distribution) -> Penalty | None:
        """A term for the actor's loss and metrics to log; None for nothing."""
        return None

    def learn(self) -> dict[str, float]:
        """Called once per rollout, after the policy has learned from it; returns metrics to log."""
        return {}

    def state(self) -> dict[str, torch.Tensor]:
        """Named tensors that `load_state` needs."""
        return {}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore what `state` returned."""
