"""The tables that `dvc plots` draws."""

import json

import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.validation.tables import read_tables
from rrf.data.validation.validate import episode_lengths, plot_tables
from tests.data.conftest import edit_column, make_cfg, write_raw


@pytest.fixture
def root(tmp_path):
    raw = write_raw(tmp_path / "raw", {"pull": [8, 6], "push": [6]})
    convert(make_cfg(), raw, tmp_path / "d")
    return tmp_path / "d"


def test_few_lengths_have_a_bin_each_and_many_share_forty():
    assert episode_lengths(np.array([5, 7, 5])) == [
        {"frames": 5, "episodes": 2},
        {"frames": 6, "episodes": 0},
        {"frames": 7, "episodes": 1},
    ]
    rows = episode_lengths(np.array([10, 12, 13, 129]))  # 120 lengths, three to a bin
    assert rows[:2] == [{"frames": 10, "episodes": 2}, {"frames": 13, "episodes": 1}]
    assert (len(rows), rows[-1]) == (40, {"frames": 127, "episodes": 1})


def test_ranges_are_those_of_the_rows_and_a_hole_is_null(root):
    tables = read_tables(root)
    actions = tables.vectors["action"]
    found = plot_tables(tables)
    assert [(row["frames"], row["episodes"]) for row in found["episode_lengths.json"]] == [
        *[(6, 2), (7, 0), (8, 1)]
    ]
    ranges = {row["dimension"]: row for row in found["dimensions.json"]}
    assert set(ranges) == {
        *(f"observation.state.{name}" for name in tables.schema.state.names),
        *(f"action.{name}" for name in tables.schema.action.names),
    }
    dx = ranges["action.dx"]
    assert (dx["min"], dx["max"]) == pytest.approx((actions[:, 0].min(), actions[:, 0].max()))
    edit_column(root, "action", {10: [float("nan"), *actions[10, 1:].tolist()]})
    broken = plot_tables(read_tables(root))
    json.dumps(broken, allow_nan=False)
    (dx,) = [row for row in broken["dimensions.json"] if row["dimension"] == "action.dx"]
    assert dx == {"dimension": "action.dx"} | dict.fromkeys(("min", "q01", "mean", "q99", "max"))


def test_a_dataset_that_could_not_be_read_has_empty_tables():
    assert plot_tables(None) == {"episode_lengths.json": [], "dimensions.json": []}
