import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.dataset.opening import open_dataset
from tests.data.conftest import draw, edit_images, make_cfg, write_raw

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """The same five episodes (lengths 3, 2, 4, 2, 3) stored as images and as video."""
    folder = tmp_path_factory.mktemp("datasets")
    raw = write_raw(folder / "raw", {"pull": [3, 2], "push": [4, 2, 3]})
    for storage in ("image", "video"):
        convert(make_cfg(storage=storage), raw, folder / storage)
    return folder


@pytest.fixture
def root(datasets, tmp_path):
    """A copy to damage."""
    shutil.copytree(datasets / "image", tmp_path / "d")
    return tmp_path / "d"


def test_chunks_and_masks_worked_by_hand(datasets):
    reader = open_dataset(datasets / "image", chunk_length=3)
    batch = reader.batch(np.array([0, 2, 3, 8]))
    # frames 0, 2 of episode 0 (3 frames), frame 0 of episode 1 (2), frame 3 of episode 2 (4)
    assert batch.is_pad.tolist() == [
        [False, False, False],
        [False, True, True],
        [False, False, True],
        [False, True, True],
    ]
    # action dimension 0 is frame / 100, dimension 1 is -episode / 100
    np.testing.assert_allclose(
        batch.action[..., 0],
        [[0.0, 0.01, 0.02], [0.02, 0.02, 0.02], [0.0, 0.01, 0.01], [0.03, 0.03, 0.03]],
        atol=1e-7,
    )
    np.testing.assert_allclose(batch.action[:, 0, 1], [0.0, 0.0, -0.01, -0.02], atol=1e-7)
    assert batch.action.dtype == batch.observation.state.dtype == np.float32
    assert batch.observation.instruction == ["do the pull"] * 3 + ["do the push"]
    assert batch.observation.state[:, 2].tolist() == [0.0, 0.0, 1.0, 2.0]
    images = batch.observation.images["front"]
    np.testing.assert_array_equal(
        images, np.stack([draw(0, 3)[0], draw(0, 3)[2], draw(1, 2)[0], draw(2, 4)[3]])
    )


def test_a_reader_says_what_it_holds(datasets):
    reader = open_dataset(datasets / "image", chunk_length=2)
    assert (reader.num_frames, reader.num_episodes) == (14, 5)
    assert reader.instructions == ["do the pull", "do the push"]
    assert reader.schema == make_cfg().schema()


def test_an_episode_comes_back_whole(datasets):
    episode = open_dataset(datasets / "image", chunk_length=2).episode(2)
    np.testing.assert_array_equal(episode.images["front"], draw(2, 4))
    assert episode.reward.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert episode.success.tolist() == [False, False, False, True]
    assert episode.instruction == "do the push"
    assert episode.source.endswith("image:episode_2")


def test_instructions_and_episodes_select(datasets):
    by_task = open_dataset(datasets / "image", 2, instructions=["do the push"])
    assert (by_task.num_frames, by_task.num_episodes) == (9, 3)
    assert by_task.instructions == ["do the push"]
    both = open_dataset(datasets / "image", 2, instructions=["do the push"], episodes=[4, 0, 2])
    assert both.num_episodes == 2
    # frames 0..3 are episode 2, 4..6 are episode 4
    batch = both.batch(np.array([3, 4]))
    assert batch.is_pad.tolist() == [[False, True], [False, False]]
    np.testing.assert_array_equal(
        batch.observation.images["front"], np.stack([draw(2, 4)[3], draw(4, 3)[0]])
    )


@pytest.mark.parametrize("storage", ["image", "video"])
def test_every_way_of_keeping_images_gives_the_same_pixels(datasets, tmp_path, storage):
    order = np.array([13, 0, 5, 5, 9, 1])
    kept = open_dataset(datasets / storage, 1)
    expected = kept.batch(order).observation.images["front"]
    np.testing.assert_array_equal(kept.batch(order).observation.images["front"], expected)
    again = open_dataset(datasets / storage, 1, cache_bytes=0)
    np.testing.assert_array_equal(again.batch(order).observation.images["front"], expected)
    for _ in range(2):
        mapped = open_dataset(datasets / storage, 1, cache_bytes=0, cache_dir=tmp_path)
        np.testing.assert_array_equal(mapped.batch(order).observation.images["front"], expected)
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [14 * 16 * 16 * 3]


