import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rrf.data.conversion.lerobot_writer import FileLimits, write_dataset
from rrf.data.dataset import parquet
from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.images import decode_image
from rrf.data.schema import EncodedImages
from tests.data.conftest import draw, edit_column
from tests.data.conversion.test_lerobot_writer import TINY, make_episode, make_schema
from tests.data.fixtures_lerobot_v2 import (
    CAMERA,
    assert_shows,
    edit_info,
    read,
    read_one,
    write_video,
)

SHARED = Path(__file__).parents[4] / "shared/data"
GROOT = SHARED / "groot_robot_sim_PickNPlace/dataset"
G1 = SHARED / "g1_inspire_v21"


@pytest.fixture(params=["image", "video"])
def v3(request, tmp_path):
    """Episodes 0..3 of 4 to 7 frames in several files."""
    episodes = [make_episode(number, 4 + number) for number in range(4)]
    write_dataset(tmp_path / "v3", make_schema(), episodes, request.param, limits=TINY)
    return tmp_path / "v3", episodes


def test_v3_gives_back_what_was_written(v3):
    root, expected = v3
    source = LeRobotSource(root, {})
    recordings = source.recordings()
    assert sum(recording.num_episodes for recording in recordings) == 4
    assert all(path.is_file() for recording in recordings for path in recording.paths)
    found = [
        episode
        for recording in recordings
        for episode in source.episodes(recording, ["observation.state", "action", CAMERA])
    ]
    for truth, episode in zip(expected, found, strict=True):
        np.testing.assert_array_equal(episode.arrays["observation.state"], truth.state)
        np.testing.assert_array_equal(episode.arrays["action"], truth.action)
        assert episode.instruction == truth.instruction
        images = episode.images[CAMERA]
        if isinstance(images, EncodedImages):
            images = np.stack([decode_image(blob) for blob in images.blobs])
            np.testing.assert_array_equal(images, truth.images["front"])
        assert np.abs(images.astype(int) - truth.images["front"]).mean() < 8
    assert source.warnings == []


@pytest.fixture
def shared_file(tmp_path):
    """Three episodes (3, 4, 5 frames) in one data file and one video."""
    episodes = [make_episode(number, 3 + number) for number in range(3)]
    write_dataset(tmp_path / "v3", make_schema(), episodes, "video", limits=FileLimits())
    return tmp_path / "v3"


def edit_episodes(root, **columns):
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    for name, values in columns.items():
        index = table.schema.get_field_index(name)
        table = table.set_column(index, name, pa.array(values, table.schema.field(name).type))
    pq.write_table(table, path)


def test_an_episode_is_read_where_its_rows_lie(tmp_path):
    root, expected = tmp_path / "v3", [make_episode(number, 4 + number) for number in range(4)]
    write_dataset(root, make_schema(), expected, "image", limits=FileLimits())
    file = root / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.slice(4 + 5), file.with_name("file-001.parquet"))
    pq.write_table(table.slice(0, 4 + 5), file)
    # as the converter from v2.1 leaves it: the first episode of a file is said to be in the last
    edit_episodes(root, **{"data/file_index": [0, 0, 0, 1]})
    source = LeRobotSource(root, {})
    found = [e for r in source.recordings() for e in source.episodes(r, ["action"])]
    assert [episode.arrays["action"].tolist() for episode in found] == [
        truth.action.tolist() for truth in expected
    ]
    (warning,) = source.warnings
    assert f"episode 2 lies in {file.with_name('file-001.parquet')}, not in {file}, " in warning


@pytest.mark.parametrize("start_s", [0.0, 0.9, 5.0])
def test_an_episode_is_read_from_the_video_that_has_it(tmp_path, start_s):
    """Its row names the video before; where it begins is said for the one or the other."""
    root, expected = tmp_path / "v3", [make_episode(number, 4 + number) for number in range(4)]
    write_dataset(root, make_schema(), expected, "video", limits=FileLimits())
    (file,) = root.glob("videos/*/*/*.mp4")
    write_video(file, np.concatenate([draw(0, 4), draw(1, 5)]))
    write_video(file.with_name("file-001.mp4"), np.concatenate([draw(2, 6), draw(3, 7)]))
    edit_episodes(root, **{f"videos/{CAMERA}/file_index": [0, 0, 0, 1]})
    place_in_video(root, 0.0, 0.4, start_s, 0.6)
    episodes, source = read(root, [CAMERA])
    assert_episodes_show_their_own_frames(episodes)
    assert [len(episode.images[CAMERA]) for episode in episodes] == [4, 5, 6, 7]
    (warning,) = source.warnings
    assert f"lies in {file.with_name('file-001.mp4')}, not in {file}" in warning


