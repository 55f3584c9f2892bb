"""Dimensions that say nothing, are cut off, or are not what they were."""

import json
import shutil

import numpy as np
import pytest

from rrf.data.conversion.checks_cfg import LimitsCfg
from rrf.data.conversion.convert import convert
from rrf.data.dataset import layout
from rrf.data.dataset.layout import NORM_STATS
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import ACTION, STATE
from rrf.data.validation.checks import SEVERITIES
from rrf.data.validation.dimension_checks import check_dimensions
from tests.data.conftest import make_cfg, writable_tables, write_raw


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dimensions")
    raw = write_raw(folder / "raw", {"pull": [10] * 4})
    convert(make_cfg(cameras={}, image_size=None), raw, folder / "d")
    return folder / "d"


@pytest.fixture
def tables(converted):
    """40 frames; the gripper is the only dimension that stands still."""
    return writable_tables(converted)


@pytest.fixture
def published(converted, tmp_path):
    shutil.copytree(converted, tmp_path / "published")
    (tmp_path / "published" / NORM_STATS).write_text(json.dumps(norm_stats(converted)))
    return tmp_path / "published"


def found(tables, check, published=None, limits=LimitsCfg()):
    results = check_dimensions(tables, SEVERITIES, limits, published)
    (one,) = [result for result in results if result.check == check]
    assert one.status == ("warn" if one.findings else "pass")
    return [str(finding) for finding in one.findings]


def test_a_dimension_that_never_changes_is_named_with_its_value(tables):
    assert found(tables, "constant_dimensions") == [
        "observation.state.gripper: is 0.5 in all 40 frames"
    ]
    tables.vectors[STATE][17, 3] = 0.6
    tables.vectors[ACTION][:, 2] = -0.25
    assert found(tables, "constant_dimensions") == ["action.dz: is -0.25 in all 40 frames"]


def test_a_dimension_cut_off_at_its_declared_limits_is_saturated(tables):
    assert found(tables, "saturated_dimensions") == []
    tables.vectors[ACTION][:24, 0] = 1.0
    tables.vectors[ACTION][24:28, 0] = -1.0
    assert found(tables, "saturated_dimensions") == ["action.dx: 10% of the frames at -1, 60% at 1"]
    assert found(tables, "saturated_dimensions", limits=LimitsCfg(max_saturated_fraction=0.7)) == []


def test_limits_need_not_be_exact_in_float32(tables):
    low = (-0.7, -1.0, -1.0)
    vector = tables.schema.action.__class__(tables.schema.action.names, "m", low, (0.7, 1.0, 1.0))
    tables.schema = tables.schema.__class__(**(vars(tables.schema) | {"action": vector}))
    tables.vectors[ACTION][:30, 0] = np.float32(-0.7)  # -0.699999988, above the limit
    assert found(tables, "saturated_dimensions") == [
        "action.dx: 75% of the frames at -0.7, 0% at 0.7"
    ]


def test_a_switch_is_not_saturated(tables):
    tables.vectors[ACTION][:, 0] = np.where(np.arange(40) % 3, 1.0, -1.0)
    assert found(tables, "saturated_dimensions") == []


def test_without_limits_the_extremes_of_a_dimension_count(tables):
    schema = tables.schema
    free = schema.state.__class__(schema.state.names, "m")
    tables.schema = schema.__class__(**(vars(schema) | {"state": free}))
    tables.vectors[STATE][:, 2] = np.linspace(-1, 1, 40)
    assert found(tables, "saturated_dimensions") == []
    tables.vectors[STATE][:, 2] = np.clip(np.linspace(-4, 4, 40), -1, 1)
    assert found(tables, "saturated_dimensions") == [
        "observation.state.z: 38% of the frames at -1, 38% at 1"
    ]


def test_there_is_no_drift_without_a_version_before_or_from_the_same(tables, published, tmp_path):
    assert found(tables, "statistics_drift") == []
    assert found(tables, "statistics_drift", tmp_path / "absent") == []
    assert found(tables, "statistics_drift", published) == []


def test_a_mean_or_a_spread_that_moved_is_drift(tables, published):
    tables.vectors[STATE][:, 0] += 1.0  # 0, 0.02, ... 0.18 in every episode: mean 0.09, std 0.05745
    tables.vectors[ACTION][:, 2] *= 1.4
    assert found(tables, "statistics_drift", published) == [
        "observation.state.x: mean 0.09 -> 1.09, std 0.05745 -> 0.05745"
    ]
    tables.vectors[ACTION][:, 2] *= 1.2  # 1.68 in all
    names = [text.split(":")[0] for text in found(tables, "statistics_drift", published)]
    assert names == ["observation.state.x", "action.dz"]
    far = LimitsCfg(max_drift=20)
    assert found(tables, "statistics_drift", published, far) == []


def test_a_dimension_that_stood_still_drifts_when_it_moves(tables, published):
    tables.vectors[STATE][3, 3] = 0.6
    assert found(tables, "statistics_drift", published) == [
        "observation.state.gripper: mean 0.5 -> 0.5025, std 0 -> 0.01561"
    ]


def test_dimensions_that_came_or_went_are_drift(tables, published):
    path = published / layout.INFO
    path.write_text(path.read_text().replace('"dz"', '"droll"'))
    assert found(tables, "statistics_drift", published) == [
        "action.droll: is gone",
        "action.dz: is not in the version before",
    ]


def test_a_damaged_version_before_is_said_and_stops_nothing(tables, published):
    (published / layout.INFO).write_text("{")
    (text,) = found(tables, "statistics_drift", published)
    assert text.startswith("published: the version before cannot be read: ")
