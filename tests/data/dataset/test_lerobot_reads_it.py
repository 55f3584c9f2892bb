"""lerobot 0.6.1 is the arbiter of the format: what we write, it must read exactly."""

import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import MergeCfg, MergePartCfg
from rrf.data.conversion.lerobot_writer import FileLimits, write_dataset
from rrf.data.conversion.merge import merge
from rrf.data.dataset.opening import open_dataset
from tests.data.conftest import CHUNK, make_cfg, write_raw
from tests.data.conversion.test_convert import jpeg_cfg
from tests.data.conversion.test_lerobot_writer import TINY, make_episode, make_schema
from tests.data.jpeg_source import jpegs, write_jpegs  # noqa: F401 (a fixture)


def assert_reads_as_we_do(dataset, reader):
    assert len(dataset) == reader.num_frames
    assert dataset.num_episodes == reader.num_episodes
    batch = reader.batch(np.arange(reader.num_frames))
    for index in range(len(dataset)):
        item = dataset[index]
        image = (item["observation.images.front"].numpy().transpose(1, 2, 0) * 255).round()
        np.testing.assert_array_equal(image, batch.observation.images["front"][index])
        np.testing.assert_array_equal(item["observation.state"], batch.observation.state[index])
        np.testing.assert_array_equal(item["action"], batch.action[index])
        np.testing.assert_array_equal(item["action_is_pad"], batch.is_pad[index])
        assert item["task"] == batch.observation.instruction[index]


@pytest.mark.parametrize("storage", ["image", "video"])
def test_lerobot_reads_a_converted_dataset_exactly(open_with_lerobot, tmp_path, storage):
    raw = write_raw(tmp_path / "raw", {"pull": [8, 6, 7], "push": [5, 10]})
    convert(make_cfg(storage=storage), raw, tmp_path / "d")
    dataset = open_with_lerobot(tmp_path / "d")
    assert_reads_as_we_do(dataset, open_dataset(tmp_path / "d", CHUNK))
    rewards = [dataset[index]["next.reward"].item() for index in range(8)]
    assert rewards == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert [dataset[index]["next.success"].item() for index in (6, 7, 8)] == [False, True, False]


@pytest.mark.parametrize("storage", ["image", "video"])
def test_lerobot_reads_datasets_of_many_files_exactly(open_with_lerobot, tmp_path, storage):
    episodes = [make_episode(number, 4 + number) for number in range(6)]
    write_dataset(tmp_path / "d", make_schema(), episodes, storage, limits=TINY)
    assert len(list((tmp_path / "d").rglob("*.mp4" if storage == "video" else "data/*/*"))) > 2
    dataset = open_with_lerobot(tmp_path / "d")
    assert_reads_as_we_do(dataset, open_dataset(tmp_path / "d", CHUNK))


def test_a_one_dimensional_action_is_read_too(open_with_lerobot, tmp_path):
    cfg = make_cfg()
    cfg = cfg.replace(action=cfg.action.replace(names=["dx"], low=None, high=None))
    episode = make_episode(0, 5)
    episode.action = episode.action[:, :1]
    write_dataset(tmp_path / "d", cfg.schema(), [episode], limits=FileLimits())
    dataset = open_with_lerobot(tmp_path / "d")
    expected = open_dataset(tmp_path / "d", CHUNK).batch(np.arange(5)).action
    assert expected.shape == (5, CHUNK, 1)
    for index in range(5):
        np.testing.assert_array_equal(
            dataset[index]["action"].numpy().ravel(), expected[index, :, 0]
        )


def test_lerobot_reads_our_statistics(open_with_lerobot, tmp_path):
    episodes = [make_episode(number, 9) for number in range(3)]
    write_dataset(tmp_path / "d", make_schema(), episodes)
    stats = open_with_lerobot(tmp_path / "d").meta.stats
    actions = np.concatenate([episode.action for episode in episodes]).astype(np.float64)
    np.testing.assert_allclose(stats["action"]["mean"], actions.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(stats["action"]["q99"], np.quantile(actions, 0.99, axis=0))
    assert stats["observation.images.front"]["std"].shape == (3, 1, 1)


@pytest.mark.usefixtures("jpegs")
def test_lerobot_sees_the_pixels_of_jpeg_images_that_were_passed_on(open_with_lerobot, tmp_path):
    for name, episode in (("a", 0), ("b", 1)):
        write_jpegs(tmp_path / f"raw/{name}.npz", episode, 5)
    convert(jpeg_cfg(), tmp_path / "raw", tmp_path / "d")
    dataset = open_with_lerobot(tmp_path / "d")
    assert len(dataset) == 10
    assert_reads_as_we_do(dataset, open_dataset(tmp_path / "d", CHUNK))


@pytest.mark.parametrize("storage", ["image", "video"])
def test_lerobot_reads_a_merged_dataset_exactly(open_with_lerobot, tmp_path, storage):
    for name, lengths in (("a", {"pull": [8, 6]}), ("b", {"push": [5, 10]})):
        raw = write_raw(tmp_path / "raw" / name, lengths)
        convert(make_cfg(storage=storage), raw, tmp_path / name)
    parts = [MergePartCfg(dataset="a", weight=3.0), MergePartCfg(dataset="b")]
    cfg = MergeCfg(name="d", merge=parts, licence="MIT", provenance="both")
    assert merge(cfg, tmp_path, tmp_path / "d") == 29
    dataset = open_with_lerobot(tmp_path / "d")
    assert_reads_as_we_do(dataset, open_dataset(tmp_path / "d", CHUNK))
    assert [dataset[index]["task"] for index in (13, 14)] == ["do the pull", "do the push"]


def test_lerobot_reads_a_dataset_of_states_alone(open_with_lerobot, tmp_path):
    raw = write_raw(tmp_path / "raw", {"pull": [8, 6]})
    convert(make_cfg(cameras={}, image_size=None), raw, tmp_path / "d")
    dataset = open_with_lerobot(tmp_path / "d")
    batch = open_dataset(tmp_path / "d", CHUNK).batch(np.arange(14))
    for index in range(14):
        item = dataset[index]
        np.testing.assert_array_equal(item["observation.state"], batch.observation.state[index])
        np.testing.assert_array_equal(item["action"], batch.action[index])
        assert item["task"] == "do the pull"