def test_task_texts_of_an_index_that_became_a_column_are_read(shared_file):
    path = shared_file / "meta/tasks.parquet"
    tasks = pq.read_table(path).to_pandas()
    table = pa.table({"__index_level_0__": list(tasks.index), "task_index": list(tasks.task_index)})
    pq.write_table(table, path)
    episodes, _ = read(shared_file)
    assert {episode.instruction for episode in episodes} == set(tasks.index)
    assert parquet.read_tasks(shared_file) == list(tasks.index)


def test_episodes_of_a_shared_video_show_their_own_frames(shared_file):
    episodes, source = read(shared_file, [CAMERA])
    assert [recording.name for recording in source.recordings()] == ["chunk-000-file-000"]
    assert [len(episode) for episode in episodes] == [3, 4, 5]
    for number, episode in enumerate(episodes):
        assert episode.source.endswith(f"file-000.parquet:episode_{number}")
        assert_shows(episode.images[CAMERA], number)


def place_in_video(root, *starts_s):
    """Say where in the video the episodes begin; where they end is left as it was."""
    edit_episodes(root, **{f"videos/{CAMERA}/from_timestamp": starts_s})


def assert_episodes_show_their_own_frames(episodes):
    for number, episode in enumerate(episodes):
        assert_shows(episode.images[CAMERA], number)


