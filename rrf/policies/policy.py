"""The contract of policies that see images (vision-language-action models).

Supervised training, reinforcement learning, evaluation and serving all use it.

Legend: B batch, H steps in an action chunk, A action dimension, D state dimension, V values.
"""

import dataclasses
import typing
from collections.abc import Sequence

import numpy as np
import torch

from rrf.data.schema import IMAGE_PREFIX, STATE, Batch, Observation

Generators = torch.Generator | Sequence[torch.Generator] | None
"""One random generator for a batch, or one per row; None is torch's global generator."""


@dataclasses.dataclass
class Sample:
    """Sampled action chunks, and the data needed to compute their probability again."""

    actions: np.ndarray  # float32 [B, H, A], environment units, not yet clipped
    log_prob: (
        torch.Tensor | None
    )  # float32 [B, H * A], None for a head without a density (regression)
    replay: dict[str, torch.Tensor]  # inputs of `evaluate` besides the observation, e.g. token ids
    value: torch.Tensor | None = None  # float32 [B, V], expected returns; None without a critic

    def first(self, num_rows: int) -> "Sample":
        """The first `num_rows` rows."""
        return Sample(
            self.actions[:num_rows],
            None if self.log_prob is None else self.log_prob[:num_rows],
            {name: values[:num_rows] for name, values in self.replay.items()},
            None if self.value is None else self.value[:num_rows],
        )


@dataclasses.dataclass
class Evaluation:
    """The current policy's evaluation of a chunk that was sampled earlier; all with gradient."""

    log_prob: torch.Tensor  # float32 [B, H * A]
    entropy: torch.Tensor  # float32 [B, H * A]
    value: torch.Tensor | None  # float32 [B, V], None without a critic


class Policy(typing.Protocol):
    """A module that maps observations to action chunks."""

    chunk_length: int
    action_dim: int
    num_values: int  # V: 0 without a critic, 1, or one for each action of a chunk

    @property
    def is_executed(self) -> torch.Tensor:
        """Bool, broadcasts to [H, A]: False for padding, which no environment ever receives."""
        ...

    def sample(
        self,
        observation: Observation,
        generator: Generators = None,
        greedy: bool = False,
    ) -> Sample:
        """Choose action chunks: the mode if `greedy`, else random ones.

        All randomness comes from `generator`. With one generator per row, the choice for a row does
        not depend on the other rows.

        Raises:
            ValueError: If the shape or dtype of images or states differs from the training data.
        """
        ...

    def evaluate(self, observation: Observation, replay: dict[str, torch.Tensor]) -> Evaluation:
        """Log-probability and entropy of an earlier sample, and the value, with gradient.

        Raises:
            NotImplementedError: For a head without a density.
        """
        ...

    def set_noise_factor(self, factor: float) -> None:
        """Scale the randomness of `sample`, and the density in `evaluate` accordingly.

        Args:
            factor: Above 0; 1 changes nothing.
        """
        ...

    def blocks(self) -> list[torch.nn.Module]:
        """Parts that are always called as a whole; their weights can be gathered one at a time."""
        ...

    def assets(self) -> dict[str, str]:
        """Text files that a checkpoint needs besides config and weights: name -> content."""
        ...

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        """The supervised loss (a scalar, the mean over non-padding steps) and its metrics."""
        ...


@typing.runtime_checkable
class FeaturePolicy(Policy, typing.Protocol):
    """A policy that also says what it sees, for networks that act or judge beside it."""

    @property
    def num_features(self) -> int:
        """Width of the features."""
        ...

    def sample_and_features(
        self,
        observation: Observation,
        generator: Generators = None,
        greedy: bool = False,
    ) -> tuple[Sample, torch.Tensor]:
        """`Policy.sample`, and the features of the same forward pass, float32 [B, num_features]:
        of images and instruction, and the normalised state. They have no gradient."""
        ...


@typing.runtime_checkable
class ResumablePolicy(typing.Protocol):
    """A policy that can continue the chunk being executed (`rrf.policies.vla.real_time`)."""

    def resume(
        self,
        observation: Observation,
        running: np.ndarray,
        num_frozen: int,
        generator: Generators = None,
        greedy: bool = False,
    ) -> np.ndarray:
        """Chunks that continue those being executed (real-time chunking), physical units.

        Args:
            observation: What the policy sees now.
            running: What is left of the running chunks, [B, K, A], physical units; element 0 is the
                action that is executed next.
            num_frozen: Of these, how many will be over when the new chunk arrives.
            generator: As in `Policy.sample`.
            greedy: As in `Policy.sample`.

        Raises:
            NotImplementedError: If the head does not denoise.
        """
        ...


def check_observation(
    observation: Observation, cameras: Sequence[str], image_size: Sequence[int], state_dim: int
) -> None:
    """Compare an observation with the training data.

    Raises:
        ValueError: For a camera that is missing, and for images or states of another shape or
            dtype.
    """
    batch = len(observation)
    for name in cameras:
        if name not in observation.images:
            have = ", ".join(sorted(observation.images)) or "none"
            raise ValueError(
                f"the policy needs {IMAGE_PREFIX}{name}, but the observation has only: {have}"
            )
        images, shape = observation.images[name], (batch, *image_size, 3)
        if images.dtype != np.uint8 or images.shape != shape:
            raise ValueError(
                f"{IMAGE_PREFIX}{name} is {images.dtype}{list(images.shape)}, but the policy "
                f"was trained on uint8{list(shape)}"
            )
    state, shape = observation.state, (batch, state_dim)
    if state.dtype != np.float32 or state.shape != shape:
        raise ValueError(
            f"{STATE} is {state.dtype}{list(state.shape)}, but the policy was trained on "
            f"float32{list(shape)}"
        )
