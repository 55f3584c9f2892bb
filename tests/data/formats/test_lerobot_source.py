import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.images import decode_image
from rrf.data.schema import EncodedImages
from tests.data.conftest import draw
from tests.data.fixtures_lerobot_v2 import (
    CAMERA,
    assert_shows,
    change_columns,
    data_path,
    edit_features,
    image_column,
    read,
    read_one,
    video_path,
    write_v2,
    write_video,
)

DATES = pa.array(range(6), pa.date32())


@pytest.fixture
def root(tmp_path):
    """Episodes 0 (6 frames) and 3 (5 frames), v2.1."""
    return write_v2(tmp_path / "v2", {0: 6, 3: 5})


@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
def test_an_episode_per_file_comes_back_as_recorded(tmp_path, version):
    root = write_v2(tmp_path, {0: 6, 3: 5}, version)
    source = LeRobotSource(root, {})
    recordings = source.recordings()
    assert [recording.name for recording in recordings] == ["episode_000000", "episode_000003"]
    assert recordings[1].paths == (data_path(root, 3), video_path(root, 3))
    assert [recording.num_episodes for recording in recordings] == [1, 1]
    (episode,) = source.episodes(recordings[1], ["observation.state", "action", CAMERA])
    assert episode.arrays["observation.state"].dtype == np.float32
    assert episode.arrays["observation.state"][4].tolist() == [4.0, 8.0, 12.0, 3.0]
    np.testing.assert_allclose(episode.arrays["action"][:, 1], -0.03)
    assert episode.images[CAMERA].shape == (5, 16, 16, 3)
    assert_shows(episode.images[CAMERA], 3)
    assert (episode.instruction, episode.fps, len(episode)) == ("push the button", 10.0, 5)
    assert episode.source == f"{data_path(root, 3)}:episode_3"
    assert source.warnings == []


def test_keys_say_what_there_is(root):
    assert LeRobotSource(root, {}).keys() == {
        CAMERA: "image[16, 16]",
        "observation.state": "float32[4]",
        "action": "float32[2]",
        "timestamp": "float32[]",
        "frame_index": "int64[]",
        "episode_index": "int64[]",
        "index": "int64[]",
        "task_index": "int64[]",
    }


def test_a_damaged_column_is_in_nobody_elses_way(root):
    change_columns(data_path(root, 0), action=[None] + [[1.0, 2.0]] * 5, dates=DATES)
    assert read_one(root, ["observation.state"])[0].arrays["observation.state"].shape == (6, 4)
    keys = LeRobotSource(root, {}).keys()
    assert (keys["action"], keys["dates"]) == ("float32[2]", "date32[day]")
    with pytest.raises(ValueError, match="episode_0: action: row 0 is missing"):
        read(root)
    with pytest.raises(ValueError, match=r"dates: values of type date32\[day\] are not supported"):
        read(root, ["dates"])


def test_an_unknown_key_or_option_names_the_closest(root):
    with pytest.raises(ValueError, match=r"no key 'actoin'; did you mean 'action'"):
        read(root, ["actoin"])
    with pytest.raises(ValueError, match=r"no field 'instruction'; did you mean 'instruction_key'"):
        LeRobotSource(root, {"instruction": "task"})


@pytest.mark.parametrize(
    ("numbers", "known"),
    [([29], "only 29"), ([3, 4], "only 3 to 4"), ([3, 9], "only 2 from 3 to 9")],
)
def test_an_episode_that_is_not_there_is_told_what_is(tmp_path, numbers, known):
    source = LeRobotSource(write_v2(tmp_path, dict.fromkeys(numbers, 2)), {})
    with pytest.raises(ValueError, match=f"has no episode 0, {known}$"):
        source.episode(0, ["action"])


