import json
import shutil

import numpy as np
import pyarrow as pa
import pytest

from rrf.data.formats.lerobot_source import LeRobotSource
from tests.data.fixtures_lerobot_v2 import (
    CAMERA,
    assert_shows,
    change_columns,
    data_path,
    edit_features,
    edit_info,
    read,
    read_one,
    write_lines,
    write_v2,
)


@pytest.fixture
def root(tmp_path):
    """Episodes 0 (6 frames) and 3 (5 frames), v2.1."""
    return write_v2(tmp_path / "v2", {0: 6, 3: 5})


def test_episodes_not_on_disk_are_left_out_with_a_warning(root):
    data_path(root, 0).unlink()
    source = LeRobotSource(root, {})
    assert [recording.name for recording in source.recordings()] == ["episode_000003"]
    (warning,) = source.warnings
    assert "1 of 2 data files are not on disk and left out, the first is" in warning
    assert warning.endswith("episode_000000.parquet")
    data_path(root, 3).unlink()
    with pytest.raises(ValueError, match="none of the 2 data files is on disk"):
        LeRobotSource(root, {})


def test_templates_may_call_the_chunk_as_v3_does(root):
    chunk = "data/chunk-{chunk_index:03d}"
    edit_info(root, data_path=f"{chunk}/episode_{{episode_index:06d}}.parquet")
    episode, source = read_one(root)
    assert (len(episode), source.warnings) == (6, [])


def test_a_template_that_leads_nowhere_gives_way_to_the_usual_layout(root):
    edit_info(root, data_path="data/chunk-{episode_index:03d}/episode_{episode_index:06d}.parquet")
    episode, source = read_one(root, number=1)
    assert len(episode) == 5
    (warning,) = source.warnings
    assert "data_path" in warning
    assert "leads to files that do not exist" in warning


def test_chunks_are_found_by_chunks_size(tmp_path):
    root = write_v2(tmp_path, {0: 2, 2: 3}, info={"chunks_size": 2})
    moved = root / "data/chunk-001/episode_000002.parquet"
    moved.parent.mkdir()
    data_path(root, 2).rename(moved)
    assert LeRobotSource(root, {}).recordings()[1].paths == (moved,)


def test_a_length_that_disagrees_is_reported(root):
    write_lines(root / "meta/episodes.jsonl", [{"episode_index": 0, "length": 9}])
    _, source = read_one(root)
    assert source.warnings[0].endswith("episode_0 has 6 frames, the list of episodes says 9")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"episodes\.jsonl lists no episodes"),
        (b'{"episode_index": 0, "length": 6}\n{"episode', r"episodes\.jsonl:2 is not JSON"),
        (b'{"episode_index": 0, "length": 6, "tasks": ["\xff"]}', r"jsonl:1 is not UTF-8"),
        (b"[1, 2]", r"jsonl:1 must be a JSON object, found list"),
        (b'{"episode_index": "0", "length": 6}', "episode_index is '0', must be a whole number"),
        (b'{"episode_index": -1, "length": 6}', "episode_index is -1"),
        (b'{"episode_index": 1e400, "length": 6}', "episode_index is inf"),
        (b'{"episode_index": 0, "length": NaN}', "length is nan"),
        (b'{"episode_index": 0}', "length is None"),
        (b'{"episode_index": 0, "length": 6}\n{"episode_index": 0, "length": 6}', "listed twice"),
    ],
)
def test_a_bad_list_of_episodes_is_named_by_line(root, content, message):
    (root / "meta/episodes.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        LeRobotSource(root, {})


def test_a_missing_list_of_episodes_is_named(root):
    (root / "meta/episodes.jsonl").unlink()
    with pytest.raises(ValueError, match=r"meta/episodes\.jsonl is missing"):
        LeRobotSource(root, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codebase_version": "v1.6"}, r"v1\.6, .*convert it to v2\.0 first"),
        ({"codebase_version": "v4.0"}, r"v4\.0, v2\.0, v2\.1, v3\.0 are read"),
        ({"fps": 0}, "fps is 0, must be a positive number"),
        ({"fps": True}, "fps is True"),
        ({"chunks_size": 0}, "chunks_size is 0"),
        ({"features": []}, "features must map keys"),
        ({"features": {"action": {"dtype": "float32"}}}, "feature 'action' has no shape"),
        ({"data_path": "../{episode_index}.parquet"}, r"data_path: .*'\.\./0\.parquet' leads out"),
        ({"data_path": "/etc/{episode_index}"}, "'/etc/0' leads out of"),
        ({"video_path": "a/../../{video_key}.mp4"}, r"video_path: .* leads out of"),
        ({"data_path": "{episode_index.real}"}, r"the field \{episode_index\.real\} is not one of"),
        ({"data_path": "{episode_index:099999d}"}, "is not a path template"),
        ({"data_path": "{episode_index"}, "is not a path template"),
        ({"data_path": 3}, "data_path is 3, must be text"),
    ],
)
def test_bad_metadata_are_refused(root, changes, message):
    edit_info(root, **changes)
    with pytest.raises(ValueError, match=message):
        LeRobotSource(root, {})


