"""D4RL datasets: all transitions of all episodes in flat arrays of one HDF5 file.

    observations [N, O]  actions [N, A]  rewards [N]  terminals [N]    (the last two also [N, 1])
    timeouts [N]  next_observations [N, O]  infos/... [N, ...]         where recorded
    metadata/...                                                       not per step, not offered

Layout: https://github.com/Farama-Foundation/D4RL, arXiv:2004.07219. An episode ends where
`terminals` or `timeouts` is true. Files without `timeouts` are cut after `max_episode_steps` of the
task, as `d4rl.qlearning_dataset` does. That function also drops the step at a timeout, because it
takes the next row as the next observation; here every step is kept. Quaternions in MuJoCo states
are WXYZ.

Legend: N transitions of the file, O A observation and action dimension.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np

from rrf.config import Cfg, configclass
from rrf.data.formats import hdf5
from rrf.data.raw import RawEpisode, Recording

_REQUIRED = ("observations", "actions", "rewards", "terminals")


@configclass
class D4RLOptions(Cfg):
    """Options of the format d4rl."""

    pattern: str = "**/*.hdf5"
    """Which files in the directory."""
    max_episode_steps: int | None = None
    """Episode length limit of the task. Files without timeouts need it; others do not use it."""
    keep_unfinished: bool = True
    """Keep the last episode of a file if the recording stopped before its end."""

    def __post_init__(self):
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise ValueError(f"max_episode_steps must be positive, not {self.max_episode_steps}")


class D4RLSource:
    """Reads D4RL files; each file is a recording."""

    def __init__(self, path: Path, options: dict):
        self._options = D4RLOptions.from_dict(options)
        self._path = Path(path)

    def recordings(self) -> list[Recording]:
        """One recording per file. Raises ValueError if there are none or one has no episodes."""
        found = []
        for path in self._files():
            name = hdf5.recording_name(path, self._path)
            with hdf5.open_file(path) as file:
                found.append(Recording(name, (path,), len(self._ranges(file, path))))
        return found

    def keys(self) -> dict[str, str]:
        """The arrays of the first file that have a row per step."""
        path = self._files()[0]
        with hdf5.open_file(path) as file:
            return _keys(file, _num_steps(file, path), path)

    def episodes(self, recording: Recording, keys: Sequence[str]) -> Iterator[RawEpisode]:
        """The episodes of a file in the order of recording.

        Raises:
            ValueError: For damaged data; the message names file and key.
        """
        known = self.keys()
        for key in keys:
            if key not in known:
                raise hdf5.unknown_key(key, known, str(self._path))
        (path,) = recording.paths
        with hdf5.open_file(path) as file:
            num_steps = _num_steps(file, path)
            columns = {key: _column(file, key, num_steps, path) for key in keys}
            for number, (start, stop) in enumerate(self._ranges(file, path)):
                where = f"{path}:episode_{number}"
                rows = ((key, _rows(columns[key], key, start, stop, where)) for key in keys)
                arrays, images = hdf5.arrays_and_images(rows, where)
                yield RawEpisode(arrays, images, instruction=None, source=where)

    def _files(self) -> list[Path]:
        return hdf5.find_files(self._path, self._options.pattern)

    def _ranges(self, file: h5py.File, path: Path) -> list[tuple[int, int]]:
        """First row and one past the last row of each episode."""
        num_steps = _num_steps(file, path)
        ends = _flags(file, "terminals", num_steps, path)
        limit = None
        if hdf5.find(file, "timeouts", str(path)) is not None:
            ends |= _flags(file, "timeouts", num_steps, path)
        elif self._options.max_episode_steps is not None:
            limit = self._options.max_episode_steps
        else:
            raise ValueError(
                f"{path} has no timeouts; set the option max_episode_steps to the length limit of "
                "the task (1000 for MuJoCo locomotion)"
            )
        ranges = list(_split(ends, limit or num_steps))
        start, stop = ranges[-1]
        is_unfinished = not ends[-1] and stop - start != limit
        if is_unfinished and not self._options.keep_unfinished:
            ranges.pop()
        if not ranges:
            raise ValueError(f"{path}: none of its {num_steps} steps ends an episode")
        return ranges


def _split(ends: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    start = 0
    for stop in sorted({*(np.flatnonzero(ends) + 1).tolist(), len(ends)}):
        for first in range(start, stop, limit):
            yield first, min(first + limit, stop)
        start = stop


def _num_steps(file: h5py.File, path: Path) -> int:
    lengths = {}
    for key in _REQUIRED:
        dataset = hdf5.find(file, key, str(path))
        if not isinstance(dataset, h5py.Dataset):
            raise hdf5.unknown_key(key, hdf5.list_datasets(file, str(path)), str(path))
        lengths[key] = len(dataset) if dataset.shape else 0
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{path}: the arrays differ in length: {lengths}")
    if not lengths["actions"]:
        raise ValueError(f"{path} holds no transitions, so no episodes")
    return lengths["actions"]


def _keys(file: h5py.File, num_steps: int, path: Path) -> dict[str, str]:
    found = {}
    for key, dataset in hdf5.list_datasets(file, str(path)).items():
        what = hdf5.describe(dataset)
        is_wanted = key.split("/")[0] != "metadata" and what not in (None, "text")
        if is_wanted and len(dataset) == num_steps:
            found[key] = str(what)
    return found


def _flags(file: h5py.File, key: str, num_steps: int, path: Path) -> np.ndarray:
    values = hdf5.read(file, key, str(path))
    if values.shape not in ((num_steps,), (num_steps, 1)):
        raise ValueError(f"{path}: {key} has shape {list(values.shape)}, expected [{num_steps}]")
    return values.reshape(num_steps).astype(bool)


def _column(file: h5py.File, key: str, num_steps: int, path: Path) -> h5py.Dataset:
    dataset = hdf5.find(file, key, str(path))
    if not isinstance(dataset, h5py.Dataset):
        raise hdf5.unknown_key(key, _keys(file, num_steps, path), str(path))
    if dataset.shape[:1] != (num_steps,):
        raise ValueError(
            f"{path}: {key} has shape {list(dataset.shape)}, expected {num_steps} rows"
        )
    return dataset


def _rows(dataset: h5py.Dataset, key: str, start: int, stop: int, where: str) -> np.ndarray:
    """The rows of one episode only, because files hold millions of steps."""
    return hdf5.channels_last(hdf5.read_stored(dataset, key, where, slice(start, stop)))
