"""What a LeRobot directory says of the numbers of each episode, and whether they agree with it.

v2.1 has meta/episodes_stats.jsonl, {"episode_index", "stats": {feature: {min, max, mean, ...}}} per
line, v3.0 columns "stats/<feature>/<statistic>" of the episode table. v2.0 has none of episodes;
its meta/stats.json is of all together, so that no episode may leave its bounds. Means of the
pixels of a video, of which a writer looks at some frames, are compared roughly.

Legend: T frames of an episode, D dimensions, C channels.
"""

from collections.abc import Mapping

import numpy as np

from rrf.data.formats import arrow_arrays as arrow
from rrf.data.formats.json_files import read_object
from rrf.data.formats.lerobot_files import Index, read_lines

STATISTICS = "meta/episodes_stats.jsonl"
ALL_STATISTICS = "meta/stats.json"
_PREFIX = "stats/"
_BOUNDS = ("min", "max")
_OF_RANGE, _OF_VALUE = 1e-4, 1e-5  # by which rounding may move a statistic
_OF_STD = 1e-3  # of range and value: a std that was made of sums of squares
_OF_PIXELS = 0.1  # of white


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


def read_all_statistics(index: Index) -> dict[str, dict]:
    """Feature -> statistic -> a value per dimension of v2.0, which has them of all episodes only.

    Raises ValueError naming the file if it is damaged.
    """
    path = index.root / ALL_STATISTICS
    if index.info["codebase_version"] != "v2.0" or not path.is_file():
        return {}
    return {key: said for key, said in read_object(path).items() if isinstance(said, dict)}


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
    range_d, size_d = high_d - low_d, np.abs(values_td).max(axis=0)
    rounding_d = _OF_RANGE * range_d + _OF_VALUE * size_d
    of_std_d = _OF_STD * (range_d + size_d)
    stds = [values_td.std(axis=0, ddof=ddof) for ddof in (0, 1) if len(values) > ddof]
    for name, found, allowed_d in (
        ("min", [low_d], rounding_d),
        ("max", [high_d], rounding_d),
        ("mean", [values_td.mean(axis=0)], rounding_d),
        ("std", stds, of_std_d),  # of a sample, or of all
    ):
        told_d = _numbers(said.get(name), len(low_d))
        if told_d is None:
            continue
        is_off = np.all([np.abs(found_d - told_d) > allowed_d for found_d in found], axis=0)
        if is_off.any():
            at = int(is_off.argmax())
            what = f"{name} of dimension {at} is {found[0][at]:.5g}"
            return f"{what}, its statistics say {told_d[at]:.5g}"
    return None


def out_of_bounds(values: np.ndarray, said: Mapping) -> str | None:
    """Which number of an episode lies outside the statistics of the whole dataset.

    Args:
        values: [T, ...].
        said: As for `contradiction`, of all episodes together.
    """
    values_td = values.reshape(len(values), -1).astype(np.float64)
    low_d, high_d = (_numbers(said.get(name), values_td.shape[1]) for name in _BOUNDS)
    if low_d is None or high_d is None:
        return None
    rounding_d = _OF_RANGE * (high_d - low_d) + _OF_VALUE * np.maximum(abs(low_d), abs(high_d))
    is_off = (values_td < low_d - rounding_d) | (values_td > high_d + rounding_d)
    if not is_off.any():
        return None
    frame, at = np.argwhere(is_off)[0].tolist()
    return (
        f"at frame {frame}, dimension {at} is {values_td[frame, at]:.5g}, {ALL_STATISTICS} says "
        f"{low_d[at]:.5g} to {high_d[at]:.5g}"
    )


def pixel_contradiction(images_thw3: np.ndarray, said: Mapping) -> str | None:
    """How the mean of pixels differs from the statistics of an episode by more than sampling does.

    Args:
        images_thw3: uint8.
        said: As for `contradiction`; a mean per channel, of pixels from 0 to 1, or to 255.
    """
    told_c = _numbers(said.get("mean"), 3)
    most_c = _numbers(said.get("max"), 3)
    if told_c is None:
        return None
    white = 255.0 if most_c is not None and most_c.max() > 1.0 + _OF_PIXELS else 1.0
    found_c = images_thw3.mean(axis=(0, 1, 2), dtype=np.float64) / 255.0
    is_off = np.abs(found_c - told_c / white) > _OF_PIXELS
    if not is_off.any():
        return None
    at = int(is_off.argmax())
    return (
        f"channel {at} has the mean {found_c[at]:.2g} of white, its statistics say "
        f"{told_c[at] / white:.2g}"
    )


def _numbers(value, size: int) -> np.ndarray | None:
    try:
        numbers = np.asarray([] if value is None else value, np.float64).ravel()
    except (TypeError, ValueError):
        return None
    return numbers if numbers.size == size else None
