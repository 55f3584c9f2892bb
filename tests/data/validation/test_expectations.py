"""What Great Expectations is asked, and an expectation that crashes."""

import tracemalloc

import numpy as np
import pandas as pd

from rrf.data.conversion.checks_cfg import LimitsCfg
from rrf.data.validation.checks import SEVERITIES
from rrf.data.validation.data_docs import open_context
from rrf.data.validation.expectations import (
    FRAME_KEYS,
    Expectation,
    episode_suite,
    frame_suite,
    run_suite,
)
from tests.data.conftest import make_cfg


def test_suites_follow_the_schema():
    schema = make_cfg().schema()
    frames = frame_suite(schema, LimitsCfg(), num_tasks=2)
    limited = {e.kwargs["column"]: e.kwargs for e in frames if e.check == "limits"}
    assert set(limited) == {
        *(f"observation.state.{name}" for name in ("x", "y", "z", "gripper")),
        *(f"action.{name}" for name in ("dx", "dy", "dz")),
    }
    assert limited["observation.state.gripper"] == {
        "column": "observation.state.gripper",
        "min_value": 0.0,
        "max_value": 1.0,
    }
    # a range check passes over NaN, so each has a not-null check beside it
    not_null = {e.kwargs["column"] for e in frames if e.check == "not_null"}
    assert set(limited) <= not_null
    blind = make_cfg(success=None, reward=None).schema()
    assert "ends_in_success" not in {e.check for e in episode_suite(blind, LimitsCfg())}
    everything = frames + episode_suite(schema, LimitsCfg())
    assert {e.check for e in everything} <= set(SEVERITIES)


def test_an_expectation_that_crashes_is_not_mistaken_for_bad_data():
    table = pd.DataFrame({"episode_index": [0], "frame_index": [0], "task": ["text"]})
    suite = [
        Expectation("limits", "absent", "ExpectColumnValuesToNotBeNull", {"column": "absent"}),
        Expectation(
            "rows", "rows", "ExpectTableRowCountToBeBetween", {"min_value": 1, "max_value": 5}
        ),
    ]
    with open_context() as context:
        crashed, passed = run_suite(context, "frames", suite, table, FRAME_KEYS, SEVERITIES)
    assert (crashed.status, crashed.num_bad) == ("crashed", 1)
    assert "absent" in crashed.findings[0].value
    assert passed.status == "pass"


def test_a_range_check_does_not_copy_the_columns_beside_it():
    table = pd.DataFrame(np.ones((100_000, 80)), columns=[f"c{i}" for i in range(80)])  # 64 MB
    suite = [
        Expectation("limits", "c0 is small", "ExpectColumnValuesToBeBetween", kwargs)
        for kwargs in [{"column": "c0", "max_value": limit} for limit in (0, 1)]
    ]
    with open_context() as context:
        run_suite(context, "imports", suite, table[:1], (), SEVERITIES)
        tracemalloc.start()
        too_large, passed = run_suite(context, "frames", suite, table, (), SEVERITIES)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (too_large.num_bad, passed.num_bad) == (100_000, 0)
    assert peak_bytes < 32e6