def test_images_in_the_table_stay_encoded(tmp_path):
    root = write_v2(tmp_path, {0: 3}, storage="image")
    episode, source = read_one(root, [CAMERA])
    images = episode.images[CAMERA]
    assert isinstance(images, EncodedImages)
    assert (images.suffix, len(images)) == ("png", 3)
    np.testing.assert_array_equal([decode_image(blob) for blob in images.blobs], draw(0, 3))
    assert source.keys()[CAMERA] == "image[16, 16]"
    change_columns(data_path(root, 0), **{CAMERA: image_column(draw(0, 3), "JPEG")})
    assert read_one(root, [CAMERA])[0].images[CAMERA].suffix == "jpg"


def test_images_beside_the_table_are_read_from_inside_the_directory(tmp_path):
    root = write_v2(tmp_path / "d", {0: 2}, storage="image")
    rows = image_column(draw(0, 2)).to_pylist()
    (root / "images").mkdir()
    for row in rows:
        (root / "images" / row["path"]).write_bytes(row["bytes"])
    arrow_type = image_column(draw(0, 1)).type
    beside = [{"bytes": None, "path": f"images/{row['path']}"} for row in rows]
    change_columns(data_path(root, 0), **{CAMERA: pa.array(beside, arrow_type)})
    images = read_one(root, [CAMERA])[0].images[CAMERA]
    np.testing.assert_array_equal(decode_image(images.blobs[1]), draw(0, 2)[1])
    outside = [beside[0], {"bytes": None, "path": "../secret.png"}]
    change_columns(data_path(root, 0), **{CAMERA: pa.array(outside, arrow_type)})
    with pytest.raises(ValueError, match=r"episode_0: .*front.*'\.\./secret\.png' leads out of"):
        read(root, [CAMERA])
    absent = [beside[0], {"bytes": None, "path": "images/absent.png"}]
    change_columns(data_path(root, 0), **{CAMERA: pa.array(absent, arrow_type)})
    with pytest.raises(ValueError, match=r"row 1: the image .*absent\.png is missing"):
        read(root, [CAMERA])


@pytest.mark.parametrize(
    ("blobs", "message"),
    [
        ([b"GIF89a..", b""], r"row 0 holds 8 bytes that are neither JPEG nor PNG"),
        (["png", None], "row 1 is missing"),
        (["png", "jpg"], "row 1 is jpg, the rows before are png"),
    ],
)
def test_an_image_that_cannot_be_passed_on_is_named(tmp_path, blobs, message):
    root = write_v2(tmp_path, {0: 2}, storage="image")
    good = {
        "png": image_column(draw(0, 1)).to_pylist()[0]["bytes"],
        "jpg": image_column(draw(0, 1), "JPEG").to_pylist()[0]["bytes"],
    }
    rows = [{"bytes": good.get(blob, blob), "path": None} for blob in blobs]
    arrow_type = image_column(draw(0, 1)).type
    change_columns(data_path(root, 0), **{CAMERA: pa.array(rows, arrow_type)})
    with pytest.raises(ValueError, match=rf"episode_0: {CAMERA}: {message}"):
        read(root, [CAMERA])


def test_a_longer_video_loses_its_last_frames_with_a_warning(tmp_path):
    root = write_v2(tmp_path, {1: 6}, extra_frames=1)
    episode, source = read_one(root, [CAMERA])
    assert_shows(episode.images[CAMERA], 1)
    (warning,) = source.warnings
    assert warning.endswith(
        f"episode_1: {CAMERA} has 7 frames, the table 6; the last 1 are dropped"
    )


def test_a_shorter_video_is_refused_with_both_counts(root):
    write_video(video_path(root, 0), draw(0, 5))
    with pytest.raises(
        ValueError, match=rf"episode_0: {CAMERA}: .*mp4 holds 5 frames, the table 6"
    ):
        read(root, [CAMERA])
    assert len(read_one(root, ["action"])[0]) == 6


