"""Two small tables about a dataset, which `dvc plots` draws and compares between versions.

episode_lengths.json: [{"frames": where a bin begins, "episodes": how many are in it}, ...]
dimensions.json: [{"dimension": "action.dx", "min", "q01", "mean", "q99", "max"}, ...]
"""

import math

import numpy as np

from rrf.data.dataset.stats import describe
from rrf.data.validation.tables import Tables, dimension_columns

_MAX_BINS = 40
_STATISTICS = ("min", "q01", "mean", "q99", "max")


def plot_tables(tables: Tables | None) -> dict[str, list[dict]]:
    """File name -> rows; no rows for a dataset that could not be read."""
    lengths, dimensions = [], []
    if tables is not None:
        lengths = episode_lengths(tables.episodes["num_rows"].dropna().to_numpy(int))
        dimensions = _dimensions(tables)
    return {"episode_lengths.json": lengths, "dimensions.json": dimensions}


def episode_lengths(lengths: np.ndarray) -> list[dict]:
    """How many episodes are how long, in at most 40 bins of the same whole width."""
    low, high = int(lengths.min()), int(lengths.max())
    width = -(-(high - low + 1) // _MAX_BINS)
    starts = range(low, high + 1, width)
    counts = np.bincount((lengths - low) // width)
    return [
        {"frames": start, "episodes": int(count)}
        for start, count in zip(starts, counts, strict=True)
    ]


def _dimensions(tables: Tables) -> list[dict]:
    rows = []
    for key, names in dimension_columns(tables.schema).items():
        stats = describe(tables.vectors[key])
        for index, name in enumerate(names):
            values = {kind: float(stats[kind][index]) for kind in _STATISTICS}
            rows.append({"dimension": name} | {k: _rounded(v) for k, v in values.items()})
    return rows


def _rounded(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
