"""Training from a dataset below s3://, of which only what is asked for is fetched."""

import pickle

import numpy as np
import pytest

from rrf.data.conversion.lerobot_writer import FileLimits, write_dataset
from rrf.data.dataset.opening import open_dataset
from rrf.data.schema import Schema, Vector
from tests.data.conftest import draw
from tests.data.conversion.test_lerobot_writer import make_episode, make_schema
from tests.data.s3_server import s3  # noqa: F401

URL = "s3://robots/sets/toy"


@pytest.fixture(params=["image", "video"])
def local(request, tmp_path):
    """Six episodes, 42 frames, in several files."""
    limits = FileLimits(data_mb=0.004, video_mb=0.001, files_per_chunk=2)
    episodes = [make_episode(number, 7) for number in range(6)]
    write_dataset(tmp_path / "d", make_schema(), episodes, request.param, limits=limits)
    assert len(list((tmp_path / "d").rglob("file-*.*"))) > 3
    return tmp_path / "d"


def assert_same(one, other):
    np.testing.assert_array_equal(
        one.observation.images["front"], other.observation.images["front"]
    )
    np.testing.assert_array_equal(one.observation.state, other.observation.state)
    np.testing.assert_array_equal(one.action, other.action)
    np.testing.assert_array_equal(one.is_pad, other.is_pad)
    assert one.observation.instruction == other.observation.instruction


def test_a_remote_dataset_reads_as_the_local_one(s3, local, tmp_path):  # noqa: F811
    s3.put_tree(local, URL)
    parts = [np.array(frames) for frames in ([41, 0, 17], [3, 3, 20, 40])]
    expected = [open_dataset(local, 3).batch(frames) for frames in parts]
    in_memory, nowhere = {}, {"cache_bytes": 0}
    for kept in (in_memory, nowhere, {"cache_bytes": 0, "cache_dir": tmp_path / "cache"}):
        remote = open_dataset(URL, 3, **kept)
        assert remote.schema == make_schema()
        for frames, batch in zip(parts, expected, strict=True):
            assert_same(remote.batch(frames), batch)
        assert remote.episode(4).source == f"{URL}:episode_4"


def make_long_episode(number, length, size):
    """Noise, which compresses badly."""
    random = np.random.default_rng(number)
    episode = make_episode(number, length, size)
    noise = random.integers(0, 60, (length, size, size, 3), np.uint8)
    episode.images = {"front": draw(number, length, size) // 2 + noise}
    return episode


@pytest.mark.parametrize(("storage", "share"), [("image", 0.6), ("video", 0.4)])
def test_a_few_frames_need_a_small_part_of_the_files(s3, tmp_path, storage, share):  # noqa: F811
    size = 48
    vectors = make_schema()
    schema = Schema(10, (size, size), ("front",), vectors.state, vectors.action)
    episodes = [make_long_episode(number, 250, size) for number in range(8)]
    write_dataset(tmp_path / "d", schema, episodes, storage)
    total = sum(path.stat().st_size for path in (tmp_path / "d").rglob("file-*"))
    s3.put_tree(tmp_path / "d", URL)
    reader = open_dataset(URL, 2, cache_bytes=0)
    num_to_open = len(s3.contents)
    frames = np.array([700, 701, 702])
    expected = open_dataset(tmp_path / "d", 2, cache_bytes=0).batch(frames)
    assert_same(reader.batch(frames), expected)
    assert 0 < num_bytes(s3.contents[num_to_open:]) < share * total
    num_requests = len(s3.contents)
    assert_same(reader.batch(frames), expected)  # from the blocks that are kept
    assert len(s3.contents) == num_requests


def num_bytes(contents):
    """Total length of the ranges asked for."""
    bounds = [asked.removeprefix("bytes=").split("-") for _, asked in contents]
    return sum(int(last) - int(first) + 1 for first, last in bounds)


def test_opening_a_dataset_fetches_vectors_and_no_images(s3, tmp_path):  # noqa: F811
    schema = make_schema(48)
    episodes = [make_long_episode(number, 250, 48) for number in range(8)]
    write_dataset(tmp_path / "d", schema, episodes)
    s3.put_tree(tmp_path / "d", URL)
    s3.contents.clear()
    assert open_dataset(URL, 2).vectors("action").shape == (2000, 3)
    data = [(place, asked) for place, asked in s3.contents if "/data/" in place]
    assert (
        0
        < num_bytes(data)
        < 0.5 * sum(path.stat().st_size for path in (tmp_path / "d/data").rglob("*.parquet"))
    )


def test_a_server_that_vanishes_is_named_and_reading_goes_on_afterwards(s3, tmp_path):  # noqa: F811
    write_dataset(tmp_path / "d", make_schema(), [make_episode(0, 9)], "video")
    s3.put_tree(tmp_path / "d", URL)
    reader = open_dataset(URL, 1, cache_bytes=0)
    s3.stop()
    with pytest.raises(ValueError, match=r"s3://robots/sets/toy/videos/.*mp4 cannot be read"):
        reader.batch(np.array([4]))
    s3.start()
    frames = np.array([4])
    assert_same(reader.batch(frames), open_dataset(tmp_path / "d", 1).batch(frames))


def test_a_reader_can_be_sent_to_another_process(s3, local):  # noqa: F811
    s3.put_tree(local, URL)
    reader = open_dataset(URL, 2, cache_bytes=0)
    expected = reader.batch(np.arange(5))
    assert_same(pickle.loads(pickle.dumps(reader)).batch(np.arange(5)), expected)


def test_a_place_without_a_dataset_is_named(s3):  # noqa: F811
    s3.put("s3://robots/other/file.txt", b"nothing")
    with pytest.raises(ValueError, match=r"no dataset at s3://robots/sets/toy"):
        open_dataset(URL, 1)


def test_a_truncated_remote_file_is_named(s3, tmp_path):  # noqa: F811
    vector = Vector(("x",), "m")
    schema = Schema(10, (0, 0), (), vector, vector, False, False)
    episode = make_episode(0, 30)
    episode.images, episode.state, episode.action = {}, episode.state[:, :1], episode.action[:, :1]
    write_dataset(tmp_path / "d", schema, [episode])
    s3.put_tree(tmp_path / "d", URL)
    name = "data/chunk-000/file-000.parquet"
    s3.put(f"{URL}/{name}", (tmp_path / "d" / name).read_bytes()[:-50])
    with pytest.raises(ValueError, match=rf"{URL}/{name} is truncated or not parquet"):
        open_dataset(URL, 1)
