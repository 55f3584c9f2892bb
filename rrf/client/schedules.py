"""When a chunk of actions is executed, and how chunks are joined: pure functions.

* Receding horizon: execute the first k of H actions, then ask again.
* Temporal ensembling (ACT, arXiv:2304.13705): ask in every step, and average what all chunks say
  about this step with weights exp(-m i), where i = 0 is the oldest chunk. The smaller m, the sooner
  a new observation counts.
* Real-time chunking (arXiv:2506.07339): ask early and execute the rest of the running chunk
  meanwhile. The new chunk repeats the actions that will be over when it arrives, so that nothing
  jumps where it takes over.

Legend: K chunks, H steps in a chunk, A action dimension.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np


def is_due(position: int, execute: int, chunk_length: int) -> bool:
    """Whether a new chunk is needed, `position` steps after the running one began."""
    return position >= min(execute, chunk_length)


def ensemble(predictions_ka: np.ndarray, rate: float) -> np.ndarray:
    """The weighted mean of what several chunks say about one step.

    Args:
        predictions_ka: [K, A], the oldest chunk first.
        rate: m above; 0 for the plain mean.

    Returns:
        [A] of the dtype of the predictions.
    """
    weights_k = np.exp(-rate * np.arange(len(predictions_ka)))
    weights_k /= weights_k.sum()
    return (weights_k @ predictions_ka).astype(predictions_ka.dtype)


def predictions_of(step: int, chunks: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
    """What chunks say about a step, [K, A].

    Args:
        step: The step of the episode.
        chunks: The step in which each chunk begins, and its actions [H, A]; the oldest first. A
            chunk that does not reach the step says nothing.
    """
    return np.stack(
        [chunk[step - start] for start, chunk in chunks if start <= step < start + len(chunk)]
    )


def delay_steps(latency_s: float, period_s: float) -> int:
    """The number of control steps that begin while an answer is awaited."""
    return math.ceil(latency_s / period_s - 1e-9)


def expected_delay(recent: Sequence[int], first: int) -> int:
    """A careful guess of the next delay in steps: the longest of the recent ones, and `first` if
    there are none."""
    return max(recent, default=first)


def num_frozen(delay: int, remaining: int) -> int:
    """How many of the remaining actions of a chunk will be over after `delay` steps."""
    return min(delay, remaining)
