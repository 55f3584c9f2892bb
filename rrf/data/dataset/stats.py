"""Statistics of a dataset: per dimension min, max, mean, standard deviation and quantiles, in one
streaming pass.

Minimum, maximum, mean and (population) standard deviation are exact, merged in float64 by Chan et
al.'s formula. Image statistics are exact too, from a histogram of the 256 levels. Quantiles of
vectors are exact up to `MAX_EXACT_ROWS` rows; beyond that they are those of every 2nd, 4th, ...
row. The rows wait for the end in a file, so memory stays small whatever their number.

Legend: N rows, D dimensions, L the 256 levels of a pixel, C channels.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rrf.data.dataset import parquet
from rrf.data.schema import ACTION, STATE

NORM_KEYS = ("min", "max", "mean", "std", "q01", "q99", "count")
QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
STATISTICS = ("min", "max", "mean", "std", "count", *QUANTILES)
"""Of every feature in meta/stats.json, as lerobot 0.6.1 writes them."""
MAX_EXACT_ROWS = 1 << 22
_BLOCK_ROWS = 1 << 12
_QUANTILE_BYTES = 32 << 20

Stats = dict[str, np.ndarray]  # "min" ... "q99" -> float64 [D]; "count" -> int64 [1]


def describe(values_nd: np.ndarray) -> Stats:
    """Statistics of the rows of one array in memory, all exact."""
    values = np.asarray(values_nd, np.float64)
    quantiles = np.quantile(values, list(QUANTILES.values()), axis=0)
    return {
        "min": values.min(axis=0),
        "max": values.max(axis=0),
        "mean": values.mean(axis=0),
        "std": values.std(axis=0),
        "count": np.array([len(values)]),
        **dict(zip(QUANTILES, quantiles, strict=True)),
    }


class VectorStats:
    """Statistics of a stream of rows.

    Args:
        max_exact_rows: Quantiles are exact up to this many rows.
        folder: Where rows wait for the quantiles, in a file without a name; the system's directory
            of temporary files by default.
    """

    def __init__(self, max_exact_rows: int = MAX_EXACT_ROWS, folder: Path | None = None):
        self._count = 0
        self._kept = _Rows(folder)
        self._stride = 1
        self._max_rows = max_exact_rows
        self._min = self._max = self._mean = self._squares = np.zeros(0)

    @property
    def count(self) -> int:
        """The number of rows so far."""
        return self._count

    def update(self, values_nd: np.ndarray) -> None:
        """Add the rows of [N, D]; N may be 0."""
        if len(values_nd) == 0:
            return
        values = np.asarray(values_nd, np.float64)
        low, high, mean = values.min(axis=0), values.max(axis=0), values.mean(axis=0)
        squares = ((values - mean) ** 2).sum(axis=0)
        added = len(values)
        if self._count == 0:
            self._min, self._max, self._mean, self._squares = low, high, mean, squares
        else:
            total, delta = self._count + added, mean - self._mean
            self._min, self._max = np.minimum(self._min, low), np.maximum(self._max, high)
            self._squares = self._squares + squares + delta**2 * (self._count * added / total)
            self._mean = self._mean + delta * (added / total)
        self._keep(values[-self._count % self._stride :: self._stride])
        self._count += added

    def result(self) -> Stats:
        """The statistics so far. Raises ValueError if no row was added."""
        if self._count == 0:
            raise ValueError("no values, so no statistics")
        quantiles = self._kept.quantiles()
        return {
            "min": self._min,
            "max": self._max,
            "mean": self._mean,
            "std": np.sqrt(self._squares / self._count),
            "count": np.array([self._count]),
            **dict(zip(QUANTILES, quantiles, strict=True)),
        }

    def _keep(self, rows: np.ndarray) -> None:
        self._kept.append(rows)
        while self._kept.num_rows > self._max_rows:
            self._kept.thin()
            self._stride *= 2


class _Rows:
    """Rows kept for their quantiles, as float64 in a file without a name."""

    def __init__(self, folder: Path | None):
        self.num_rows = self._num_columns = 0
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open until collected)

    def append(self, rows: np.ndarray) -> None:
        """Add float64 [N, D]."""
        self._num_columns = rows.shape[1]
        self._file.write(rows.tobytes())
        self.num_rows += len(rows)

    def thin(self) -> None:
        """Keep every second row."""
        kept = _Rows(self._folder)
        for start, block in self._blocks():
            kept.append(block[start % 2 :: 2])
        self._file.close()
        self._file, self.num_rows = kept._file, kept.num_rows

    def quantiles(self) -> np.ndarray:
        """float64 [len(QUANTILES), D]."""
        at_once = max(1, _QUANTILE_BYTES // (8 * self.num_rows))
        parts = []
        for first in range(0, self._num_columns, at_once):
            columns = slice(first, min(first + at_once, self._num_columns))
            rows = np.empty((self.num_rows, columns.stop - columns.start))
            for start, block in self._blocks():
                rows[start : start + len(block)] = block[:, columns]
            values = np.quantile(rows, list(QUANTILES.values()), axis=0, overwrite_input=True)
            parts.append(values)
        return np.concatenate(parts, axis=1)

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows) of consecutive pieces of the file."""
        self._file.seek(0)
        for start in range(0, self.num_rows, _BLOCK_ROWS):
            num = min(_BLOCK_ROWS, self.num_rows - start)
            content = self._file.read(num * self._num_columns * 8)
            yield start, np.frombuffer(content, np.float64).reshape(num, self._num_columns)