def test_video_shows_the_same_scene_as_images(datasets):
    frames = np.arange(14)
    image, video = (
        open_dataset(datasets / storage, 1).batch(frames).observation.images["front"]
        for storage in ("image", "video")
    )
    difference = np.abs(image.astype(int) - video)
    assert difference.mean() < 8
    # the walking square, far brighter than the background, stands where it should in every frame
    for truth, shown in zip(image, video, strict=True):
        is_square = truth[..., 0] == 200
        assert shown[is_square][:, 0].mean() > 150 > shown[~is_square][:, 0].mean()


def test_what_lerobot_wrote_is_read_as_lerobot_reads_it():
    expected = np.load(GOLDEN / "lerobot_v30_tiny_expected.npz")
    num_frames, chunk_length = expected["chunked/action_is_pad"].shape
    reader = open_dataset(GOLDEN / "lerobot_v30_tiny", chunk_length)
    batch = reader.batch(np.arange(num_frames))
    [images] = batch.observation.images.values()
    np.testing.assert_array_equal(images, expected["frames/image"])
    np.testing.assert_array_equal(batch.observation.state, expected["frames/state"])
    np.testing.assert_array_equal(batch.action, expected["chunked/action"])
    np.testing.assert_array_equal(batch.is_pad, expected["chunked/action_is_pad"])
    tasks = np.array([reader.instructions.index(task) for task in batch.observation.instruction])
    np.testing.assert_array_equal(tasks, expected["frames/task_index"])


def test_a_missing_dataset_names_the_commands_that_bring_it(tmp_path):
    with pytest.raises(ValueError, match=r"no dataset at .*absent; make it again where"):
        open_dataset(tmp_path / "absent", 1)


def test_a_truncated_file_is_named(root):
    path = root / "data/chunk-000/file-000.parquet"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"file-000\.parquet is truncated or not parquet"):
        open_dataset(root, 1)


@pytest.mark.parametrize(
    ("folder", "column"), [("data/chunk-000", "action"), ("meta/episodes/chunk-000", "length")]
)
def test_files_of_one_table_with_other_types_are_named(root, folder, column):
    table = pq.read_table(root / folder / "file-000.parquet")
    number = table.schema.get_field_index(column)
    other = table.set_column(number, column, pa.array(["x"] * len(table)))
    pq.write_table(other, root / folder / "file-001.parquet")
    with pytest.raises(ValueError, match=rf"{folder.rpartition('/')[0]} is .*{column}"):
        open_dataset(root, 1)


def test_an_empty_dataset_is_refused(root):
    path = root / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(ValueError, match="is empty"):
        open_dataset(root, 1)


def test_a_dataset_with_fewer_frames_than_declared_is_refused(root):
    path = root / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path).slice(0, 10), path)
    with pytest.raises(ValueError, match=r"incomplete: 10 frames on disk, 14 in meta/info\.json"):
        open_dataset(root, 1)


def test_no_data_files_are_noticed(root):
    shutil.rmtree(root / "data")
    with pytest.raises(ValueError, match=r"has no files in data/"):
        open_dataset(root, 1)


def test_an_older_format_is_refused(root):
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | {"codebase_version": "v2.1"}))
    with pytest.raises(ValueError, match=r"codebase_version is v2\.1, only v3\.0 is read"):
        open_dataset(root, 1)


def test_an_undecodable_image_is_named_with_episode_and_frame(root):
    edit_images(root, {6: lambda blob: blob[:100]})
    reader = open_dataset(root, 1)
    reader.batch(np.array([5]))
    with pytest.raises(ValueError, match=r"episode 2, frame 1: observation\.images\.front cannot"):
        reader.batch(np.array([6]))


def test_wrong_requests_are_named(datasets):
    root = datasets / "image"
    with pytest.raises(
        ValueError,
        match=r"no instruction 'do the pul'.*null takes all; did you mean 'do the pull'",
    ):
        open_dataset(root, 1, instructions=["do the pul"])
    with pytest.raises(ValueError, match=r"episode 5 is not in 0\.\.4"):
        open_dataset(root, 1, episodes=[5])
    with pytest.raises(ValueError, match=r"no episode of .* is selected"):
        open_dataset(root, 1, instructions=["do the pull"], episodes=[4])
    with pytest.raises(ValueError, match="chunk_length is 0"):
        open_dataset(root, 0)
    reader = open_dataset(root, 1)
    for indices in ([14], [-1], []):
        with pytest.raises(ValueError, match=r"indices must lie in 0\.\.13"):
            reader.batch(np.array(indices))
    with pytest.raises(ValueError, match=r"norm_stats\.json is missing, .* rrf data stats NAME"):
        _ = reader.norm_stats
