"""Floors under the spread of nearly constant dimensions, by which a policy would divide.

A state of 0.3 that only trembles by 1e-8 would turn 1 mm into 67,000, and a finger that moves in
0.5 % of the frames has q01 = q99. A training raises such statistics before it makes its normaliser
of them, and its checkpoints hold the raised ones. What a checkpoint holds is never raised again.

    least     = max(absolute, relative * max(|min|, |max|))
    mean_std  std at least `least`
    min_max   [min, max] at least `least` to both sides of their middle
    quantile  [min, max] instead of [q01, q99], if these are closer than that, or if the dimension
              moves rarely: (q99 - q01) / 2 < std / 2, and (max - min) <= 33 std, i.e. in at least
              0.1 % of the frames. What is rarer is taken for outliers.

A dimension whose values are all equal stays as it is: it is only shifted. Its std becomes exactly
0, which rounding may have left above.

Legend: D dimensions.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from rrf.config import Cfg, configclass

_RAREST_SPAN = 33.0  # standard deviations; 1 / 33^2 is 0.1 % of the frames


@configclass
class FloorsCfg(Cfg):
    """The least spread by which a training normalises a dimension that is not quite constant."""

    relative: float = 1e-3
    """As a part of the dimension's largest absolute value. 0: no such floor."""
    absolute: float = 1e-4
    """In the dimension's own unit. 0: no such floor."""

    def __post_init__(self):
        if min(self.relative, self.absolute) < 0:
            raise ValueError(
                f"relative is {self.relative} and absolute is {self.absolute}, allowed: 0 or more"
            )


def raised(
    stats: Mapping[str, Sequence], floors: FloorsCfg
) -> tuple[dict[str, Sequence], dict[int, str]]:
    """Statistics of a feature with floors under its spread.

    Args:
        stats: Of one feature of a dataset, with min, max, mean and std of D dimensions.
        floors: The floors.

    Returns:
        The statistics, and of each dimension that was raised: what was done.
    """
    low, high, mean, std = (np.asarray(stats[n], np.float64) for n in ("min", "max", "mean", "std"))
    moves = high > low
    least = np.maximum(floors.absolute, floors.relative * np.maximum(abs(low), abs(high)))
    new_std = np.where(moves, np.maximum(std, least), 0.0)
    new_low, new_high = _widened(low, high, least, moves)
    results = {"std": new_std, "min": new_low, "max": new_high}
    is_rare = np.zeros(len(low), bool)
    if "q01" in stats and "q99" in stats:
        q01, q99 = (np.asarray(stats[name], np.float64) for name in ("q01", "q99"))
        half = (q99 - q01) / 2
        is_rare = (half < std / 2) & (high - low <= _RAREST_SPAN * std)
        is_rare = moves & ((half < least) | is_rare)
        results["q01"] = np.where(is_rare, new_low, q01)
        results["q99"] = np.where(is_rare, new_high, q99)
    reasons = {}
    for d in np.flatnonzero(moves & ((std < least) | is_rare)).tolist():
        if std[d] < least[d]:
            reasons[d] = (
                f"has a standard deviation of {std[d]:.2g} about {mean[d]:.4g} and is divided by "
                f"{least[d]:.2g}"
            )
        else:
            reasons[d] = (
                f"is between {stats['q01'][d]:.4g} and {stats['q99'][d]:.4g} in 98 % of the frames "
                f"and goes from {low[d]:.4g} to {high[d]:.4g}, which its quantiles now say"
            )
    return {**stats, **{name: values.tolist() for name, values in results.items()}}, reasons


def with_floors(
    norm_stats: Mapping[str, Mapping], floors: FloorsCfg, names: Mapping[str, Sequence[str]]
) -> tuple[dict[str, dict], list[str]]:
    """The content of a norm_stats.json with floors under it.

    Args:
        norm_stats: The statistics of one robot.
        floors: The floors.
        names: Feature -> names of its dimensions. Features that it lacks stay as they are.

    Returns:
        The statistics, and a line per dimension that was raised.
    """
    results: dict[str, dict] = {feature: dict(stats) for feature, stats in norm_stats.items()}
    lines = []
    for feature in names.keys() & norm_stats.keys():
        results[feature], reasons = raised(norm_stats[feature], floors)
        lines += [f"{feature}.{names[feature][d]} {reason}" for d, reason in reasons.items()]
    return results, sorted(lines)


def _widened(
    low: np.ndarray, high: np.ndarray, least: np.ndarray, moves: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    is_narrow = moves & ((high - low) / 2 < least)
    middle = (low + high) / 2
    return (
        np.where(is_narrow, middle - least, low),
        np.where(is_narrow, middle + least, high),
    )
