"""Minari datasets in HDF5, read without the minari package.

    data/main_data.hdf5
        /episode_0   attrs: id, total_steps, seed
            observations        [T+1, ...], or nested groups (Dict: names, Tuple: _index_0, ...)
            actions             [T, ...], or nested groups
            rewards terminations truncations   [T]
            infos/...           [T+1, ...] or [T, ...]; in newer files one array of JSON texts
    data/metadata.json          total_episodes, total_steps, data_format, dataset_id

Layout: https://github.com/Farama-Foundation/Minari, minari/dataset/_storages/hdf5_storage.py. The
observation and info after the last action are dropped. Old datasets keep the metadata as attributes
of the HDF5 file. Minari's other formats, arrow and parquet, are refused.

Legend: T actions of an episode.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import h5py

from rrf.config import Cfg, configclass
from rrf.data.formats import hdf5, hdf5_trajectories
from rrf.data.formats.json_files import read_object
from rrf.data.raw import OneByOne, RawEpisode, Recording

_PREFIX = "episode_"
_MAIN = "main_data.hdf5"
_METADATA = "metadata.json"


@configclass
class MinariOptions(Cfg):
    """Options of the format minari. There are none."""


class MinariSource(OneByOne):
    """Reads the Minari datasets under a directory; each is a recording."""

    def __init__(self, path: Path, options: dict):
        MinariOptions.from_dict(options)
        self._path = Path(path)

    def recordings(self) -> list[Recording]:
        """One recording per dataset.

        Raises:
            ValueError: If there are none, if one is not stored as HDF5, or if it holds another
                number of episodes than its metadata says.
        """
        recordings = []
        for path in self._files():
            with hdf5.open_file(path) as file:
                names = hdf5_trajectories.names(file, _PREFIX, path)
                total_episodes = _total_episodes(file, path)
            if total_episodes != len(names):
                raise ValueError(
                    f"{path} holds {len(names)} episodes, its metadata says {total_episodes}; "
                    "copy both again"
                )
            json_path = path.with_name(_METADATA)
            paths = (path, json_path) if json_path.is_file() else (path,)
            recordings.append(Recording(hdf5.recording_name(path, self._path), paths, len(names)))
        return recordings

    def keys(self) -> dict[str, str]:
        """What the first episode of the first dataset holds."""
        return hdf5_trajectories.keys(self._files()[0], _PREFIX)

    def readers(
        self, recording: Recording, keys: Sequence[str]
    ) -> Iterator[Callable[[], RawEpisode]]:
        """Of the episodes of a dataset in the order of their numbers.

        Raises:
            ValueError: For damaged data; the message names file, episode and key.
        """
        hdf5_trajectories.check_keys(keys, self.keys(), self._path)
        path = recording.paths[0]
        with hdf5.open_file(path) as file:
            for name in hdf5_trajectories.names(file, _PREFIX, path):
                yield functools.partial(_episode, file, name, path, keys)

    def _files(self) -> list[Path]:
        for metadata in sorted(self._path.glob(f"**/data/{_METADATA}")):
            data_format = read_object(metadata).get("data_format", "hdf5")
            if data_format != "hdf5":
                raise ValueError(
                    f"{metadata.parent} is stored as {data_format}, only hdf5 is read; write it "
                    "again with minari: create_dataset_from_buffers(..., data_format='hdf5')"
                )
        return hdf5.find_files(self._path, f"**/{_MAIN}")


def _episode(file: h5py.File, name: str, path: Path, keys: Sequence[str]) -> RawEpisode:
    group, where = hdf5_trajectories.group_at(file, name, path), f"{path}:{name}"
    length = _length(group, where)
    allowed = {"observations": (length + 1,), "infos": (length, length + 1)}
    return hdf5_trajectories.read(group, keys, length, allowed, where)


def _total_episodes(file: h5py.File, path: Path) -> int:
    json_path = path.with_name(_METADATA)
    if json_path.is_file():
        total, where = read_object(json_path).get("total_episodes"), str(json_path)
    else:
        total, where = hdf5.number_attribute((file,), "total_episodes", str(path)), str(path)
        if total is None:
            raise ValueError(f"{path} has no {_METADATA} beside it; copy the whole directory")
    if isinstance(total, bool) or not isinstance(total, int | float):
        raise ValueError(f"{where}: total_episodes is {total!r}, expected a number")
    return int(total)


def _length(group: h5py.Group, where: str) -> int:
    rewards = hdf5.read(group, "rewards", where)
    total_steps = hdf5.number_attribute((group,), "total_steps", where)
    if rewards.ndim != 1 or len(rewards) == 0:
        raise ValueError(f"{where}: rewards has shape {list(rewards.shape)}, expected [T], T > 0")
    if total_steps is not None and total_steps != len(rewards):
        raise ValueError(
            f"{where} has {len(rewards)} rewards, but its attribute total_steps says "
            f"{total_steps:g}"
        )
    return len(rewards)