def test_a_longer_video_of_another_rate_is_refused(root):
    write_video(video_path(root, 0), draw(0, 12), fps=20)
    with pytest.raises(
        ValueError,
        match=r"12 frames, the table 6, and 20 frames/s in .* table 10\. .* source: \{fps: 20\}",
    ):
        read(root, [CAMERA])
    source = LeRobotSource(root, {})
    source.set_fps(20)
    (episode,) = source.episodes(source.recordings()[0], [CAMERA])
    assert_shows(episode.images[CAMERA], 0)
    assert source.warnings[0].endswith("12 frames, the table 6; the last 6 are dropped")


def test_a_video_of_another_size_is_reported(root):
    write_video(video_path(root, 0), draw(0, 6, size=32))
    episode, source = read_one(root, [CAMERA])
    assert episode.images[CAMERA].shape == (6, 32, 32, 3)
    assert f"{CAMERA} is [32, 32] px, meta/info.json says [16, 16]" in source.warnings[0]


def test_a_declared_camera_that_is_not_on_disk_is_an_error_only_when_asked_for(root):
    absent = {"dtype": "video", "shape": [3, 8, 12], "names": ["channels", "height", "width"]}
    edit_features(root, observation__images__wrist=absent)
    episode, source = read_one(root, [CAMERA])
    assert len(episode) == 6
    assert source.keys()["observation.images.wrist"] == "image[8, 12] (not on disk)"
    with pytest.raises(
        ValueError, match=r"wrist' is declared in meta/info\.json but not on disk \(the first file "
    ):
        read(root, ["observation.images.wrist"])


@pytest.mark.parametrize("names", [None, ["channels", "height", "width"]])
def test_the_size_of_a_camera_is_read_off_its_shape_whatever_its_names(root, names):
    first = {"dtype": "video", "shape": [3, 8, 12], "names": names}
    last = {"dtype": "video", "shape": [8, 12, 3], "names": names}
    edit_features(root, observation__images__first=first, observation__images__last=last)
    keys = LeRobotSource(root, {}).keys()
    assert keys["observation.images.first"] == "image[8, 12] (not on disk)"
    assert keys["observation.images.last"] == "image[8, 12] (not on disk)"


def test_a_video_missing_for_one_episode_is_named(root):
    video_path(root, 3).unlink()
    assert LeRobotSource(root, {}).keys()[CAMERA] == "image[16, 16]"
    with pytest.raises(ValueError, match=r"episode_3: .*episode_000003\.mp4 is missing, truncated"):
        read(root, [CAMERA], number=1)


def test_json_vectors_are_converted_with_a_warning(root):
    texts = [json.dumps([frame, -frame]) for frame in range(6)]
    change_columns(data_path(root, 0), action=texts)
    episode, source = read_one(root)
    assert episode.arrays["action"].tolist()[2] == [2.0, -2.0]
    assert source.warnings[-1].endswith("episode_0: action is JSON text, converted to float64[2]")
    change_columns(data_path(root, 0), notes=["[0.5, 1]"] * 6, words=["[sic] do it"] * 6)
    episode, source = read_one(root, ["notes", "words"])
    assert episode.arrays["notes"].shape == (6, 2)
    assert episode.arrays["words"].tolist() == ["[sic] do it"] * 6
    assert source.keys()["words"] == "text"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, ", "row 4 is not JSON"),
        ('{"a": 1}', "expected a JSON list of numbers"),
        ('["1", "2"]', "expected a JSON list of numbers"),
        ("[1, 2, 3]", "row 4 has 3 values, the rows before have 2"),
        ("[" * 100_000, "row 4 is not JSON"),
        (None, "row 4 is missing"),
    ],
)
def test_a_bad_json_vector_is_named(root, text, message):
    texts = [json.dumps([frame, -frame]) for frame in range(6)]
    texts[4] = text
    change_columns(data_path(root, 0), action=texts)
    with pytest.raises(ValueError, match=rf"episode_0: action: .*{message}"):
        read(root)


def test_a_row_of_another_length_is_named(root):
    values = [[1.0, 2.0]] * 3 + [[1.0]] + [[1.0, 2.0]] * 2
    change_columns(data_path(root, 0), action=pa.array(values, pa.list_(pa.float32())))
    with pytest.raises(
        ValueError, match=r"episode_0: action: row 3 has 1 values, .* before have 2"
    ):
        read(root)


