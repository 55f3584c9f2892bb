"""What LeRobot recordings contradict of themselves: their statistics, their time, their order; from
reading to the report.
"""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import SourceCfg, VectorCfg
from rrf.data.dataset import parquet
from rrf.data.formats import arrow_arrays
from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.formats.lerobot_statistics import contradiction
from rrf.data.validation.validate import validate
from tests.data.conftest import draw, edit_column, make_cfg, write_raw
from tests.data.fixtures_lerobot_v2 import (
    CAMERA,
    change_columns,
    data_path,
    read_one,
    video_path,
    write_lines,
    write_v2,
    write_video,
)

LENGTHS = {0: 9, 1: 8}
CHECKS = ("timestamps", "frame_order", "source_statistics")


@pytest.fixture
def root(tmp_path):
    """Two episodes with the statistics of v2.1."""
    write_v2(tmp_path / "v2", LENGTHS)
    lines = []
    for number in LENGTHS:
        table = pq.read_table(data_path(tmp_path / "v2", number))
        stats = {}
        for key in ("observation.state", "action"):
            values = np.stack(table[key].to_pylist())
            names = {"min": values.min(0), "max": values.max(0), "mean": values.mean(0)}
            stats[key] = {name: value.tolist() for name, value in names.items()}
            stats[key]["count"] = [len(values)]
        lines.append({"episode_index": number, "stats": stats})
    write_lines(tmp_path / "v2/meta/episodes_stats.jsonl", lines)
    return tmp_path / "v2"


def cfg():
    return make_cfg(
        source=SourceCfg(format="lerobot", path="recordings/toy"),
        cameras={"front": CAMERA},
        state=VectorCfg(keys=["observation.state"], names=["a", "b", "c", "d"], unit="m"),
        action=VectorCfg(keys=["action"], names=["dx", "dy"], unit="m"),
        reward=None,
        success=None,
    )


def failures(root):
    """What validation says of a recording's contradictions after it was converted."""
    out = root.parent / "d"
    convert(cfg(), root, out)
    report = validate("toy", out, ChecksCfg(), root.parent / "reports")
    asked = [c for c in report.checks if c.check in CHECKS and "recording" in c.title]
    assert [check.check for check in asked] == list(CHECKS)
    return {(c.check, c.status, str(f)) for c in asked for f in c.findings}


def test_a_sound_recording_is_said_to_agree_with_itself(root):
    assert failures(root) == set()


def test_a_flipped_number_contradicts_the_statistics(root):
    action = [list(row) for row in pq.read_table(data_path(root, 1))["action"].to_pylist()]
    action[3][1] += 1.8
    change_columns(data_path(root, 1), action=action)
    assert failures(root) == {
        (
            "source_statistics",
            "fail",
            "episode 1, recording: action max of dimension 1 is 1.79, its statistics say -0.01",
        )
    }


def test_a_gap_and_rows_that_were_swapped_fail(root):
    table = pq.read_table(data_path(root, 0))
    times = table["timestamp"].to_numpy() + 0.5 * (np.arange(9) >= 4)
    change_columns(data_path(root, 0), timestamp=times.astype(np.float32))
    order = [0, 1, 3, 2, *range(4, 8)]
    pq.write_table(pq.read_table(data_path(root, 1)).take(order), data_path(root, 1))
    assert failures(root) == {
        (
            "timestamps",
            "fail",
            "episode 0, recording: timestamp at frame 4 is 0.6 s after the one before, 0.1 s are "
            "usual",
        ),
        ("timestamps", "fail", "episode 1, recording: timestamp at frame 3 is 0.2 s, after 0.3 s"),
        ("frame_order", "fail", "episode 1, recording: frame_index of row 2 is 3, after 1"),
    }


def test_statistics_in_the_episode_table_of_v3_are_compared(tmp_path):
    convert(make_cfg(), write_raw(tmp_path / "raw", {"pull": [5, 6]}), tmp_path / "v3")

    def problems():
        source = LeRobotSource(tmp_path / "v3", {})
        (recording,) = source.recordings()
        return [e.problems for e in source.episodes(recording, ["action", "observation.state"])]

    assert problems() == [[], []]
    table = pq.read_table(tmp_path / "v3/data/chunk-000/file-000.parquet")
    edit_column(tmp_path / "v3", "action", {7: [1.8, *table["action"][7].as_py()[1:]]})
    _, ((check, text),) = problems()
    assert check == "source_statistics"
    assert text == "action max of dimension 0 is 1.8, its statistics say 0.05"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"min": [0, 0], "max": [2, 20], "mean": [1, 10.0001], "count": [3]}, None),
        ({"mean": [1, 10.1]}, "mean of dimension 1 is 10, its statistics say 10.1"),
        ({"min": [-0.1, 0]}, "min of dimension 0 is 0, its statistics say -0.1"),
        ({"count": [4]}, "has 3 frames, its statistics are of 4"),
        ({"max": [9.0]}, None),  # of something else
        ({"max": None, "mean": ["x", "y"]}, None),
    ],
)
def test_statistics_may_differ_by_rounding(said, expected):
    assert contradiction(np.array([[0, 0], [1, 10], [2, 20]], np.float32), said) == expected


