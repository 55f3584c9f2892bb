"""D4RL datasets: all transitions of all episodes in flat arrays of one HDF5 file.

    observations [N, O]  actions [N, A]  rewards [N]  terminals [N]    (the last two also [N, 1])
    timeouts [N]  next_observations [N, O]  infos/... [N, ...]         where recorded
    metadata/...                                                       not per step, not offered

Layout: https://github.com/Farama-Foundation/D4RL, arXiv:2004.07219. An episode ends where
`terminals` or `timeouts` is true. In files without `timeouts` it ends where `next_observations` is
not the observation of the next row, the first one after a reset; a warning says which episodes were
found. Some recorders store the observation after the reset in `next_observations`. It then equals
the next row even after a terminal state, and tells nothing. The option
`max_episode_steps` cuts them after that many steps instead, as `d4rl.qlearning_dataset` does. That
function also drops the step at a timeout, because it takes the next row as the next observation;
here every step is kept. Quaternions in MuJoCo states are WXYZ.

However a file is cut, an episode says whether its last step leads to the next row, if
`next_observations` tells. Validation then finds episodes that were cut in the middle.

Legend: N transitions of the file, O A observation and action dimension.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from rrf.config import Cfg, configclass
from rrf.data.formats import hdf5
from rrf.data.raw import OneByOne, RawEpisode, Recording

_REQUIRED = ("observations", "actions", "rewards", "terminals")
_BLOCK_BYTES = 64 << 20  # compared at a time
_MAX_LISTED = 12  # lengths
_MAX_BREAKS = 0.5  # of all rows; with more, rows are not in the order of time


@dataclasses.dataclass(frozen=True)
class Span:
    """The rows of one episode."""

    start: int
    stop: int  # exclusive
    continues: bool | None  # whether its last step leads to the next row; None: nothing says so

    def __len__(self) -> int:
        return self.stop - self.start


@configclass
class D4RLOptions(Cfg):
    """Options of the format d4rl."""

    pattern: str = "**/*.hdf5"
    """Which files in the directory."""
    max_episode_steps: int | None = None
    """Cut files without timeouts after so many steps, the episode length limit of the task; if not
    set, next_observations tell where episodes end. Files with timeouts do not use it.
    """
    keep_unfinished: bool = True
    """Keep the last episode of a file if the recording stopped before its end."""

    def __post_init__(self):
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise ValueError(f"max_episode_steps must be positive, not {self.max_episode_steps}")


class D4RLSource(OneByOne):
    """Reads D4RL files; each file is a recording."""

    def __init__(self, path: Path, options: dict):
        self._options = D4RLOptions.from_dict(options)
        self._path = Path(path)
        self._warnings: dict[str, None] = {}
        self._spans: dict[Path, list[Span]] = {}

    @property
    def warnings(self) -> list[str]:
        """How files without timeouts were cut."""
        return list(self._warnings)

    def recordings(self) -> list[Recording]:
        """One recording per file. Raises ValueError if there are none or one has no episodes."""
        recordings = []
        for path in self._files():
            name = hdf5.recording_name(path, self._path)
            with hdf5.open_file(path) as file:
                recordings.append(Recording(name, (path,), len(self._episodes(file, path))))
        return recordings

    def keys(self) -> dict[str, str]:
        """The arrays of the first file that have a row per step."""
        path = self._files()[0]
        with hdf5.open_file(path) as file:
            return _keys(file, _num_steps(file, path), path)

    def readers(
        self, recording: Recording, keys: Sequence[str]
    ) -> Iterator[Callable[[], RawEpisode]]:
        """Of the episodes of a file in the order of recording.

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
            for number, span in enumerate(self._episodes(file, path)):
                yield functools.partial(_episode, columns, span, f"{path}:episode_{number}")

    def _files(self) -> list[Path]:
        return hdf5.find_files(self._path, self._options.pattern)

    def _episodes(self, file: h5py.File, path: Path) -> list[Span]:
        if path not in self._spans:
            self._spans[path] = self._cut(file, path)
        return self._spans[path]

    def _cut(self, file: h5py.File, path: Path) -> list[Span]:
        num_steps = _num_steps(file, path)
        terminals = _flags(file, "terminals", num_steps, path)
        ends, limit, is_inferred = terminals.copy(), None, False
        joined = leads_to_next_row(file, str(path))
        if joined is not None and not is_usable(joined, terminals):
            joined = None
        if hdf5.find(file, "timeouts", str(path)) is not None:
            ends |= _flags(file, "timeouts", num_steps, path)
        elif self._options.max_episode_steps is not None:
            limit = self._options.max_episode_steps
        elif joined is not None:
            ends[:-1] |= ~joined
            is_inferred = True
        else:
            raise _nothing_tells(file, path)
        episode_spans = spans(ends, terminals, joined, limit)
        usual = limit or (max(map(len, episode_spans[:-1]), default=0) if is_inferred else None)
        is_unfinished = not ends[-1] and len(episode_spans[-1]) != usual
        if is_unfinished and not self._options.keep_unfinished:
            episode_spans.pop()
        if not episode_spans:
            raise ValueError(f"{path}: none of its {num_steps} steps ends an episode")
        self._tell(episode_spans, path, is_inferred)
        return episode_spans

    def _tell(self, episode_spans: list[Span], path: Path, is_inferred: bool) -> None:
        """Warn of what the file does not say itself, and of what contradicts it."""
        if is_inferred:
            self._warnings[
                f"{path} has no timeouts. Its next_observations show {len(episode_spans)} "
                f"episodes, of {describe_lengths(episode_spans)}. If that is wrong, set the option "
                "max_episode_steps"
            ] = None
        wrong = {number: span for number, span in enumerate(episode_spans) if span.continues}
        if wrong:
            number, span = next(iter(wrong.items()))
            self._warnings[
                f"{path}: {len(wrong)} of {len(episode_spans)} episodes end although their last "
                "next_observations is the observation of the next row; they are cut in the middle. "
                f"The first is episode_{number}, rows {span.start} to {span.stop - 1}"
            ] = None


