"""Trajectories in numbered groups of one HDF5 file, as ManiSkill and Minari write them.

Observations have one more entry than actions. The last one was seen after the last action, and no
decision followed it. It is dropped, so that row t is what was seen, done and received at step t.

Legend: T actions of a trajectory.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from rrf.data.formats import hdf5
from rrf.data.raw import RawEpisode


def names(file: h5py.File, prefix: str, path: Path) -> list[str]:
    """The groups PREFIX0, PREFIX1, ... in the order of their numbers.

    Raises:
        ValueError: If there are none.
    """
    trajectories = hdf5.numbered(file, prefix, str(path))
    if not trajectories:
        raise ValueError(f"{path} holds no episodes ({prefix}0, ...); found: {list(file)[:8]}")
    return trajectories


def group_at(file: h5py.File, name: str, path: Path) -> h5py.Group:
    """The group of one trajectory."""
    group = hdf5.find(file, name, str(path))
    if not isinstance(group, h5py.Group):
        raise ValueError(f"{path}: {name} is not a group; found: {list(file)[:8]}")
    return group


def keys(path: Path, prefix: str) -> dict[str, str]:
    """What the first trajectory of a file holds: key -> "float32[7]", "image[480, 640]" or "text".

    Raises:
        ValueError: If there is none.
    """
    with hdf5.open_file(path) as file:
        name = names(file, prefix, path)[0]
        datasets = hdf5.list_datasets(group_at(file, name, path), f"{path}:{name}")
        keys = {key: hdf5.describe(node) for key, node in datasets.items()}
    return {key: what for key, what in keys.items() if what is not None}


def check_keys(wanted: Sequence[str], known: Mapping[str, str], where: str | Path) -> None:
    """Raise ValueError for a key that is not known."""
    for key in wanted:
        if key not in known:
            raise hdf5.unknown_key(key, known, str(where))


def read(
    group: h5py.Group,
    wanted: Sequence[str],
    length: int,
    allowed: Mapping[str, Collection[int]],
    where: str,
    fps: float | None = None,
) -> RawEpisode:
    """One trajectory.

    Args:
        group: Its group.
        wanted: Keys below the group.
        length: T.
        allowed: The allowed numbers of entries, by the first part of the key; T for all other keys.
        where: The beginning of every error message.
        fps: Frames per second, if known.

    Raises:
        ValueError: For damaged data; the message names file, trajectory and key.
    """

    def columns() -> Iterator[tuple[str, np.ndarray]]:
        for key in wanted:
            values = hdf5.read(group, key, where)
            expected = allowed.get(key.split("/")[0], (length,))
            if np.ndim(values) == 0 or len(values) not in expected:
                raise ValueError(
                    f"{where}: {key} has shape {list(np.shape(values))}, but {length} actions need "
                    f"{' or '.join(map(str, expected))} entries"
                )
            yield key, hdf5.channels_last(values[:length])

    arrays, images = hdf5.arrays_and_images(columns(), where)
    return RawEpisode(arrays, images, instruction=None, source=where, fps=fps)
