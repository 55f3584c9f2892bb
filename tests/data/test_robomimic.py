import h5py
import numpy as np
import pytest

from rrf.data.robomimic import count_demos, read_robomimic, write_robomimic
from tests.data.conftest import FPS, draw, make_cfg, make_demo


@pytest.fixture
def path(tmp_path):
    demos = [make_demo(episode, 4) for episode in range(11)]
    write_robomimic(tmp_path / "pull.hdf5", demos, {"env_name": "pull"}, "pull it", FPS)
    return tmp_path / "pull.hdf5"


def edit(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def replace(group, key, values):
    del group[key]
    group[key] = values


def read_all(path, cfg):
    return list(read_robomimic(path, cfg))


def test_demos_come_back_as_episodes_in_the_order_of_their_numbers(path, cfg):
    episodes = read_all(path, cfg)
    assert count_demos(path) == len(episodes) == 11
    assert [float(e.action[0, 1]) for e in episodes][::10] == [0.0, pytest.approx(-0.1)]
    last = episodes[10]
    assert last.source == f"{path}:demo_10"
    assert last.instruction == "pull it"
    assert last.success.tolist() == [False, False, False, True]
    assert last.reward.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert last.state.dtype == np.float32
    assert last.state[2].tolist() == [pytest.approx(0.04), last.state[2, 1], 10.0, 0.5]
    np.testing.assert_array_equal(last.images["front"], draw(10, 4))


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


def test_a_truncated_file_is_named_with_the_command_that_brings_it_again(path, cfg):
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"pull\.hdf5 is truncated or not HDF5.*dvc pull --force"):
        read_all(path, cfg)


def test_a_damaged_chunk_is_named_with_demo_and_key(tmp_path, cfg):
    path = tmp_path / "pull.hdf5"
    write_robomimic(path, [make_demo(episode, 30) for episode in range(3)], {}, "pull it", FPS)
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        chunk = file["data/demo_2/obs/front_image"].id.get_chunk_info(0)
    content[chunk.byte_offset + 40 : chunk.byte_offset + 60] = b"\xff" * 20
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"pull\.hdf5:demo_2.*obs/front_image is damaged"):
        read_all(path, cfg)


def test_a_missing_file_names_both_ways_to_get_it(tmp_path, cfg):
    with pytest.raises(ValueError, match=r"dvc pull, or record it: rrf data collect"):
        read_all(tmp_path / "absent.hdf5", cfg)


def test_a_file_without_demos_is_refused(path, cfg):
    def drop(file):
        for name in list(file["data"]):
            del file["data"][name]

    edit(path, drop)
    with pytest.raises(ValueError, match="holds no demonstrations"):
        read_all(path, cfg)


def test_a_file_of_another_layout_is_refused(tmp_path, cfg):
    with h5py.File(tmp_path / "flat.hdf5", "w") as file:
        file["observations"] = np.zeros(3)
    with pytest.raises(ValueError, match=r"no group /data.*observations"):
        read_all(tmp_path / "flat.hdf5", cfg)


def test_a_missing_key_names_the_closest_one_there_is(path):
    with pytest.raises(ValueError, match=r"no key 'obs/fromt_image'; did you mean 'obs/front_ima"):
        read_all(path, make_cfg(cameras={"front": "obs/fromt_image"}))


def test_a_wrong_image_shape_names_file_demo_key_and_both_shapes(path, cfg):
    edit(path, lambda f: replace(f["data/demo_1"], "obs/front_image", np.zeros((4, 8, 8, 3), "u1")))
    pattern = (
        r"pull\.hdf5:demo_1: obs/front_image .*uint8\[4, 8, 8, 3\].*expected uint8\[4, 16, 16, 3\]"
    )
    with pytest.raises(ValueError, match=pattern):
        read_all(path, cfg)


def test_float_images_are_refused(path, cfg):
    edit(path, lambda f: replace(f["data/demo_1"], "obs/front_image", np.zeros((4, 16, 16, 3))))
    with pytest.raises(ValueError, match=r"float64\[4, 16, 16, 3\], expected uint8"):
        read_all(path, cfg)


def test_a_nan_action_is_named_with_file_demo_key_frame_and_dimension(path, cfg):
    def spoil(file):
        file["data/demo_7/actions"][2, 1] = np.nan

    edit(path, spoil)
    pattern = r"pull\.hdf5:demo_7: actions at frame 2, dimension 1 is nan"
    with pytest.raises(ValueError, match=pattern):
        read_all(path, cfg)


def test_arrays_of_different_lengths_are_refused(path, cfg):
    edit(path, lambda f: replace(f["data/demo_0"], "obs/eef_pos", np.zeros((3, 3), "f4")))
    with pytest.raises(ValueError, match=r"demo_0: obs/eef_pos has shape \[3, 3\], expected \[4"):
        read_all(path, cfg)


def test_a_wrong_frame_rate_in_the_config_is_refused(path):
    with pytest.raises(ValueError, match="recorded at 10 frames/s, but the config says fps: 20"):
        read_all(path, make_cfg(fps=20))


def test_names_that_do_not_fit_the_recording_are_refused(path):
    cfg = make_cfg()
    cfg = cfg.replace(action=cfg.action.replace(names=["dx", "dy"], low=None, high=None))
    with pytest.raises(ValueError, match="actions has 3 dimensions, the config names 2"):
        read_all(path, cfg)
