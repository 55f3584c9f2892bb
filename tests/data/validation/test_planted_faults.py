"""Every fault that is planted in a good dataset is found and named."""

import itertools
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rrf.data.dataset import layout
from rrf.data.images import encode_png
from tests.data.conftest import SIZE, edit_column, edit_images, edit_table
from tests.data.validation.conftest import (
    BLACK,
    IMAGES,
    edit_episode_table,
    edit_info,
    findings,
    nan_action,
    run,
)


def duplicate_episode(root):
    """Episode 3 (5 frames) becomes a copy of the first 5 frames of episode 4, which is cut to 5."""

    def change(table):
        shown = list(range(21)) + list(range(26, 31)) * 2
        copied = table.take(shown)
        for key in ("frame_index", "episode_index", "index", "timestamp"):
            kept = table[key].combine_chunks().slice(0, 26).to_pylist()
            own = table[key].to_pylist()
            values = kept + (own[26:31] if key != "index" else list(range(26, 31)))
            field = table.schema.field(key)
            copied = copied.set_column(
                table.schema.get_field_index(key), field, pa.array(values, field.type)
            )
        return copied

    edit_table(root / "data/chunk-000/file-000.parquet", change)
    edit_episode_table(root, "length", 4, 5)
    edit_episode_table(root, "dataset_to_index", 4, 31)
    edit_info(root, total_frames=31)


def test_a_take_that_was_played_back_is_told_from_one_that_was_copied(root):
    duplicate_episode(root)
    edit_column(root, "observation.state", {row: [0.1, 0.2, row, 0.5] for row in range(26, 31)})
    edit_column(root, "action", {row: [row / 100, 0.0, 0.0] for row in range(21, 26)})
    edit_column(root, "action", {row: [(row - 5) / 100, 0.0, 0.0] for row in range(26, 31)})
    report = run(root)
    assert (
        "same_actions",
        "episode 4, action: same actions as episode 3, states or images differ",
    ) in findings(report, "warn")
    assert "duplicate_episodes" not in {check for check, _ in findings(report)}


def freeze(root):
    path = root / "data/chunk-000/file-000.parquet"
    first = pq.read_table(path)[IMAGES][14].as_py()["bytes"]
    edit_images(root, dict.fromkeys(range(14, 21), lambda blob: first))


GREEN = encode_png(np.full((1, SIZE, SIZE, 3), (0, 135, 0), np.uint8))[0]
SMALL = encode_png(np.full((1, 8, 8, 3), 200, np.uint8))[0]

PLANTED = {
    "nan action": (nan_action, "not_null", "episode 1, frame 2, action.dy: nan"),
    "action beyond its limits": (
        lambda root: edit_column(root, "action", {30: [1.5, 0.0, 0.0]}),
        "limits",
        "episode 4, frame 4, action.dx: 1.5",
    ),
    "infinite state": (
        lambda root: edit_column(root, "observation.state", {0: [0.0, 0.0, float("inf"), 0.5]}),
        "finite",
        "episode 0, frame 0, observation.state.z: inf",
    ),
    "timestamp that jumps": (
        lambda root: edit_column(root, "timestamp", {12: 0.9}),
        "timestamps",
        "episode 1, frame 4, timestamp_error_s: 0.",
    ),
    "time that stands still": (
        lambda root: edit_column(root, "timestamp", {29: 0.2}),
        "timestamps",
        "episode 4, frame 3, timestamp_step_s: 0.0",
    ),
    "frame that occurs twice": (
        lambda root: edit_column(root, "frame_index", {22: 0}),
        "unique_frames",
        "episode 3, frame 0, episode_index, frame_index: occurs more than once",
    ),
    "frame that was dropped": (
        lambda root: edit_column(root, "frame_index", {25: 7}),
        "frame_order",
        "episode 3, frame 7, frame_step: 4",
    ),
    "unknown task index": (
        lambda root: edit_column(root, "task_index", {3: 9}),
        "task_index",
        "episode 0, frame 3, task_index: 9",
    ),
    "undecodable image": (
        lambda root: edit_images(root, {15: lambda blob: b"junk"}),
        "images_decodable",
        f"episode 2, frame 1, {IMAGES}: 4 bytes of no known image format",
    ),
    "truncated image": (
        lambda root: edit_images(root, {9: lambda blob: blob[:80]}),
        "images_decodable",
        f"episode 1, frame 1, {IMAGES}: 80 bytes",
    ),
    "image of another size": (
        lambda root: edit_images(root, {10: lambda blob: SMALL}),
        "images_decodable",
        f"episode 1, frame 2, {IMAGES}: the image is [8, 8, 3], expected [16, 16, 3]",
    ),
    "black image": (
        lambda root: edit_images(root, {35: lambda blob: BLACK}),
        "blank_image",
        f"episode 4, frame 9, {IMAGES}.std: 0.0",
    ),
    "plain green image": (
        lambda root: edit_images(root, {30: lambda blob: GREEN}),
        "blank_image",
        f"episode 4, frame 4, {IMAGES}.std: 0.0",
    ),
    "camera that stands still": (
        freeze,
        "frozen_camera",
        f"episode 2, {IMAGES}.frozen_fraction: 1.0",
    ),
    "episode recorded twice": (
        duplicate_episode,
        "duplicate_episodes",
        "episode 4, episode: same content as episode 3",
    ),
    "counts of another dataset": (
        lambda root: edit_info(root, total_frames=40),
        "counts",
        "total_frames: info.json says 40, the data hold 36, the tables list 36",
    ),
    "split past the end": (
        lambda root: edit_info(root, splits={"train": "0:4", "test": "4:6"}),
        "splits",
        "splits.test: '4:6' for 5 episodes",
    ),
    "length other than the rows": (
        lambda root: edit_episode_table(root, "length", 1, 5),
        "frame_counts",
        "episode 1, length, num_rows: 5 and 6",
    ),
    "range that contradicts the rows": (
        lambda root: edit_episode_table(root, "dataset_from_index", 2, 13),
        "episode_ranges",
        "episode 2, dataset_from_index: starts at row 13, the one before ends at 14",
    ),
    "file that does not hold the rows": (
        lambda root: edit_episode_table(root, "data/file_index", 2, 1),
        "episode_ranges",
        "episode 2, dataset_from_index: its rows lie in chunk and file [0, 0]",
    ),
    "instruction nobody lists": (
        lambda root: edit_episode_table(root, "tasks", 0, ["do the pul"]),
        "tasks",
        "episode 0, tasks: instruction 'do the pul' is not in tasks.parquet",
    ),
}


