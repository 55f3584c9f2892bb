import json
from pathlib import Path

import numpy as np
import pytest

from rrf.data.dataset.stats import describe, plain
from rrf.data.formats.groot_metadata import (
    PATH,
    EmbodimentData,
    metadata_of,
    read_metadata,
    write_metadata,
)
from rrf.data.formats.modality_check import checked_modality
from rrf.data.schema import ACTION, STATE

REAL = Path(__file__).parents[4] / "shared/data/groot_robot_sim_PickNPlace/dataset"
INFO = {
    "fps": 20.0,
    "features": {
        "observation.state": {"dtype": "float32", "shape": [5]},
        "action": {"dtype": "float32", "shape": [3]},
        "observation.images.front": {
            "dtype": "video",
            "shape": [48, 64, 3],
            "names": ["height", "width", "channel"],
        },
        "task_index": {"dtype": "int64", "shape": [1]},
    },
}
MODALITY = {
    "state": {"arm": {"start": 0, "end": 3}, "hand": {"start": 3, "end": 5}},
    "action": {"hand": {"start": 2, "end": 3}, "arm": {"start": 0, "end": 2, "absolute": False}},
    "video": {"front": {}},
    "annotation": {"human.task": {"original_key": "task_index"}},
}


def write(root, modality=MODALITY, info=INFO):
    (root / "meta").mkdir(exist_ok=True)
    (root / "meta/modality.json").write_text(json.dumps(modality))
    (root / "meta/info.json").write_text(json.dumps(info))
    return root


def norm_stats():
    numbers = ("max", "min", "mean", "std", "q01", "q99")
    return {
        key: {
            number: [10 * row + column for column in range(size)]
            for row, number in enumerate(numbers)
        }
        for key, size in ((STATE, 5), (ACTION, 3))
    }


def test_a_fitting_modality_passes(tmp_path):
    assert checked_modality(write(tmp_path)).state["hand"].start == 3


@pytest.mark.parametrize(
    ("kind", "name", "entry", "message"),
    [
        ("state", "hand", {"start": 3, "end": 6}, r"state\.hand goes from 3 to 6, but 'observatio"),
        (
            "state",
            "hand",
            {"start": 2, "end": 5},
            r"state\.arm \(0 to 3\) and hand \(2 to 5\) over",
        ),
        (
            "action",
            "arm",
            {"start": 0, "end": 1, "original_key": "acton"},
            r"'acton', which the.*action",
        ),
        (
            "video",
            "front",
            {"original_key": "observation.images.frnt"},
            r"video\.front is .*it has: obs",
        ),
        ("video", "front", {"original_key": "action"}, "which is no camera of the dataset"),
        (
            "annotation",
            "human.ok",
            {},
            "in column 'annotation.human.ok', which the dataset does not",
        ),
    ],
)
def test_what_does_not_fit_the_dataset_is_named(tmp_path, kind, name, entry, message):
    write(tmp_path, MODALITY | {kind: MODALITY[kind] | {name: entry}})
    with pytest.raises(ValueError, match=message):
        checked_modality(tmp_path)


def test_a_missing_modality_says_how_to_get_one(tmp_path):
    with pytest.raises(ValueError, match=r"has no meta/modality.json.*`modality: \{\}`"):
        checked_modality(tmp_path)


def test_the_entry_of_a_dataset_has_the_statistics_of_each_part(tmp_path):
    entry = metadata_of(write(tmp_path), norm_stats())
    assert entry.statistics["state"]["hand"]["max"] == [3, 4]
    assert entry.statistics["state"]["hand"]["mean"] == [23, 24]
    assert entry.statistics["action"]["hand"]["q99"] == [52]
    assert entry.modalities["action"]["arm"] == {
        "absolute": False,
        "rotation_type": None,
        "shape": [2],
        "continuous": True,
    }
    camera = {"resolution": [64, 48], "channels": 3, "fps": 20.0}
    assert entry.modalities["video"] == {"front": camera}


def test_metadata_survives_writing_and_reading(tmp_path):
    entry = metadata_of(write(tmp_path), norm_stats())
    write_metadata(tmp_path, {"gr1": entry})
    assert json.loads((tmp_path / PATH).read_text())["gr1"]["embodiment_tag"] == "gr1"
    again = read_metadata(tmp_path, "gr1")
    assert again == entry
    assert again.norm_stats(["arm", "hand"], ["arm", "hand"]) == norm_stats()
    # by default in the order of the file: hand before arm
    assert again.norm_stats()[ACTION]["max"] == [2, 0, 1]


def test_unknown_tags_and_parts_are_refused_with_the_known_ones(tmp_path):
    write_metadata(tmp_path, {"gr1": metadata_of(write(tmp_path), norm_stats())})
    with pytest.raises(ValueError, match="no statistics of embodiment 'gr2', it has: gr1"):
        read_metadata(tmp_path, "gr2")
    with pytest.raises(ValueError, match=r"no statistics of state\.leg, it has: arm, hand"):
        read_metadata(tmp_path, "gr1").norm_stats(["leg"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"gr1": {}}, "has no mapping 'statistics'"),
        ({"gr1": {"statistics": {}, "modalities": {}}}, "has no mapping 'state'"),
        (
            {
                "gr1": {
                    "statistics": {"state": {"arm": {"max": [1], "min": [0, 1]}}, "action": {}},
                    "modalities": {},
                }
            },
            r"gr1\.state\.arm has the statistics",
        ),
    ],
)
def test_damaged_metadata_is_named(tmp_path, data, message):
    (tmp_path / "experiment_cfg").mkdir()
    (tmp_path / PATH).write_text(json.dumps(data))
    with pytest.raises(ValueError, match=message):
        read_metadata(tmp_path, "gr1")


def test_statistics_that_do_not_cover_the_modality_are_refused(tmp_path):
    stats = norm_stats()
    stats[STATE]["q01"] = [0]
    with pytest.raises(ValueError, match=r"lack q01 up to dimension 2, needed for state\.arm"):
        metadata_of(write(tmp_path), stats)
    with pytest.raises(ValueError, match="there are no statistics of 'action'"):
        metadata_of(tmp_path, {STATE: norm_stats()[STATE]})


@pytest.mark.skipif(not REAL.is_dir(), reason="the real recording is not here")
def test_metadata_of_a_real_recording():
    rows = np.random.default_rng(0).normal(size=(7, 44))
    stats = plain(describe(rows))
    entry = metadata_of(REAL, {STATE: stats, ACTION: stats})
    assert isinstance(entry, EmbodimentData)
    assert entry.statistics["state"]["waist"]["mean"] == stats["mean"][41:44]
    assert entry.norm_stats()[ACTION]["std"] == stats["std"]
    assert entry.modalities["video"]["ego_view"]["resolution"] == [256, 256]
