"""Where the episodes of a flat file begin and end.

`terminals` and `timeouts` say it. Without `timeouts`, `next_observations` shows it: within an
episode it is the observation of the next row, and after the last step of an episode it is not,
because the next row is the first one after a reset. An episode that ends although its last step
leads to the next row is cut in the middle.

Some recorders store the observation after the reset instead. It then equals the next row even after
a terminal state, and tells nothing.

Legend: N rows of the file.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

import h5py
import numpy as np

from rrf.data.formats import hdf5

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
    found = []
    for start, stop in _split(ends_n, limit or len(ends_n)):
        continues = None
        if joined_n is not None:
            is_last = stop == len(ends_n)
            continues = not is_last and not terminals_n[stop - 1] and bool(joined_n[stop - 1])
        found.append(Span(start, stop, continues))
    return found


def describe_lengths(found: Sequence[Span]) -> str:
    """The lengths of some episodes in a few words."""
    lengths = [len(span) for span in found]
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
