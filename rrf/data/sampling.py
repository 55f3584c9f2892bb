"""Which frames make up which training batch, as a pure function: resuming at a step needs no saved
sampler.

Frames come in epochs: each is one permutation of all frames, drawn from (seed, epoch) alone. A
batch that reaches the end of an epoch goes on with the next one, so no frame is dropped.
"""

import functools

import numpy as np


def batch_indices(num_frames: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """Frame numbers, int64 [batch_size], of batch `step` (0, 1, ...).

    Raises:
        ValueError: If `num_frames` or `batch_size` is not positive, or `step` is negative.
    """
    if num_frames <= 0 or batch_size <= 0 or step < 0:
        raise ValueError(
            "need num_frames > 0, batch_size > 0 and step >= 0, "
            f"got {num_frames}, {batch_size}, {step}"
        )
    parts, position, missing = [], step * batch_size, batch_size
    while missing:
        epoch, offset = divmod(position, num_frames)
        part = _permutation(num_frames, seed, epoch)[offset : offset + missing]
        parts.append(part)
        position += len(part)
        missing -= len(part)
    return np.concatenate(parts)


@functools.lru_cache(maxsize=2)
def _permutation(num_frames: int, seed: int, epoch: int) -> np.ndarray:
    order = np.random.default_rng([seed, epoch]).permutation(num_frames)
    order.flags.writeable = False
    return order


def mixed_seed(*numbers: int) -> int:
    """One seed below 2^63 from several numbers >= 0: another for any other numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
