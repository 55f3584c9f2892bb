"""What a LeRobot directory says of the numbers of each episode, and whether they agree with it.

v2.1 has meta/episodes_stats.jsonl, {"episode_index", "stats": {feature: {min, max, mean, ...}}} per
line, v3.0 columns "stats/<feature>/<statistic>" of the episode table. v2.0 has none.

Legend: T frames of an episode, D dimensions.
"""

from collections.abc import Mapping

import numpy as np

from rrf.data.formats import arrow_arrays as arrow
from rrf.data.formats.lerobot_files import Index, read_lines

STATISTICS = "meta/episodes_stats.jsonl"
_PREFIX = "stats/"
_COMPARED = ("min", "max", "mean")
_OF_RANGE, _OF_VALUE = 1e-4, 1e-5  # by which rounding may move a statistic


def read_statistics(index: Index) -> dict[int, dict]:
    """Episode -> feature -> statistic -> a value per dimension; empty where the directory has none.

    Raises ValueError naming file and line if they are damaged.
    """
    said: dict[int, dict] = {}
    if not index.has_shared_files:
        path = index.root / STATISTICS
        for where, line in read_lines(path) if path.is_file() else ():
            stats = line.get("stats")
            if not isinstance(stats, dict):
                raise ValueError(f"{where} has no mapping 'stats'")
            said[line.get("episode_index", -1)] = stats
        return said
    for path in sorted(index.root.glob("meta/episodes/*/*.parquet")):
        names = [name for name in arrow.read_schema(path).names if name.startswith(_PREFIX)]
        for row in arrow.read_parquet(path, ["episode_index"], names).to_pylist():
            said[row["episode_index"]] = of_episode = {}
            for name in names:
                feature, _, statistic = name.removeprefix(_PREFIX).rpartition("/")
                of_episode.setdefault(feature, {})[statistic] = row[name]
    return said


def contradiction(values: np.ndarray, said: Mapping) -> str | None:
    """How the numbers of an episode differ from their statistics, in a few words.

    Args:
        values: [T, ...].
        said: Statistic -> a value per dimension; what has another number of them is not compared.
    """
    values_td = values.reshape(len(values), -1).astype(np.float64)
    if not np.isfinite(values_td).all():
        return None  # which is an error where the numbers are used
    low_d, high_d = values_td.min(axis=0), values_td.max(axis=0)
    count = _numbers(said.get("count"), 1)
    if count is not None and count[0] != len(values):
        return f"has {len(values)} frames, its statistics are of {count[0]:g}"
    rounding_d = _OF_RANGE * (high_d - low_d) + _OF_VALUE * np.abs(values_td).max(axis=0)
    for name, found_d in zip(_COMPARED, (low_d, high_d, values_td.mean(axis=0)), strict=True):
        told_d = _numbers(said.get(name), len(found_d))
        if told_d is None:
            continue
        is_off = np.abs(found_d - told_d) > rounding_d
        if is_off.any():
            at = int(is_off.argmax())
            what = f"{name} of dimension {at} is {found_d[at]:.5g}"
            return f"{what}, its statistics say {told_d[at]:.5g}"
    return None


def _numbers(value, size: int) -> np.ndarray | None:
    try:
        numbers = np.asarray([] if value is None else value, np.float64).ravel()
    except (TypeError, ValueError):
        return None
    return numbers if numbers.size == size else None
