"""Statistics of what a policy predicts, if it does not predict actions as they are.

Legend: B frames, K steps of a chunk, A action dimension, D state dimension.
"""

import typing
from collections.abc import Mapping

import numpy as np

from rrf.data.dataset.action_representation import PREDICTED, Representation
from rrf.data.dataset.stats import VectorStats, plain

_FRAMES = 1 << 14  # read at once


class Chunks(typing.Protocol):
    """Recorded action chunks, e.g. a `rrf.data.dataset.reader.LeRobotReader`."""

    @property
    def num_frames(self) -> int: ...

    def chunks(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """State [B, D], action chunk [B, K, A] and padding [B, K] of frames."""
        ...


def with_predicted(norm_stats: Mapping, representation: Representation, frames: Chunks) -> Mapping:
    """Statistics that also tell how what the policy predicts is distributed, if these are not the
    actions as they are."""
    if representation.is_absolute or PREDICTED in norm_stats:
        return norm_stats
    stats = VectorStats()
    for start in range(0, frames.num_frames, _FRAMES):
        state, action, is_pad = frames.chunks(
            np.arange(start, min(start + _FRAMES, frames.num_frames))
        )
        stats.update(representation.apply(action, state)[~is_pad])
    return {**norm_stats, PREDICTED: plain(stats.result())}
