"""Batches of observations: choose rows, join batches, compute digests."""

import hashlib
from collections.abc import Sequence

import numpy as np

from rrf.data.schema import Observation


def rows_of(observation: Observation, rows: np.ndarray | Sequence[int]) -> Observation:
    """The given rows of an observation, copied."""
    rows, ago = np.asarray(rows, dtype=np.int64), observation.seen_steps_ago
    return Observation(
        images={camera: images[rows] for camera, images in observation.images.items()},
        state=observation.state[rows],
        instruction=[observation.instruction[row] for row in rows],
        seen_steps_ago=None if ago is None else ago[rows],
    )


def join(observations: Sequence[Observation]) -> Observation:
    """All rows of the given observations (at least one), one after another."""
    ago = [part.seen_steps_ago for part in observations if part.seen_steps_ago is not None]
    assert len(ago) in (0, len(observations)), "only some of them say when they were seen"
    return Observation(
        images={
            camera: np.concatenate([part.images[camera] for part in observations])
            for camera in observations[0].images
        },
        state=np.concatenate([part.state for part in observations]),
        instruction=[text for part in observations for text in part.instruction],
        seen_steps_ago=np.concatenate(ago) if ago else None,
    )


def padded(observation: Observation, num_rows: int) -> Observation:
    """The observation with its first row repeated at the end, up to `num_rows`."""
    missing = num_rows - len(observation)
    assert missing >= 0, "there are more rows than asked for"
    return rows_of(observation, [*range(len(observation)), *[0] * missing])


def digest(observation: Observation, row: int) -> str:
    """Hex digest of everything that a policy sees in one row."""
    content = hashlib.blake2b(digest_size=16)
    for camera in sorted(observation.images):
        content.update(np.ascontiguousarray(observation.images[camera][row]).tobytes())
    content.update(observation.state[row].tobytes())
    content.update(observation.instruction[row].encode())
    return content.hexdigest()