# Faults that do not touch each other are planted together: running the suites takes a second.
PLANTED_TOGETHER = {
    "values": [
        "nan action",
        "action beyond its limits",
        "infinite state",
        "timestamp that jumps",
        "time that stands still",
        "unknown task index",
    ],
    "images": [
        "undecodable image",
        "truncated image",
        "image of another size",
        "black image",
        "plain green image",
    ],
    "order": ["frame that occurs twice", "frame that was dropped", "camera that stands still"],
    "metadata": [
        "counts of another dataset",
        "split past the end",
        "file that does not hold the rows",
        "instruction nobody lists",
    ],
    "lengths": ["length other than the rows"],
    "ranges": ["range that contradicts the rows"],
    "duplicates": ["episode recorded twice"],
}


def test_every_fault_is_planted_once():
    assert sorted(itertools.chain(*PLANTED_TOGETHER.values())) == sorted(PLANTED)


@pytest.mark.parametrize("group", PLANTED_TOGETHER)
def test_every_planted_fault_is_found_and_named(root, group):
    faults = [PLANTED[name] for name in PLANTED_TOGETHER[group]]
    for plant, _, _ in faults:
        plant(root)
    report = run(root)
    assert not report.passed
    for _, check, expected in faults:
        named = [text for kind, text in findings(report) if kind == check]
        assert any(text.startswith(expected) for text in named), findings(report)


def drop_column(root, key):
    edit_table(root / "data/chunk-000/file-000.parquet", lambda table: table.drop_columns([key]))


def lose_a_row(root):
    def change(table):
        values = table["action"].to_pylist()
        values[4] = None
        column = pa.array(values, pa.list_(pa.float32()))
        return table.set_column(table.schema.get_field_index("action"), "action", column)

    edit_table(root / "data/chunk-000/file-000.parquet", change)


UNREADABLE = {
    "no frames": (
        lambda root: edit_table(
            root / "data/chunk-000/file-000.parquet", lambda table: table.slice(0, 0)
        ),
        "the data files hold no frames",
    ),
    "truncated parquet": (
        lambda root: (root / "data/chunk-000/file-000.parquet").write_bytes(b"PAR1 and no more"),
        "data/chunk-000/file-000.parquet: ",
    ),
    "no tasks": (lambda root: (root / layout.TASKS).unlink(), "meta: "),
    "declared key missing": (
        lambda root: drop_column(root, "action"),
        "action: declared in info.json, missing in file-000.parquet",
    ),
    "declared reward missing": (
        lambda root: drop_column(root, "next.reward"),
        "next.reward: declared in info.json, missing in file-000.parquet",
    ),
    "action stored as text": (
        lambda root: edit_table(
            root / "data/chunk-000/file-000.parquet",
            lambda t: t.set_column(2, "action", pa.array(["[0, 0, 0]"] * t.num_rows)),
        ),
        "action: is string in file-000.parquet, not float32",
    ),
    "row without a vector": (
        lose_a_row,
        "column action: row 4 is missing",
    ),
}


@pytest.mark.parametrize("fault", UNREADABLE)
def test_a_dataset_that_cannot_be_read_fails_with_a_report(root, fault):
    damage, expected = UNREADABLE[fault]
    damage(root)
    report = run(root)
    assert not report.passed
    assert any(expected in text for _, text in findings(report)), findings(report)
    assert "Failed" in (root.parent / "reports/validation.html").read_text()
    assert not run(root, files="warn", features="warn").passed  # as nothing else was looked at


def test_a_video_that_is_missing_or_too_short_is_found(pristine, tmp_path):
    shutil.copytree(pristine / "video", tmp_path / "d")
    edit_episode_table(tmp_path / "d", f"videos/{IMAGES}/from_timestamp", 4, 3.0)
    report = run(tmp_path / "d")
    named = sorted(text for kind, text in findings(report) if kind == "images_decodable")
    assert len(named) == 10
    assert named[0].startswith(f"episode 4, frame 0, {IMAGES}: ")
    assert "ends before frame 36" in named[0]
    video = next((tmp_path / "d").rglob("*.mp4"))
    video.unlink()
    report = run(tmp_path / "d")
    expected = f"{IMAGES}: videos/{IMAGES}/chunk-000/file-000.mp4 is missing"
    assert ("features", expected) in findings(report)


def test_a_frame_that_lost_its_episode_is_found(root):
    edit_column(root, "episode_index", {6: None})
    report = run(root)
    assert findings(report) == {
        ("features", f"tables: {root}: column episode_index: row 6 is missing")
    }
