"""Checks of single dimensions of state and action: does each say anything, is it cut off at an end
of its range, and is it distributed as in the version published before, by whose statistics training
normalises?
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rrf.data.conversion.checks_cfg import LimitsCfg
from rrf.data.dataset import layout
from rrf.data.dataset.layout import NORM_STATS, read_norm_stats
from rrf.data.dataset.stats import describe
from rrf.data.schema import ACTION, STATE, Schema
from rrf.data.validation.checks import CheckResult, Finding, results
from rrf.data.validation.diff import Drift
from rrf.data.validation.tables import Tables, dimension_columns

_ROUNDING = 1e-6  # of a range: limits are float64, values were stored as float32


def check_dimensions(
    tables: Tables, severities: Mapping[str, str], limits: LimitsCfg, published: Path | None
) -> list[CheckResult]:
    """Constant and saturated dimensions, and drift since the version at `published`."""
    most = limits.max_saturated_fraction
    drifted = drift_findings(tables, published, limits.max_drift)
    checks = [
        ("constant_dimensions", "every dimension varies", _constant(tables)),
        (
            "saturated_dimensions",
            f"no dimension spends more than {most:.0%} of the frames at the ends of its range",
            _saturated(tables, most),
        ),
        (
            "statistics_drift",
            f"means and spreads are within {limits.max_drift:g} std of the version before, if any",
            drifted,
        ),
    ]
    return results(checks, severities)


def _constant(tables: Tables) -> list[Finding]:
    findings = []
    for key, names in dimension_columns(tables.schema).items():
        values = tables.vectors[key]
        is_constant = values.min(axis=0) == values.max(axis=0)
        findings += [
            Finding(name, f"is {values[0, index]:g} in all {len(values)} frames")
            for index, name in enumerate(names)
            if is_constant[index]
        ]
    return findings


def _saturated(tables: Tables, most: float) -> list[Finding]:
    """Dimensions that are mostly at a declared limit or, without one, at their own extremes.

    One that is nowhere else is a switch, or constant, and not meant.
    """
    findings = []
    vectors = {STATE: tables.schema.state, ACTION: tables.schema.action}
    for key, names in dimension_columns(tables.schema).items():
        values, vector = tables.vectors[key], vectors[key]
        low = values.min(axis=0) if vector.low is None else np.array(vector.low)
        high = values.max(axis=0) if vector.high is None else np.array(vector.high)
        margin = _ROUNDING * np.abs(high - low)
        at_low = (values <= low + margin).mean(axis=0)
        at_high = (values >= high - margin).mean(axis=0)
        findings += [
            Finding(
                name,
                f"{at_low[index]:.0%} of the frames at {low[index]:g}, "
                f"{at_high[index]:.0%} at {high[index]:g}",
            )
            for index, name in enumerate(names)
            if most < at_low[index] + at_high[index] < 1
        ]
    return findings


_COMPARED = ("mean", "std", "min", "max")


def drift_findings(tables: Tables, published: Path | None, max_drift: float) -> list[Finding]:
    """Dimensions whose mean or standard deviation moved, appeared or went.

    Args:
        tables: The dataset.
        published: The version before; none, or a directory without norm_stats.json: no findings.
        max_drift: How far they may move, in standard deviations of the version before.
    """
    if published is None or not (published / NORM_STATS).is_file():
        return []
    try:
        before = _by_dimension(
            layout.schema_of(layout.read_info(published)), read_norm_stats(published)
        )
    except (ValueError, KeyError, IndexError) as error:
        return [Finding("published", f"the version before cannot be read: {error}")]
    stats = {key: describe(values) for key, values in tables.vectors.items()}
    after = _by_dimension(tables.schema, stats)
    findings = [
        Finding(name, "is not in the version before" if name in after else "is gone")
        for name in sorted(before.keys() ^ after.keys())
    ]
    for name in (name for name in after if name in before):
        mean, std, low, high = ((before[name][k], after[name][k]) for k in _COMPARED)
        drift = Drift(name, mean, std, low, high)
        if drift.shift > max_drift or abs(drift.ratio - 1) > max_drift:
            value = f"mean {mean[0]:.4g} -> {mean[1]:.4g}, std {std[0]:.4g} -> {std[1]:.4g}"
            findings.append(Finding(name, value))
    return findings


def _by_dimension(schema: Schema, stats: Mapping[str, Mapping]) -> dict[str, dict[str, float]]:
    columns = dimension_columns(schema)
    return {
        name: {statistic: float(np.asarray(stats[key][statistic])[i]) for statistic in _COMPARED}
        for key in (STATE, ACTION)
        for i, name in enumerate(columns[key])
    }