def test_a_vector_of_another_length_than_declared_is_named(root):
    change_columns(data_path(root, 3), action=[[1.0, 2.0, 3.0]] * 5)
    with pytest.raises(
        ValueError, match=r"episode_3: action has shape \[3\] in the table, but \[2\]"
    ):
        read(root, number=1)


def test_missing_values_are_named(root):
    change_columns(data_path(root, 0), action=[[1.0, 2.0]] * 2 + [None] + [[1.0, 2.0]] * 3)
    with pytest.raises(ValueError, match="episode_0: action: row 2 is missing"):
        read(root)
    change_columns(data_path(root, 0), action=[[1.0, 2.0]] * 4 + [[None, 2.0]] + [[1.0, 2.0]])
    with pytest.raises(ValueError, match="episode_0: action: row 4 is missing"):
        read(root)


def test_nested_vectors_keep_their_shape(root):
    poses = np.arange(36).reshape(6, 3, 2)
    change_columns(data_path(root, 0), poses=poses.tolist())
    np.testing.assert_array_equal(read_one(root, ["poses"])[0].arrays["poses"], poses)
    ragged = [*poses.tolist()[:5], [[1, 2], [3, 4], [5]]]
    change_columns(data_path(root, 0), poses=ragged)
    with pytest.raises(ValueError, match="poses: row 5 has 1 values"):
        read(root, ["poses"])


def test_a_missing_column_is_named(root):
    change_columns(data_path(root, 3), action=None)
    with pytest.raises(ValueError, match=r"episode_000003\.parquet has no column 'action'"):
        read(root, number=1)
    change_columns(data_path(root, 0), action=None)
    source = LeRobotSource(root, {})
    assert source.keys()["action"] == "float32[2] (not on disk)"
    with pytest.raises(ValueError, match=r"'action' is declared .* \(no data file has it\)"):
        list(source.episodes(source.recordings()[0], ["action"]))


def test_truncated_files_are_named(root):
    path = video_path(root, 0)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(
        ValueError, match=rf"episode_0: {CAMERA}: .*000000\.mp4 .*download it again"
    ):
        read(root, [CAMERA])
    path = data_path(root, 3)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"episode_000003\.parquet is truncated or not parquet"):
        read(root, number=1)


def test_a_table_with_a_damaged_name_of_a_column_is_named(root):
    path = data_path(root, 0)
    pq.write_table(pq.read_table(path), path, store_schema=False)
    content = path.read_bytes()
    assert b"task_index" in content
    path.write_bytes(content.replace(b"task_index", b"\x89ask_index"))
    with pytest.raises(ValueError, match=r"episode_000000\.parquet is truncated or not parquet"):
        read(root)


@pytest.mark.parametrize("flags", ["", "faststart"])
def test_every_cut_of_a_video_is_an_error_or_the_whole_episode(root, flags):
    write_video(video_path(root, 0), draw(0, 6), movflags=flags)
    whole = read_one(root, [CAMERA])[0].images[CAMERA]
    content, num_errors = video_path(root, 0).read_bytes(), 0
    for cut in range(0, len(content), 97):
        video_path(root, 0).write_bytes(content[:cut])
        try:
            found = read_one(root, [CAMERA])[0].images[CAMERA]
        except ValueError as error:
            assert f"episode_0: {CAMERA}" in str(error)  # noqa: PT017
            num_errors += 1
        else:
            np.testing.assert_array_equal(found, whole)
    assert num_errors > len(content) // 97 * 0.8


def test_an_empty_table_is_refused(root):
    pq.write_table(pq.read_table(data_path(root, 0)).slice(0, 0), data_path(root, 0))
    with pytest.raises(ValueError, match=r"episode_000000\.parquet:episode_0 has no frames"):
        read(root)