def test_a_feature_name_cannot_lead_out_either(root):
    edit_features(root, **{"../../../x": {"dtype": "video", "shape": [16, 16, 3]}})
    with pytest.raises(ValueError, match="leads out of"):
        LeRobotSource(root, {})


def test_version_1_and_no_dataset_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match=r"no LeRobot dataset at .*meta/info\.json is missing"):
        LeRobotSource(tmp_path / "absent", {})
    (tmp_path / "meta_data").mkdir()
    (tmp_path / "meta_data/info.json").write_text("{}")
    with pytest.raises(ValueError, match=r"is LeRobot v1, .*convert_dataset_v1_to_v2\.py"):
        LeRobotSource(tmp_path, {})


# ---- instructions and time


def test_without_a_list_of_tasks_the_list_of_episodes_has_the_instruction(root):
    (root / "meta/tasks.jsonl").unlink()
    assert read_one(root)[0].instruction == "pull the lever"
    lines = [{"episode_index": number, "length": 6, "tasks": [1]} for number in range(4)]
    write_lines(root / "meta/episodes.jsonl", lines)
    assert read_one(root)[0].instruction is None


def test_tasks_without_text_or_with_numbers_are_left_to_validation(root):
    write_lines(root / "meta/tasks.jsonl", [{"task_index": 0}, {"task_index": 1, "task": 7}])
    assert read_one(root, number=0)[0].instruction == "pull the lever"  # of the list of episodes
    assert read_one(root, number=1)[0].instruction == "7"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"task_index": 0, "task": "go \xe9"}', r"tasks\.jsonl:1 is not UTF-8"),
        (b'{"task_index": 0, "task": "\\ud800"}', r"tasks\.jsonl:1: the task .* not valid UTF-8"),
        (b'{"task_index": 0, "task": ["a"]}', r"the task is \['a'\], must be text"),
        (b'{"task": "a"}', r"tasks\.jsonl:1: task_index is None"),
        (b"oops", r"tasks\.jsonl:1 is not JSON"),
    ],
)
def test_a_bad_list_of_tasks_is_named_by_line(root, content, message):
    (root / "meta/tasks.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        LeRobotSource(root, {})


def test_an_unknown_task_is_named(root):
    change_columns(data_path(root, 0), task_index=[5] * 6)
    with pytest.raises(ValueError, match="episode_0: task_index is 5, but no task has that index"):
        read(root)


def test_the_instruction_can_come_from_another_column(root):
    change_columns(data_path(root, 0), annotation__human__validity=[1] * 6, words=["go"] * 6)
    assert read_one(root)[0].instruction == "pull the lever"
    key = "annotation.human.validity"
    assert read_one(root, instruction_key=key)[0].instruction == "push the button"
    assert read_one(root, instruction_key="words")[0].instruction == "go"
    change_columns(data_path(root, 0), annotation__human__action__task_description=[1] * 6)
    assert read_one(root)[0].instruction == "push the button"
    assert read_one(root, instruction_key="task_index")[0].instruction == "pull the lever"
    with pytest.raises(ValueError, match=r"has no column 'word'; did you mean 'words'"):
        read(root, instruction_key="word")
    with pytest.raises(ValueError, match="action is neither text nor an index"):
        read(root, instruction_key="action")


@pytest.mark.parametrize("values", [[1] * 6, ["push the button"] * 6], ids=["index", "text"])
def test_the_instruction_may_stand_in_groots_column_without_its_prefix(root, values):
    change_columns(data_path(root, 0), human__action__task_description=values, task_index=None)
    assert read_one(root)[0].instruction == "push the button"


def test_text_that_is_not_utf8_is_named(root):
    words = pa.array([b"go", b"\xff\xfe", b"go", b"go", b"go", b"go"]).view(pa.string())
    change_columns(data_path(root, 0), words=words)
    with pytest.raises(ValueError, match="episode_0: words: row 1 is not UTF-8"):
        read(root, ["words"])


def test_an_instruction_that_changes_is_reported(root):
    change_columns(data_path(root, 0), task_index=[0, 0, 1, 1, 1, 1])
    episode, source = read_one(root)
    assert episode.instruction == "pull the lever"
    assert source.warnings[0].endswith("task_index changes at frame 2; the first value is used")


@pytest.mark.parametrize(
    ("times", "warning"),
    [
        ([5.0, 5.1, 5.2, 5.3, 5.4, 5.5], None),
        ([0.0, 0.05, 0.1, 0.15, 0.2, 0.25], "timestamp grows at 20 frames/s, 10 are declared"),
        ([0.0, 0.1, 0.2, 0.2, 0.3, 0.4], "timestamp at frame 3 is 0.2 s, after 0.2 s"),
        ([0.0, 0.1, 0.2, 0.7, 0.8, 0.9], "frame 3 is 0.5 s after the one before, 0.1 s are usual"),
        ([0.0, 0.1, np.nan, 0.3, 0.4, 0.5], "timestamp at frame 2 is nan s"),
        (["a"] * 6, "timestamp: row 0 is not JSON"),
    ],
)
def test_time_stamps_that_disagree_are_reported(root, times, warning):
    change_columns(data_path(root, 0), timestamp=times)
    if isinstance(times[0], str):
        with pytest.raises(ValueError, match=warning):
            read(root)
        return
    episode, source = read_one(root, ["timestamp", CAMERA])
    np.testing.assert_allclose(episode.arrays["timestamp"], times)
    assert_shows(episode.images[CAMERA], 0)
    if warning is None:
        assert source.warnings == []
    else:
        assert warning in source.warnings[0]


# ---- GR00T's modality.json


def test_names_of_modality_json_are_keys(root):
    (root / "meta/modality.json").write_text(
        json.dumps(
            {
                "state": {"arm": {"start": 0, "end": 3}, "hand": {"start": 3, "end": 4}},
                "action": {"arm": {"start": 1, "end": 2}, "base": {"start": 1, "end": 5}},
                "video": {"ego_view": {"original_key": CAMERA}},
                "annotation": {"human.task": {"original_key": "task_index"}},
            }
        )
    )
    keys = ["state.arm", "action.arm", "video.ego_view"]
    episode, source = read_one(root, keys, instruction_key="annotation.human.task")
    assert episode.arrays["state.arm"][2].tolist() == [2.0, 4.0, 6.0]
    assert episode.arrays["action.arm"].shape == (6, 1)
    assert_shows(episode.images["video.ego_view"], 0)
    assert episode.instruction == "pull the lever"
    assert source.keys()["state.arm"] == "float32[3]"
    assert source.keys()["video.ego_view"] == "image[16, 16]"
    with pytest.raises(
        ValueError, match=r"action\.base: meta/modality\.json takes 1\.\.5 of action"
    ):
        read(root, ["action.base"])


def test_a_directory_of_symbolic_links_is_read(root, tmp_path):
    blobs = tmp_path / "blobs"
    for path in sorted(root.rglob("*.*")):
        if path.is_file():
            blobs.mkdir(exist_ok=True)
            blob = blobs / path.name
            shutil.move(path, blob)
            path.symlink_to(blob)
    assert len(read_one(root, [CAMERA])[0]) == 6