def test_a_count_that_the_list_of_episodes_contradicts_fails_with_both_names(root):
    write_lines(
        root / "meta/episodes.jsonl",
        [
            {"episode_index": 0, "tasks": ["pull"], "length": 9},
            {"episode_index": 1, "tasks": ["pull"], "length": 20},
        ],
    )
    text = "episode_000001.parquet has 8 frames, the list of episodes says 20"
    assert failures(root) == {("source_statistics", "fail", f"episode 1, recording: {text}")}


def test_a_standard_deviation_is_compared_whichever_way_it_was_made():
    values = np.array([[0.0], [1], [2], [3]])
    for ddof in (0, 1):
        assert contradiction(values, {"std": [values.std(ddof=ddof)]}) is None
    message = "std of dimension 0 is 1.118, its statistics say 1.5"
    assert contradiction(values, {"std": [1.5]}) == message
    swapped = np.array([[0.0], [1.5], [1.5], [3]])  # the same bounds and mean
    assert contradiction(swapped, {"min": [0], "max": [3], "mean": [1.5], "std": [1.118]})


def test_numbers_outside_the_statistics_of_v2_0_fail(tmp_path):
    root = write_v2(tmp_path / "v2", LENGTHS, "v2.0")
    tables = [pq.read_table(data_path(root, number)) for number in LENGTHS]
    values = np.concatenate([np.stack(table["action"].to_pylist()) for table in tables])
    stats = {"min": values.min(0).tolist(), "max": values.max(0).tolist()}
    (root / "meta/stats.json").write_text(json.dumps({"action": stats}))
    assert failures(root) == set()
    action = [list(row) for row in tables[1]["action"].to_pylist()]
    action[3][1] += 1.8
    change_columns(data_path(root, 1), action=action)
    ((check, status, text),) = failures(root)
    assert (check, status) == ("source_statistics", "fail")
    assert text.startswith(
        "episode 1, recording: action at frame 3, dimension 1 is 1.79, meta/stats.json says"
    )


def test_a_mean_of_v2_0_that_the_episodes_do_not_have_is_told(tmp_path):
    root = write_v2(tmp_path / "v2", LENGTHS, "v2.0")
    tables = [pq.read_table(data_path(root, number)) for number in LENGTHS]
    values = np.concatenate([np.stack(table["action"].to_pylist()) for table in tables])
    stats = {"mean": values.mean(0).tolist(), "std": values.std(0).tolist()}
    (root / "meta/stats.json").write_text(json.dumps({"action": stats}))

    def told():
        return [text for text in LeRobotSource(root, {}).audit() if "stats.json" in text]

    assert told() == []
    action = [list(row) for row in tables[1]["action"].to_pylist()]
    action[3][0] += 0.5
    change_columns(data_path(root, 1), action=action)
    (text,) = told()
    assert "meta/stats.json: action mean of dimension 0 is" in text


@pytest.mark.slow
def test_a_video_of_other_pixels_than_the_statistics_say_fails(root):
    path = root / "meta/episodes_stats.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        mean = draw(line["episode_index"], 9).mean(axis=(0, 1, 2)) / 255
        said = {"mean": mean.reshape(3, 1, 1).tolist(), "max": np.ones((3, 1, 1)).tolist()}
        line["stats"][CAMERA] = said
    write_lines(path, lines)
    assert failures(root) == set()
    write_video(video_path(root, 1), np.full_like(draw(1, 8), 255))
    ((check, status, text),) = failures(root)
    assert (check, status) == ("source_statistics", "fail")
    assert f"episode 1, recording: {CAMERA} channel 0 has the mean 1 of white" in text


def test_a_line_without_statistics_is_named(root):
    write_lines(root / "meta/episodes_stats.jsonl", [{"episode_index": 0}])
    with pytest.raises(ValueError, match=r"episodes_stats.jsonl:1 has no mapping 'stats'"):
        read_one(root)


@pytest.mark.parametrize(
    "read_file",
    [lambda path: arrow_arrays.read_parquet(path, ["action"]), parquet.read_table],
    ids=["recording", "dataset"],
)
def test_the_checksums_of_parquet_pages_are_compared(tmp_path, root, read_file):
    path = tmp_path / "sums.parquet"
    table = pq.read_table(data_path(root, 0)).select(["action"])
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, path, **plain)
    content = bytearray(path.read_bytes())
    at = content.find(np.float32(0.05).tobytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert pq.read_table(path).num_rows == 9  # nobody notices
    with pytest.raises(ValueError, match=r"sums.parquet .*CRC checksum verification failed"):
        read_file(path)
