"""The raw recording format that is written here: its layout, and that it comes back."""

import h5py
import numpy as np
import pytest

from rrf.data.conversion.mapping import Mapper, raw_keys
from rrf.data.formats.robomimic import RobomimicSource, write_robomimic
from tests.data.conftest import FPS, draw, make_demo


@pytest.fixture
def path(tmp_path):
    demos = [make_demo(episode, 4) for episode in range(11)]
    write_robomimic(tmp_path / "pull.hdf5", demos, {"env_name": "pull"}, "pull it", FPS)
    return tmp_path / "pull.hdf5"


def test_demos_come_back_as_episodes_in_the_order_of_their_numbers(path, cfg):
    source = RobomimicSource(path, {})
    (recording,) = source.recordings()
    episodes = [*map(Mapper(cfg), source.episodes(recording, list(raw_keys(cfg))))]
    assert recording.num_episodes == len(episodes) == 11
    assert [float(e.action[0, 1]) for e in episodes][::10] == [0.0, pytest.approx(-0.1)]
    last = episodes[10]
    assert last.source == f"{path}:demo_10"
    assert last.instruction == "pull it"
    assert last.success.tolist() == [False, False, False, True]
    assert last.reward.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert last.state.dtype == np.float32
    assert last.state[2].tolist() == [pytest.approx(0.04), last.state[2, 1], 10.0, 0.5]
    np.testing.assert_array_equal(last.images["front"], draw(10, 4))


def test_a_demonstration_without_frames_is_left_out_though_a_filter_lists_it(path):
    with h5py.File(path, "r+") as file:
        file["data/demo_3"].attrs["num_samples"] = 0
        file["mask/train"] = ["demo_2", "demo_3"]
    assert RobomimicSource(path, {}).recordings()[0].num_episodes == 10
    assert RobomimicSource(path, {"filter_key": "train"}).recordings()[0].num_episodes == 1


def test_demonstrations_that_say_they_failed_are_left_out_unless_asked_for(path):
    with h5py.File(path, "r+") as file:
        file["data/demo_3"].attrs["success"] = False
    (recording,) = RobomimicSource(path, {}).recordings()
    assert recording.num_episodes == 10
    episodes = RobomimicSource(path, {}).episodes(recording, ["actions"])
    assert f"{path}:demo_3" not in [episode.source for episode in episodes]
    assert RobomimicSource(path, {"only_successful": False}).recordings()[0].num_episodes == 11


def test_counts_that_the_actions_contradict_are_told(path):
    assert RobomimicSource(path, {}).audit() == []
    with h5py.File(path, "r+") as file:
        file["data/demo_3"].attrs["num_samples"] = 5
        del file["data/demo_10"]
    source = RobomimicSource(path, {})
    found = {e.source: e.problems for e in source.episodes(source.recordings()[0], ["actions"])}
    assert found.pop(f"{path}:demo_3") == [
        (
            "source_statistics",
            f"{path}:demo_3 has 4 actions, its attribute num_samples is 5",
        )
    ]
    assert set(found.values()) == {None}
    assert RobomimicSource(path, {}).audit() == [
        f"{path}:demo_3 has 4 actions, its attribute num_samples is 5",
        f"{path}: the attribute total is 44, the demonstrations have 40 actions",
    ]


def test_layout_is_robomimics(path):
    with h5py.File(path) as file:
        assert file["data"].attrs["total"] == 44
        assert file["data"].attrs["env_args"] == '{"env_name": "pull"}'
        assert dict(file["data/demo_3"].attrs) == {
            "num_samples": 4,
            "seed": 777,
            "index": 3,
            "success": True,
        }
        assert file["data/demo_3/obs/front_image"].shape == (4, 16, 16, 3)


def test_the_same_demos_give_the_same_bytes(tmp_path):
    for name in ("a.hdf5", "b.hdf5"):
        write_robomimic(tmp_path / name, [make_demo(0, 20)], {"env_name": "x"}, "pull", FPS)
    assert (tmp_path / "a.hdf5").read_bytes() == (tmp_path / "b.hdf5").read_bytes()


def test_a_fixed_camera_costs_a_fraction_of_its_pixels(tmp_path):
    write_robomimic(tmp_path / "a.hdf5", [make_demo(0, 20, size=64)], {}, "pull", FPS)
    assert (tmp_path / "a.hdf5").stat().st_size < 20 * 64 * 64 * 3 / 10


def test_writing_nothing_is_refused_and_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="no demonstrations to write"):
        write_robomimic(tmp_path / "a.hdf5", [], {}, "pull", FPS)
    assert list(tmp_path.iterdir()) == []
