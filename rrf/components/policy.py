"""The policy contract for vision-language-action models, shared by supervised training, evaluation,
RL and serving.

Legend: B batch, H steps in an action chunk, A action dimension, D state dimension.
"""

import dataclasses
import typing

import numpy as np
import torch

from rrf.data.schema import Batch, Observation


@dataclasses.dataclass
class Sample:
    """Actions and what is needed to evaluate their probability again."""

    actions: np.ndarray  # float32 [B, H, A], environment units, not yet clipped
    log_prob: (
        torch.Tensor | None
    )  # float32 [B, H * A], None for a head without a density (regression)
    replay: dict[str, torch.Tensor]  # what `evaluate` needs beside the observation, e.g. token ids


class Policy(typing.Protocol):
    """A module that maps observations to action chunks."""

    chunk_length: int
    action_dim: int

    def sample(
        self,
        observation: Observation,
        generator: torch.Generator | None = None,
        greedy: bool = False,
    ) -> Sample:
        """Choose action chunks: the mode if `greedy`, else randomness from `generator` alone.

        Raises:
            ValueError: For images or states whose shape or dtype differ from what the policy was
                trained on.
        """
        ...

    def evaluate(
        self, observation: Observation, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy, float32 [B, H * A], of an earlier sample, with gradient.

        Raises:
            NotImplementedError: For a head without a density.
        """
        ...

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        """The supervised loss (scalar mean over steps that are not padding) and its metrics."""
        ...