@pytest.mark.parametrize("ends_s", [[0.2, 0.6, 1.1], [0.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
def test_the_frames_of_a_shared_video_are_counted_in_the_file(shared_file, ends_s):
    """The first is (N-1)/fps after the beginning, as some writers have it."""
    edit_episodes(shared_file, **{f"videos/{CAMERA}/to_timestamp": ends_s})
    episodes, source = read(shared_file, [CAMERA])
    assert_episodes_show_their_own_frames(episodes)
    assert source.warnings == []


def test_frames_that_follow_each_other_are_found_though_the_metadata_put_them_elsewhere(
    shared_file,
):
    place_in_video(shared_file, 0.0, 0.2, 0.5)  # each begins at the last frame of the one before
    episodes, source = read(shared_file, [CAMERA])
    assert_episodes_show_their_own_frames(episodes)
    (warning,) = source.warnings
    assert "file-000.mp4 holds as many frames as its episodes have rows, but" in warning


def test_frames_between_two_episodes_of_a_shared_video_are_dropped(shared_file):
    images = np.concatenate([draw(0, 4), draw(1, 4), draw(2, 7)])
    write_video(next(shared_file.glob("videos/*/*/*.mp4")), images)
    place_in_video(shared_file, 0.0, 0.4, 0.8)
    episodes, source = read(shared_file, [CAMERA])
    assert_episodes_show_their_own_frames(episodes)
    dropped = [warning.partition("parquet:")[2] for warning in source.warnings]
    assert dropped == [
        f"episode_0: {CAMERA} has 4 frames, the table 3; the last 1 are dropped",
        f"episode_2: {CAMERA} has 7 frames, the table 5; the last 2 are dropped",
    ]


def test_a_shared_video_that_lacks_frames_is_refused_with_both_numbers(shared_file):
    path = next(shared_file.glob("videos/*/*/*.mp4"))
    write_video(path, np.concatenate([draw(0, 3), draw(1, 4), draw(2, 4)]))
    with pytest.raises(ValueError, match=r"episode_2: .*front: .*mp4 holds 4 frames, the table 5"):
        read(shared_file, [CAMERA])
    write_video(path, np.concatenate([draw(0, 3), draw(1, 3), draw(2, 5)]))
    place_in_video(shared_file, 0.0, 0.3, 0.6)
    with pytest.raises(ValueError, match=r"episode_1: .*front: .*mp4 holds 3 frames, the table 4"):
        read(shared_file, [CAMERA])
    place_in_video(shared_file, 0.0, 0.3, 7.0)
    with pytest.raises(ValueError, match=r"episode_2: .*front: .*mp4 holds 0 frames, the table 5"):
        read(shared_file, [CAMERA])


def test_a_shared_file_with_mixed_or_absent_episodes_is_refused(shared_file):
    edit_column(shared_file, "episode_index", {1: 2})
    with pytest.raises(ValueError, match="episode_0: rows 0 to 2 hold other episodes in between"):
        read(shared_file)
    edit_column(shared_file, "episode_index", {0: 2, 1: 2, 2: 2})
    with pytest.raises(ValueError, match="episode_0 has no frames"):
        read(shared_file)


def test_paths_of_v3_stay_inside(shared_file):
    edit_info(shared_file, video_path="../{video_key}/{file_index}.mp4")
    with pytest.raises(ValueError, match=r"video_path: .* leads out of"):
        LeRobotSource(shared_file, {})


def test_a_missing_video_column_of_v3_means_no_video(shared_file):
    path = shared_file / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns([f"videos/{CAMERA}/chunk_index"]), path)
    source = LeRobotSource(shared_file, {})
    assert source.keys()[CAMERA] == "image[16, 16] (not on disk)"
    assert len(list(source.episodes(source.recordings()[0], ["action"]))) == 3


def test_episodes_of_v3_without_tasks_are_audited(shared_file):
    edit_episodes(shared_file, tasks=[None, ["push", "pull"], None])
    assert "1 episodes list several tasks, as episode 1 does" in "".join(
        LeRobotSource(shared_file, {}).audit()
    )


def test_v3_without_tasks_has_the_instruction_of_the_episode_table(shared_file):
    before = [episode.instruction for episode in read(shared_file)[0]]
    (shared_file / "meta/tasks.parquet").unlink()
    assert [episode.instruction for episode in read(shared_file)[0]] == before
    edit_episodes(shared_file, tasks=[None, [], [""]])
    assert {episode.instruction for episode in read(shared_file)[0]} == {None}


# ---- real data


@pytest.mark.skipif(not GROOT.is_dir(), reason=f"{GROOT} is not there")
def test_groot_demo_data_is_read_with_its_traps():
    keys = ["state.left_arm", "action", "video.ego_view", "next.reward"]
    episode, source = read_one(GROOT, keys, number=4)
    assert [recording.name for recording in source.recordings()] == [
        f"episode_{number:06d}" for number in range(5)
    ]
    known = source.keys()
    assert known["observation.images.egoview"] == "image[800, 1280] (not on disk)"
    assert known["observation.state"] == "float64[44]"
    assert known["state.left_arm"] == "float64[7]"
    assert episode.arrays["state.left_arm"].shape == (328, 7)
    assert episode.arrays["next.reward"][-1] == 1.0
    assert episode.images["video.ego_view"].shape == (328, 256, 256, 3)
    assert episode.instruction == "pick the cupcake from the counter and place it in the plate"
    assert episode.fps == 20.0
    validity = read_one(GROOT, ["action"], instruction_key="annotation.human.validity")[0]
    assert validity.instruction == "valid"
    assert sum("leads to files that do not exist" in text for text in source.warnings) == 2
    with pytest.raises(ValueError, match=r"'observation\.images\.egoview' is declared"):
        read(GROOT, ["observation.images.egoview"])


@pytest.mark.slow
@pytest.mark.skipif(not G1.is_dir(), reason=f"{G1} is not there")
def test_g1_episode_29_of_100_is_read(tmp_path):
    camera = "observation.images.cam_high"
    episode, source = read_one(G1, ["observation.state", camera])
    assert [recording.name for recording in source.recordings()] == ["episode_000029"]
    assert "99 of 100 data files are not on disk" in source.warnings[0]
    assert len(source.warnings) == 1
    assert episode.arrays["observation.state"].shape == (221, 26)
    assert episode.images[camera].shape == (221, 480, 640, 3)
    frames = episode.images[camera][[0, 110, 220]].astype(int)
    assert frames.std() > 20
    assert all(np.abs(a - b).mean() > 1 for a, b in itertools.pairwise(frames))
    assert episode.instruction == "Pick up the yellow bottle on the table."
