import json
from pathlib import Path

import pytest

from rrf.data.formats.modality import Modality, Part, modality_of, read_modality, write_modality
from rrf.data.schema import Schema, Vector

REAL = Path(__file__).parents[4] / "shared/data/groot_robot_sim_PickNPlace/dataset"
GOOD = {
    "state": {
        "arm": {"start": 0, "end": 6},
        "wrist": {"start": 6, "end": 10, "rotation_type": "quaternion", "dtype": "float32"},
    },
    "action": {"arm": {"start": 0, "end": 6, "absolute": False, "range": [-1, 1]}},
    "video": {"front": {"original_key": "observation.images.front"}, "top": {}},
    "annotation": {"human.validity": {}, "human.task": {"original_key": "task_index"}},
}


def write(root, data):
    path = root / "meta/modality.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))


def make_schema(state, action=("x", "y")):
    return Schema(10, (16, 16), ("front", "top"), Vector(state, ""), Vector(action, ""))


def test_a_modality_is_read_with_its_defaults(tmp_path):
    write(tmp_path, GOOD)
    modality = read_modality(tmp_path)
    assert modality.state["arm"] == Part(0, 6, "observation.state")
    assert modality.state["wrist"].rotation_type == "quaternion"
    assert modality.state["wrist"].dtype == "float32"
    assert modality.action["arm"] == Part(0, 6, "action", absolute=False, range=(-1, 1))
    assert modality.video == {
        "front": "observation.images.front",
        "top": "observation.images.top",
    }
    assert modality.annotation == {
        "human.validity": "annotation.human.validity",
        "human.task": "task_index",
    }


def test_a_modality_survives_writing_and_reading(tmp_path):
    write(tmp_path, GOOD)
    modality = read_modality(tmp_path)
    write_modality(tmp_path / "copy", modality)
    assert read_modality(tmp_path / "copy") == modality


def test_no_file_is_no_modality(tmp_path):
    assert read_modality(tmp_path) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "is truncated or not JSON"),
        ({}, "has no mapping 'state'"),
        (GOOD | {"video": 3}, "has no mapping 'video'"),
        (GOOD | {"state": {"arm": 3}}, r"state\.arm must be a mapping"),
        (GOOD | {"state": {"arm": {"start": 0}}}, r"state\.arm goes from 0 to None"),
        (GOOD | {"action": {"arm": {"start": 4, "end": 4}}}, r"action\.arm goes from 4 to 4"),
        (GOOD | {"action": {"arm": {"start": -1, "end": 4}}}, r"action\.arm goes from -1 to 4"),
        (GOOD | {"video": {"front": {"original_key": 1}}}, r"video\.front: original_key is 1"),
        (
            GOOD | {"state": {"arm": {"start": 0, "end": 1, "range": [1]}}},
            r"range of state\.arm is \[1\], must be two numbers",
        ),
    ],
)
def test_a_damaged_modality_is_named(tmp_path, data, message):
    write(tmp_path, data)
    with pytest.raises(ValueError, match=message):
        read_modality(tmp_path)


def test_dimensions_are_grouped_by_their_names(tmp_path):
    names = ("left_arm_0", "left_arm_1", "left_hand_0", "gripper", "right_arm_0", "right_arm_1")
    write_modality(tmp_path, modality_of(make_schema(names), action_groups={"base": (0, 2)}))
    assert json.loads((tmp_path / "meta/modality.json").read_text()) == {
        "state": {
            "left_arm": {"start": 0, "end": 2},
            "left_hand": {"start": 2, "end": 3},
            "gripper": {"start": 3, "end": 4},
            "right_arm": {"start": 4, "end": 6},
        },
        "action": {"base": {"start": 0, "end": 2}},
        "video": {
            "front": {"original_key": "observation.images.front"},
            "top": {"original_key": "observation.images.top"},
        },
        "annotation": {"human.task_description": {"original_key": "task_index"}},
    }


def test_unnamed_dimensions_are_one_part():
    modality = modality_of(make_schema(("0", "1", "2")))
    assert modality.state == {"all": Part(0, 3, "observation.state")}


def test_a_part_in_two_pieces_needs_given_groups():
    names = ("arm_0", "hand_0", "arm_1")
    with pytest.raises(ValueError, match=r"'arm_' in two places \(dimensions 0 and 2\)"):
        modality_of(make_schema(names))
    groups = {"arm": [0, 1], "hand": [1, 3]}
    assert modality_of(make_schema(names), groups).state["hand"].end == 3
    with pytest.raises(ValueError, match=r"part 'hand' of observation\.state is \[1, 4\]"):
        modality_of(make_schema(names), {"hand": [1, 4]})


@pytest.mark.skipif(not REAL.is_dir(), reason=f"{REAL} is not there")
def test_groots_own_file_survives_writing_and_reading(tmp_path):
    modality = read_modality(REAL)
    assert modality.state["waist"] == Part(41, 44, "observation.state")
    assert modality.annotation["human.coarse_action"] == "annotation.human.action.task_description"
    write_modality(tmp_path, modality)
    assert read_modality(tmp_path) == modality
    assert isinstance(modality, Modality)
