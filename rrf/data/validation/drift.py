"""Has a dataset changed since it was last published? Its statistics against those that training
used until now.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rrf.data.dataset import layout
from rrf.data.dataset.layout import NORM_STATS, read_norm_stats
from rrf.data.dataset.stats import describe
from rrf.data.schema import ACTION, STATE, Schema
from rrf.data.validation.checks import Finding
from rrf.data.validation.diff import Drift
from rrf.data.validation.tables import Tables, dimension_columns

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
