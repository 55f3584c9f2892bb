"""LeRobot directories whose files contradict their metadata, from reading to the report."""

import json
import shlex
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import SourceCfg, VectorCfg
from rrf.data.conversion.lerobot_writer import FileLimits, write_dataset
from rrf.data.dataset import layout, parquet
from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.formats.lerobot_videos import frame_times
from rrf.data.formats.time_stamps import read_time_stamps
from rrf.data.validation.summary import summarise
from rrf.data.validation.validate import validate
from tests.data.conftest import draw, make_cfg
from tests.data.conversion.test_lerobot_writer import make_episode, make_schema
from tests.data.fixtures_lerobot_v2 import (
    CAMERA,
    assert_shows,
    change_columns,
    data_path,
    read,
    read_one,
    video_path,
    write_v2,
    write_video,
)

LENGTHS = {0: 9, 1: 8}


def lerobot_cfg(fps, source_fps=None):
    return make_cfg(
        source=SourceCfg(format="lerobot", path="recordings/toy", fps=source_fps),
        fps=fps,
        storage="video",
        cameras={"front": CAMERA},
        state=VectorCfg(keys=["observation.state"], names=["a", "b", "c", "d"], unit="m"),
        action=VectorCfg(keys=["action"], names=["dx", "dy"], unit="m"),
        reward=None,
        success=None,
    )


@pytest.fixture
def twice_as_fast(tmp_path):
    """info.json says 10 frames/s; time stamps are 0.05 s apart, and so are the frames of the
    videos, which are one frame longer than the tables."""
    root = write_v2(tmp_path / "v2", LENGTHS, version="v2.0")
    for number, length in LENGTHS.items():
        times = (np.arange(length) / 20).astype(np.float32)
        change_columns(data_path(root, number), timestamp=times)
        write_video(video_path(root, number), draw(number, length + 1), fps=20)
    return root


@pytest.mark.parametrize(
    ("fps", "source_fps", "lengths"),
    [
        (20, None, [9, 8]),  # the time stamps decide
        (10, None, [5, 4]),
        (20, 20, [9, 8]),
        (10, 10, [9, 8]),  # the config decides over them
        (5, 10, [5, 4]),
    ],
)
def test_time_stamps_decide_how_fast_was_recorded_unless_the_config_does(
    tmp_path, twice_as_fast, fps, source_fps, lengths
):
    done = convert(lerobot_cfg(fps, source_fps), twice_as_fast, tmp_path / "d")
    info = layout.read_info(tmp_path / "d")
    assert (info["fps"], info["total_frames"]) == (fps, sum(lengths))
    episodes = parquet.read_episodes(tmp_path / "d")
    assert episodes["length"].tolist() == lengths
    times = parquet.read_columns(tmp_path / "d", ["timestamp"])["timestamp"]
    expected = np.concatenate([np.arange(length) / fps for length in lengths])
    np.testing.assert_allclose(times, expected, atol=1e-6)
    (video,) = (tmp_path / "d/videos").rglob("*.mp4")
    np.testing.assert_allclose(frame_times(video), np.arange(sum(lengths)) / fps, atol=1e-4)
    said = [text for text in done.warnings if "timestamp grows at" in text]
    assert len(said) == 1  # not one for each episode
    assert "meta/info.json: timestamp grows at 20 frames/s, 10 are declared; " in said[0]
    if source_fps is None:
        assert "20 is taken. To choose, write in the config source: {fps: 20} (the" in said[0]
        assert "or source: {fps: 10} (info.json is)" in said[0]
    else:
        assert said[0].endswith(f"source.fps says {source_fps}, which is taken")


def test_a_rate_that_fits_neither_names_both_and_the_key(tmp_path, twice_as_fast):
    with pytest.raises(
        ValueError, match=r"at 20 frames/s, .* fps: 15; .*metadata say 10: .*\{fps: 10\}"
    ):
        convert(lerobot_cfg(15), twice_as_fast, tmp_path / "d")


def test_validation_and_its_page_show_the_contradiction(tmp_path, twice_as_fast):
    convert(lerobot_cfg(20), twice_as_fast, tmp_path / "d")
    report = validate("toy", tmp_path / "d", ChecksCfg(), tmp_path / "report")
    (source,) = [check for check in report.checks if check.check == "source"]
    assert source.status == "warn"
    assert any("timestamp grows at 20 frames/s, 10 are" in str(f) for f in source.findings)
    assert (
        "timestamp grows at 20 frames/s, 10 are"
        in (tmp_path / "report/validation.html").read_text()
    )
    rates = [check for check in report.checks if check.check in ("measured_fps", "timestamps")]
    assert {check.status for check in rates} == {"pass"}


def test_a_report_on_such_a_directory_has_the_rate_of_the_time_stamps(twice_as_fast):
    summary = summarise(twice_as_fast)
    assert summary.fps == 20
    assert any("grows at 20 frames/s, 10 are declared" in text for text in summary.warnings)


