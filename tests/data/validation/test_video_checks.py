"""Table and video hold the same frames at the declared rate, and a frame is quickly reached."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pytest

from rrf.data.conversion.checks_cfg import LimitsCfg
from rrf.data.conversion.convert import convert
from rrf.data.conversion.video_encoding import encode_video
from rrf.data.dataset import layout
from rrf.data.formats.video_facts import video_facts
from rrf.data.validation.checks import SEVERITIES
from rrf.data.validation.tables import read_tables
from rrf.data.validation.video_checks import check_pace
from tests.data.conftest import FPS, SIZE, draw, edit_column, edit_table, make_cfg, write_raw

KEY = "observation.images.front"
VIDEO = f"videos/{KEY}/chunk-000/file-000.mp4"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """Episodes of 8, 6 and 7 frames in one video of 21 frames."""
    folder = tmp_path_factory.mktemp("pace")
    convert(make_cfg(storage="video"), write_raw(folder / "raw", {"a": [8, 6, 7]}), folder / "d")
    return folder / "d"


@pytest.fixture
def root(pristine, tmp_path):
    shutil.copytree(pristine, tmp_path / "d")
    return tmp_path / "d"


def found(root, limits=LimitsCfg()):
    results = check_pace(root, read_tables(root), SEVERITIES, limits)
    return {(one.check, str(finding)) for one in results for finding in one.findings}


def film(path, images, fps=FPS, keyframe_interval=10):
    path.write_bytes(encode_video(list(images), fps, images.shape[1:3], "h264", keyframe_interval))


def test_a_good_dataset_has_no_findings(root):
    assert found(root) == set()
    assert video_facts(root / VIDEO).num_frames == 21
    assert video_facts(root / VIDEO).fps == pytest.approx(10)


def test_keyframes_are_counted_from_packets(tmp_path):
    film(tmp_path / "v.mp4", draw(0, 100), keyframe_interval=25)
    facts = video_facts(tmp_path / "v.mp4")
    assert (facts.num_frames, facts.keyframe_interval_s) == (100, pytest.approx(2.5))


def test_a_video_with_more_frames_than_the_table_is_found(root):
    film(root / VIDEO, draw(0, 22))
    assert found(root) == {
        ("video_frames", f"{KEY}: {VIDEO} holds 22 frames, the episodes 21"),
    }


def test_a_video_with_fewer_frames_is_found(root):
    film(root / VIDEO, draw(0, 20))
    assert ("video_frames", f"{KEY}: {VIDEO} holds 20 frames, the episodes 21") in found(root)


def test_an_episode_whose_video_is_longer_than_its_table_is_named(root):
    def change(table):
        name = f"videos/{KEY}/to_timestamp"
        column = pa.array([0.8, 1.5, 2.1], table.schema.field(name).type)
        return table.set_column(table.schema.get_field_index(name), name, column)

    edit_table(root / "meta/episodes/chunk-000/file-000.parquet", change)
    assert found(root) == {("video_frames", f"episode 1, {KEY}: 7 frames of video, 6 in the table")}


def test_keyframes_far_apart_are_found(root):
    film(root / VIDEO, draw(0, 21), keyframe_interval=21)
    assert found(root) == set()  # 2.0 s
    assert found(root, LimitsCfg(max_keyframe_interval_s=1)) == {
        ("keyframes", f"{KEY}: {VIDEO} has keyframes 2 s apart")
    }


def test_a_rate_other_than_declared_is_found_in_time_stamps_and_in_the_video(root):
    slow = {row: frame / 5 for row, frame in zip(range(8, 14), range(6), strict=True)}
    edit_column(root, "timestamp", slow)
    assert found(root) == {
        ("measured_fps", "episode 1, timestamp: grows at 5 frames/s, 10 are declared")
    }
    assert found(root, LimitsCfg(max_fps_error=0.6)) == set()
    path = root / layout.INFO
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fps": 20}))
    checks = {text for check, text in found(root) if check == "measured_fps"}
    assert checks == {
        "episode 0, timestamp: grows at 10 frames/s, 20 are declared",
        "episode 1, timestamp: grows at 5 frames/s, 20 are declared",
        "episode 2, timestamp: grows at 10 frames/s, 20 are declared",
        f"{KEY}: {VIDEO} runs at 10 frames/s, not 20",
    }


def test_a_time_stamp_is_as_exact_as_float32_is_after_hours(root):
    edit_column(root, "frame_index", {7: 90001})
    edit_column(root, "timestamp", {6: 0.6004, 7: 9000.1})
    error_s = read_tables(root).frames["timestamp_error_s"]
    assert error_s[7] == 0  # 0.39 ms off 9000.1
    assert error_s[6] == pytest.approx(0.0004, abs=1e-6)


def test_a_damaged_video_is_a_finding(root):
    (root / VIDEO).write_bytes(b"no video")
    texts = [text for check, text in found(root) if check == "video_frames"]
    assert any("file-000.mp4 is missing, truncated or no video" in text for text in texts)


@pytest.mark.parametrize("moving", [False, True])
def test_a_camera_that_stands_still_is_found_through_lossy_compression(root, moving):
    rng = np.random.default_rng(0)
    scene = rng.integers(0, 255, (SIZE, SIZE, 3), np.uint8)
    images = np.repeat(scene[None], 21, axis=0)
    if moving:
        for frame in range(21):
            images[frame, 4:7, frame % 12 : frame % 12 + 3] = 255
    film(root / VIDEO, images)
    frozen = read_tables(root).episodes[f"{KEY}.frozen_fraction"].tolist()
    if moving:
        assert max(frozen) < 0.5
    else:
        assert frozen == [1, 1, 1]