def _nothing_tells(file: h5py.File, path: Path) -> ValueError:
    has_next = hdf5.find(file, "next_observations", str(path)) is not None
    why = (
        "no timeouts, and its next_observations do not show where episodes end (they are those "
        "after the reset, or rows are not in the order of time)"
        if has_next
        else "neither timeouts nor next_observations, so nothing tells where an episode ends that "
        "reached no terminal state"
    )
    return ValueError(
        f"{path} has {why}. Write the length limit of the task into the config, source: {{options: "
        "{max_episode_steps: N}}. A wrong number cuts episodes in the middle, so look it up where "
        "the file was made"
    )


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
    keys = {}
    for key, dataset in hdf5.list_datasets(file, str(path)).items():
        what = hdf5.describe(dataset)
        is_wanted = key.split("/")[0] != "metadata" and what not in (None, "text")
        if is_wanted and len(dataset) == num_steps:
            keys[key] = str(what)
    return keys


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


def _episode(columns: Mapping[str, h5py.Dataset], span: Span, where: str) -> RawEpisode:
    rows = ((key, _rows(dataset, key, span, where)) for key, dataset in columns.items())
    arrays, images = hdf5.arrays_and_images(rows, where)
    return RawEpisode(arrays, images, None, where, continues=span.continues)


def _rows(dataset: h5py.Dataset, key: str, span: Span, where: str) -> np.ndarray:
    """The rows of one episode only, because files hold millions of steps."""
    return hdf5.channels_last(hdf5.read_stored(dataset, key, where, slice(span.start, span.stop)))


def leads_to_next_row(file: h5py.File, where: str) -> np.ndarray | None:
    """For each row but the last whether `next_observations` is the observation of the row after it,
    bool [N-1]. None if it is not recorded.

    Numbers may differ by rounding. Raises ValueError if the two arrays differ in shape.
    """
    following, seen = (hdf5.find(file, key, where) for key in ("next_observations", "observations"))
    if not isinstance(following, h5py.Dataset) or not isinstance(seen, h5py.Dataset):
        return None
    if following.shape != seen.shape:
        raise ValueError(
            f"{where}: next_observations has shape {list(following.shape)}, observations "
            f"{list(seen.shape)}"
        )
    num_rows = len(seen)
    row_bytes = max(1, seen.dtype.itemsize * seen.size // num_rows)
    step = max(1, _BLOCK_BYTES // row_bytes)
    joined = np.empty(num_rows - 1, bool)
    for start in range(0, num_rows - 1, step):
        stop = min(start + step, num_rows - 1)
        led_to = hdf5.read(file, "next_observations", where, slice(start, stop))
        came = hdf5.read(file, "observations", where, slice(start + 1, stop + 1))
        joined[start:stop] = _are_equal(led_to, came)
    return joined


def is_usable(joined_n: np.ndarray, terminals_n: np.ndarray) -> bool:
    """Whether `leads_to_next_row` tells episodes apart: not if it holds after every terminal state,
    and not if it holds almost nowhere.
    """
    after_terminals = joined_n[terminals_n[:-1]]
    is_reset = len(after_terminals) > 0 and bool(after_terminals.all())
    num_breaks = int(np.count_nonzero(~joined_n))
    return not is_reset and num_breaks <= _MAX_BREAKS * len(joined_n)


def spans(
    ends_n: np.ndarray, terminals_n: np.ndarray, joined_n: np.ndarray | None, limit: int | None
) -> list[Span]:
    """The episodes that end where `ends` says, or after `limit` rows."""
    episode_spans = []
    for start, stop in _split(ends_n, limit or len(ends_n)):
        continues = None
        if joined_n is not None:
            is_last = stop == len(ends_n)
            continues = not is_last and not terminals_n[stop - 1] and bool(joined_n[stop - 1])
        episode_spans.append(Span(start, stop, continues))
    return episode_spans


def describe_lengths(episode_spans: Sequence[Span]) -> str:
    """The lengths of some episodes in a few words."""
    lengths = [len(span) for span in episode_spans]
    if len(set(lengths)) == 1:
        return f"{lengths[0]} steps"
    if len(lengths) <= _MAX_LISTED:
        return f"{', '.join(map(str, lengths[:-1]))} and {lengths[-1]} steps"
    ((usual, count),) = Counter(lengths).most_common(1)
    return f"{min(lengths)} to {max(lengths)} steps ({count} of them of {usual})"


def _are_equal(led_to: np.ndarray, came: np.ndarray) -> np.ndarray:
    """Which rows agree, as far as the coarser of the two types can tell."""
    if led_to.dtype.kind == "f" and came.dtype.kind == "f":
        coarser = min(led_to.dtype, came.dtype, key=lambda dtype: dtype.itemsize)
        led_to, came = led_to.astype(coarser), came.astype(coarser)
        rounding = 4 * float(np.finfo(coarser).eps)
        same = np.isclose(led_to, came, rtol=rounding, atol=1e-8, equal_nan=True)
    else:
        same = np.equal(led_to, came)
    return np.asarray(np.reshape(same, (len(led_to), -1)).all(axis=1))


def _split(ends_n: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    start = 0
    for stop in sorted({*(np.flatnonzero(ends_n) + 1).tolist(), len(ends_n)}):
        for first in range(start, stop, limit):
            yield first, min(first + limit, stop)
        start = stop
