"""Real-time chunking: a new chunk that continues the one which is being executed.

While a policy computes a chunk, the robot executes what is left of the last one. The new chunk then
has to begin with that: its first steps are frozen, because they will be over when it arrives, and
the following ones change little at first and freely in the end (arXiv:2506.07339 names the idea;
these are the steps of GR00T N1.7, without that paper's gradient). The overlapping steps begin as
the running chunk instead of as noise, and every denoising step moves them by a share of what the
policy asks for.

Legend: B rows, K overlapping steps, H steps in a chunk, A action dimension of a head.
"""

import dataclasses
import math

import torch
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class RunningChunk:
    """What is left of the chunk that is being executed."""

    actions: torch.Tensor
    """float32 [B, K, robot's action dimension], normalised. The new chunk begins with them."""
    num_frozen: int
    """The first of them, which the new chunk repeats exactly."""
    ramp_rate: float = 6.0
    """How soon the others may move freely: their share after the fraction t of them is
    (1 - exp(-rate t)) / (1 - exp(-rate)). The default is that of GR00T N1.7."""

    def check(self, num_steps: int, action_dim: int) -> None:
        """Raise ValueError unless a chunk of this size can continue it."""
        overlap, dims = self.actions.shape[1:]
        if not 0 <= self.num_frozen <= overlap <= num_steps or dims > action_dim:
            raise ValueError(
                f"the running chunk has {overlap} steps of {dims} dimensions, {self.num_frozen} of "
                f"them frozen; allowed: at most the {num_steps} steps and {action_dim} dimensions "
                "of a chunk, and no more frozen steps than steps"
            )
        if self.ramp_rate <= 0:
            raise ValueError(f"ramp_rate is {self.ramp_rate}, allowed: above 0")

    def start(self, noise_bha: torch.Tensor) -> torch.Tensor:
        """The chunk before the first denoising step: the running one where it overlaps."""
        overlap, dims = self.actions.shape[1:]
        known = functional.pad(self.actions, (0, noise_bha.shape[2] - dims))
        return torch.cat([known.to(noise_bha), noise_bha[:, overlap:]], dim=1)

    def freedom(self, num_steps: int) -> list[float]:
        """Of each step of the new chunk, the share of the policy's change that is made."""
        overlap, rate = self.actions.shape[1], self.ramp_rate
        num_moving = overlap - self.num_frozen
        ramp = [
            (1 - math.exp(-rate * place / (num_moving + 1))) / (1 - math.exp(-rate))
            for place in range(1, num_moving + 1)
        ]
        return [0.0] * self.num_frozen + ramp + [1.0] * (num_steps - overlap)