class ImageStats:
    """Statistics of images per channel, pixels scaled to [0, 1]; `count` counts images."""

    def __init__(self, histogram_cl: np.ndarray | None = None, count: int = 0):
        """From what other `count` images gave, or from nothing."""
        self._count = count
        self._histogram_cl = (
            np.zeros((3, 256), np.int64) if histogram_cl is None else histogram_cl.copy()
        )

    @property
    def histogram_cl(self) -> np.ndarray:
        """int64 [3, 256], how many pixels have each level."""
        return self._histogram_cl

    def update(self, images: np.ndarray) -> None:
        """Add uint8 [N, H, W, 3]."""
        for channel in range(3):
            levels = np.ascontiguousarray(images[..., channel]).ravel()
            self._histogram_cl[channel] += np.bincount(levels, minlength=256)
        self._count += len(images)

    def merge(self, other: "ImageStats") -> None:
        """Add what `other` has seen."""
        self._histogram_cl += other._histogram_cl
        self._count += other._count

    def result(self) -> Stats:
        """The statistics so far, each but the count of shape [3, 1, 1].

        Raises ValueError if no image was added.
        """
        if self._count == 0:
            raise ValueError("no images, so no statistics")
        levels = np.arange(256) / 255.0
        num_pixels = self._histogram_cl[0].sum()
        mean = self._histogram_cl @ levels / num_pixels
        variance = (self._histogram_cl * (levels - mean[:, None]) ** 2).sum(axis=1) / num_pixels
        stats = {
            "min": self._order_statistic(0),
            "max": self._order_statistic(num_pixels - 1),
            "mean": mean,
            "std": np.sqrt(variance),
            **{name: self._quantile(q, num_pixels) for name, q in QUANTILES.items()},
        }
        return {name: value.reshape(3, 1, 1) for name, value in stats.items()} | {
            "count": np.array([self._count])
        }

    def _quantile(self, q: float, num_pixels: int) -> np.ndarray:
        """Linear interpolation between the two neighbouring pixels, as np.quantile does."""
        position = q * (num_pixels - 1)
        below = int(position)
        low = self._order_statistic(below)
        high = self._order_statistic(min(below + 1, num_pixels - 1))
        return low + (high - low) * (position - below)

    def _order_statistic(self, rank: int) -> np.ndarray:
        """The pixel of 0-based `rank` in sorted order, per channel."""
        cumulative = self._histogram_cl.cumsum(axis=1)
        return (cumulative <= rank).sum(axis=1) / 255.0


def plain(stats: Mapping[str, np.ndarray]) -> dict[str, list]:
    """Statistics as lists, for JSON and parquet."""
    return {name: value.tolist() for name, value in stats.items()}


def norm_stats(root: str | Path) -> dict[str, dict[str, list]]:
    """Normalisation statistics of a LeRobot v3 dataset, streamed from its data files.

    Returns:
        {"observation.state": {"min", "max", "mean", "std", "q01", "q99", "count"}, "action":
        {...}}, one value per dimension in each list but `count`.

    Raises:
        ValueError: If the dataset is missing, empty or damaged.
    """
    streams = {key: VectorStats() for key in (STATE, ACTION)}
    for path in parquet.data_files(root):
        table = parquet.read_table(path, list(streams))
        for key, stream in streams.items():
            stream.update(parquet.as_matrix(table[key]))
    results = {key: plain(stream.result()) for key, stream in streams.items()}
    return {key: {name: stats[name] for name in NORM_KEYS} for key, stats in results.items()}
