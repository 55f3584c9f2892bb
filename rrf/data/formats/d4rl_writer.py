"""Writes transitions in the layout of D4RL, which `rrf.data.formats.d4rl` reads.

Legend: N transitions, O A observation and action dimension.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from rrf import atomic

_COLUMNS = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
_LIBVER = ("v110", "v110")


def write_d4rl(path: Path, columns: Mapping[str, np.ndarray], facts: Mapping[str, str]) -> None:
    """Write one file, atomically; the same content gives the same bytes.

    Args:
        columns: observations and next_observations float32 [N, O], actions float32 [N, A], rewards
            float32 [N], terminals and timeouts bool [N]; rows in the order of time, episode by
            episode.
        facts: Goes into the group metadata, such as the task.
    """
    lengths = {name: len(columns[name]) for name in _COLUMNS}
    assert len(set(lengths.values())) == 1, lengths
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=_LIBVER) as file:
        for name in _COLUMNS:
            file.create_dataset(
                name, data=columns[name], chunks=True, compression="gzip", compression_opts=4
            )
        for name, value in sorted(facts.items()):
            file[f"metadata/{name}"] = np.bytes_(value.encode())
    atomic.write_bytes(path, buffer.getvalue())