def test_a_video_of_the_declared_rate_is_no_obstacle(twice_as_fast):
    """Frame i belongs to row i, whatever rate the video was written at."""
    write_video(video_path(twice_as_fast, 0), draw(0, 10), fps=10)
    episode, source = read_one(twice_as_fast, [CAMERA])
    assert episode.fps == 20
    assert_shows(episode.images[CAMERA], 0)
    assert "has 10 frames, the table 9; the last 1 are dropped" in "".join(source.warnings)


@pytest.mark.parametrize(
    ("step_s", "fps", "problem"),
    [
        (0.1, None, None),
        (0.05, 20.0, None),
        (0.0501, 20.0, None),  # as good as a whole number
        (0.4, 2.5, None),
        (0.0985, None, "timestamp grows at 10.15 frames/s, 10 are declared"),  # a clock's jitter
        (100, None, "timestamp is in milliseconds, not in seconds"),
        (1e8, None, "timestamp is in nanoseconds, not in seconds"),
    ],
)
def test_only_a_clear_contradiction_overrules_the_declared_rate(step_s, fps, problem):
    told = read_time_stamps(3.0 + step_s * np.arange(9), 10.0)
    assert told.fps == (fps if fps is None else pytest.approx(fps))
    assert told.problems == ((problem,) if problem else ())


# ---- folders of another name


def write_v3(root):
    episodes = [make_episode(number, 3 + number) for number in range(3)]
    write_dataset(root, make_schema(), episodes, "video", limits=FileLimits())
    return root


@pytest.mark.parametrize("write", [lambda to: write_v2(to, LENGTHS), write_v3], ids=["v2", "v3"])
def test_a_folder_of_another_name_is_answered_with_the_command_that_renames_it(tmp_path, write):
    root = write(tmp_path / "my set")
    (root / "videos").rename(root / "video")
    with pytest.raises(ValueError, match="lies in a folder of another name; rename that: mv ") as e:
        read(root, [CAMERA])
    command = str(e.value).partition("rename that: ")[2]
    assert shlex.split(command) == ["mv", str(root / "video"), str(root / "videos")]
    subprocess.run(command, shell=True, check=True)
    assert_shows(read(root, [CAMERA])[0][0].images[CAMERA], 0)
    (root / "data").rename(root / "tables")
    with pytest.raises(
        ValueError, match=r"data files is on disk, .*; rename their folder: mv "
    ) as e:
        LeRobotSource(root, {})
    subprocess.run(str(e.value).partition("their folder: ")[2], shell=True, check=True)
    assert_shows(read(root, [CAMERA])[0][0].images[CAMERA], 0)


def test_a_folder_of_another_name_beside_the_right_one_is_copied_into_it(tmp_path):
    root = write_v2(tmp_path / "v2", LENGTHS)
    (root / "videos").rename(root / "video")
    (root / "videos").mkdir()
    with pytest.raises(ValueError, match="rename that: cp -r ") as error:
        read(root, [CAMERA])
    subprocess.run(str(error.value).partition("rename that: ")[2], shell=True, check=True)
    assert_shows(read(root, [CAMERA])[0][0].images[CAMERA], 0)


def test_the_command_is_offered_by_the_conversion(tmp_path):
    root = write_v2(tmp_path / "v2", LENGTHS)
    (root / "videos").rename(root / "video")
    with pytest.raises(ValueError, match=r"rename that: mv \S+/video \S+/videos$"):
        convert(lerobot_cfg(10), root, tmp_path / "d")


# ---- columns of parquet's JSON type


def test_vectors_of_the_json_type_are_read_as_json_text(tmp_path):
    root = write_v2(tmp_path / "v2", {0: 6})
    texts = [json.dumps([frame, -frame]) for frame in range(6)]
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts))
    words = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['"go \\u00e4"'] * 5 + [None]))
    objects = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}'] * 6))
    change_columns(data_path(root, 0), action=column, words=words, objects=objects)
    assert "json" in str(pq.read_schema(data_path(root, 0)).field("action").type)
    episode, source = read_one(root, ["action", "objects"])
    assert episode.arrays["action"].tolist()[2] == [2.0, -2.0]
    assert episode.arrays["objects"].tolist() == ['{"a": 1}'] * 6
    with pytest.raises(ValueError, match="words: row 5 is missing"):
        read(root, ["words"])
    change_columns(data_path(root, 0), words=words.slice(0, 1).take(pa.array([0] * 6)))
    assert read_one(root, instruction_key="words")[0].instruction == "go ä"
    assert any("action is JSON text, converted to float64[2]" in t for t in source.warnings)
    assert source.keys()["action"] == "float64[2]"
    done = convert(lerobot_cfg(10), root, tmp_path / "d")
    assert done.frames == 6
    times = [str(frame / 20) for frame in range(6)]
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(times))
    change_columns(data_path(root, 0), timestamp=column)
    assert read_one(root)[0].fps == 20
    texts[4] = "[1, 2, 3]"
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts))
    change_columns(data_path(root, 0), action=column)
    with pytest.raises(ValueError, match="action: row 4 has 3 values, the rows before have 2"):
        read(root)
