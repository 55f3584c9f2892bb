"""Checks of single dimensions of state and action: does each say anything, is it cut off at an end
of its range, and is it distributed as in the version published before?
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rrf.data.conversion.checks_cfg import LimitsCfg
from rrf.data.schema import ACTION, STATE
from rrf.data.validation.checks import CheckResult, Finding, results
from rrf.data.validation.drift import drift_findings
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
