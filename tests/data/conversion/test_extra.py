"""Columns beside state, action and images are carried along: forces, tactile arrays, subtasks."""

import h5py
import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import MergeCfg, MergePartCfg, VectorCfg
from rrf.data.conversion.edit import edit
from rrf.data.conversion.edit_cfg import EditCfg, StepCfg, TrimCfg
from rrf.data.conversion.merge import merge
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.opening import open_dataset
from rrf.data.pages.card import render_card
from rrf.data.validation.summary import summarise
from rrf.data.validation.validate import validate
from tests.data.conftest import make_cfg, write_raw

TEXTS = ["reach", "reach", "grasp", "grasp", "", "lift"]
FORCE = VectorCfg(keys=["obs/wrench[0:3]"], names=["fx", "fy", "fz"], unit="N")


@pytest.fixture
def raw(tmp_path):
    folder = write_raw(tmp_path / "raw", {"pull": [6, 6]})
    with h5py.File(folder / "pull.hdf5", "a") as file:
        for number in range(2):
            demo = file[f"data/demo_{number}"]
            assert isinstance(demo, h5py.Group)
            demo["obs/wrench"] = forces(number)
            demo["obs/tactile"] = np.arange(6.0)[:, None, None] * np.ones((6, 2, 2))
            demo["obs/skill"] = np.array(TEXTS, h5py.string_dtype())
    return folder


def forces(number):
    return np.arange(36.0).reshape(6, 6) + 100 * number


def cfg_of(**changes):
    pads = VectorCfg(keys=["obs/tactile"], names=["a", "b", "c", "d"], unit="kPa")
    return make_cfg(extra={"force": FORCE, "tactile": pads}, subtask="obs/skill", **changes)


def columns(root):
    path = root / "data/chunk-000/file-000.parquet"
    table = parquet.read_table(path)
    return {name: table[name] for name in table.column_names}


@pytest.mark.slow
def test_forces_tactile_and_subtasks_are_kept(open_with_lerobot, raw, tmp_path):
    cfg = cfg_of()
    convert(cfg, raw, tmp_path / "d")
    features = layout.read_info(tmp_path / "d")["features"]
    assert features["extra.force"]["names"] == ["fx", "fy", "fz"]
    assert features["extra.force"]["info"]["unit"] == "N"
    kept = parquet.as_matrix(columns(tmp_path / "d")["extra.force"])
    np.testing.assert_array_equal(kept, np.concatenate([forces(0), forces(1)])[:, :3])
    item = open_with_lerobot(tmp_path / "d")[7]
    np.testing.assert_array_equal(item["extra.force"], forces(1)[1, :3])
    np.testing.assert_array_equal(item["extra.tactile"], [1, 1, 1, 1])
    reader = open_dataset(tmp_path / "d", 1, instruction_style="subtask")
    told = reader.batch(np.arange(6)).observation.instruction
    assert told == ["reach", "reach", "grasp", "grasp", "grasp", "lift"]
    report = validate("toy", tmp_path / "d", cfg.checks, tmp_path / "reports")
    assert [check.check for check in report.checks if check.status in ("fail", "crashed")] == []
    assert "extra.tactile" in render_card(summarise(tmp_path / "d"), None)


def test_a_policy_sees_nothing_of_them(raw, tmp_path):
    convert(cfg_of(), raw, tmp_path / "d")
    convert(make_cfg(), raw, tmp_path / "e")
    schemas = [open_dataset(tmp_path / name, 1).schema for name in ("d", "e")]
    assert schemas[0].state == schemas[1].state
    assert schemas[0].extras == ()


def test_edit_and_merge_keep_them_and_say_what_they_lose(raw, tmp_path):
    convert(cfg_of(), raw, tmp_path / "d")
    steps = [
        StepCfg(trim=TrimCfg(start=2)),
        StepCfg(rename={"extra.force": "extra.wrist"}),
        StepCfg(drop=["extra.tactile"]),
    ]
    cfg = EditCfg(name="f", edit_of="d", steps=steps, licence="MIT", provenance="cut")
    edit(cfg, tmp_path / "d", tmp_path / "f")
    kept = columns(tmp_path / "f")
    assert "extra.tactile" not in kept
    np.testing.assert_array_equal(parquet.as_matrix(kept["extra.wrist"])[:4], forces(0)[2:, :3])
    convert(make_cfg(extra={"force": FORCE}), raw, tmp_path / "e")
    parts = [MergePartCfg(dataset="d"), MergePartCfg(dataset="e")]
    merged = MergeCfg(name="g", merge=parts, licence="MIT", provenance="both")
    merge(merged, tmp_path, tmp_path / "g")
    kept = columns(tmp_path / "g")
    np.testing.assert_array_equal(
        parquet.as_matrix(kept["extra.force"])[:6], forces(0)[:, :3].astype(np.float32)
    )
    assert "extra.tactile" not in kept
    warnings = summarise(tmp_path / "g").warnings
    lost = "d: extra.tactile is left out, because not all of the datasets have the same"
    assert lost in warnings


def test_what_is_no_extra_is_refused(raw, tmp_path):
    with pytest.raises(ValueError, match=r"extra: 'a b' must be of letters"):
        make_cfg(extra={"a b": FORCE})
    with pytest.raises(ValueError, match="force: only actions can be deltas"):
        make_cfg(extra={"force": FORCE.replace(deltas=["fx"])})
    with pytest.raises(ValueError, match=r"obs/wrench \(subtask\) is float64, not a text per row"):
        convert(make_cfg(subtask="obs/wrench"), raw, tmp_path / "d")
