import json

import h5py
import numpy as np
import pytest

from rrf.data.formats.robotwin import RoboTwinSource
from rrf.data.images import decode_image, encode_png
from rrf.data.schema import EncodedImages
from tests.data.fixtures_simulators import (
    COLOUR,
    edit,
    jpegs,
    pictures,
    replace,
    write_robotwin_first,
    write_robotwin_second,
)

HEAD = "observation/head_camera/rgb"
VECTOR = "joint_action/vector"


def read_all(root, keys, **options):
    source = RoboTwinSource(root, options)
    return [e for recording in source.recordings() for e in source.episodes(recording, keys)]


def test_the_action_is_the_state_one_frame_later_and_the_last_frame_is_dropped(tmp_path):
    write_robotwin_first(tmp_path)
    first, second = read_all(tmp_path, [VECTOR, f"next_{VECTOR}", HEAD])
    assert first.arrays[VECTOR][:, 0].tolist() == [0, 1, 2]
    assert first.arrays[f"next_{VECTOR}"][:, 0].tolist() == [1, 2, 3]
    assert second.arrays[f"next_{VECTOR}"][:, 0].tolist() == [101, 102]
    assert first.arrays[VECTOR].dtype == np.float64
    assert len(first.images[HEAD]) == 3
    assert first.instruction == "lift cup 0"
    assert first.source == f"{tmp_path}/data/episode0.hdf5"
    assert first.fps is None


def test_the_last_frame_can_be_held_instead(tmp_path):
    write_robotwin_first(tmp_path)
    episode = read_all(tmp_path, [VECTOR, f"next_{VECTOR}", HEAD], last_frame="hold")[0]
    assert episode.arrays[VECTOR][:, 0].tolist() == [0, 1, 2, 3]
    assert episode.arrays[f"next_{VECTOR}"][:, 0].tolist() == [1, 2, 3, 3]
    assert len(episode.images[HEAD]) == 4


def test_red_and_blue_of_early_jpegs_are_put_right(tmp_path):
    write_robotwin_first(tmp_path)
    images = read_all(tmp_path, [HEAD])[0].images[HEAD]
    assert isinstance(images, np.ndarray)
    assert images.shape == (3, 8, 12, 3)
    np.testing.assert_allclose(images[0, 4, 6], COLOUR, atol=4)


def test_jpegs_marked_as_standard_are_passed_on_without_padding(tmp_path):
    write_robotwin_second(tmp_path)
    images = read_all(tmp_path, ["vision/cam_head/colors"])[0].images["vision/cam_head/colors"]
    assert isinstance(images, EncodedImages)
    assert images.suffix == "jpg"
    assert list(images.blobs) == jpegs(pictures(4), standard=True)
    np.testing.assert_allclose(decode_image(images.blobs[0])[4, 6], COLOUR, atol=4)


def test_the_channel_order_can_be_said(tmp_path):
    write_robotwin_first(tmp_path)
    images = read_all(tmp_path, [HEAD], jpeg_channels="rgb")[0].images[HEAD]
    assert isinstance(images, EncodedImages)
    assert list(images.blobs) == jpegs(pictures(3), standard=False)


def test_the_second_layout_keeps_its_recorded_actions_and_all_frames(tmp_path):
    write_robotwin_second(tmp_path)
    keys = ["state/left_arm_joint_states", "action/left_arm_joint_states"]
    first, second = read_all(tmp_path, keys)
    assert first.arrays[keys[0]][:, 0].tolist() == [0, 1, 2, 3]
    assert second.arrays[keys[1]][:, 0].tolist() == [-100, -101, -102]
    assert first.fps == 15.0
    assert second.instruction == "lift cup 1"


def test_keys_of_both_layouts(tmp_path):
    write_robotwin_first(tmp_path / "1")
    write_robotwin_second(tmp_path / "2")
    first = RoboTwinSource(tmp_path / "1", {}).keys()
    assert first[HEAD] == "image[8, 12]"
    assert first[VECTOR] == first[f"next_{VECTOR}"] == "float64[14]"
    assert first["joint_action/left_gripper"] == "float64[]"
    assert first["next_endpose/left_endpose"] == "float64[7]"
    assert "pointcloud" not in first
    assert RoboTwinSource(tmp_path / "2", {}).keys() == {
        "state/left_arm_joint_states": "float64[6]",
        "state/left_ee_joint_states": "float64[1]",
        "action/left_arm_joint_states": "float32[6]",
        "action/left_ee_joint_states": "float32[1]",
        "vision/cam_head/colors": "image[8, 12]",
    }


def test_recordings_are_in_the_order_of_their_numbers_with_their_instructions(tmp_path):
    write_robotwin_first(tmp_path, [2] * 11)
    recordings = RoboTwinSource(tmp_path, {}).recordings()
    assert [r.name for r in recordings] == [f"data/episode{i}" for i in range(11)]
    assert recordings[10].paths == (
        tmp_path / "data/episode10.hdf5",
        tmp_path / "instructions/episode10.json",
    )


def test_a_frequency_that_is_no_number_is_named(tmp_path):
    write_robotwin_second(tmp_path, [3])
    path = tmp_path / "data/episode_0000000.hdf5"
    edit(path, lambda f: replace(f, "additional_info/frequency", np.array([15, 30])))
    with pytest.raises(ValueError, match=r"0000000\.hdf5: additional_info/frequency is array"):
        read_all(tmp_path, ["state/left_arm_joint_states"])


@pytest.mark.parametrize("key", ["instructions", "additional_info/frequency"])
def test_no_link_to_another_file_is_followed(tmp_path, key):
    write_robotwin_second(tmp_path / "set", [3])
    path = tmp_path / "set/data/episode_0000000.hdf5"
    edit(path, lambda f: replace(f, key, h5py.ExternalLink(str(tmp_path / "secret.hdf5"), "/x")))
    with pytest.raises(ValueError, match="is a link to another file"):
        read_all(tmp_path / "set", ["state/left_arm_joint_states"])


def test_frames_of_both_channel_orders_and_png_are_put_right(tmp_path):
    write_robotwin_first(tmp_path, [4])
    path = tmp_path / "data/episode0.hdf5"
    early, marked = (jpegs(pictures(4), standard) for standard in (False, True))
    edit(path, lambda f: replace(f, HEAD, np.array([*early[:2], *marked[2:]])))
    images = read_all(tmp_path, [HEAD], last_frame="hold")[0].images[HEAD]
    np.testing.assert_allclose(images[:, 4, 6], pictures(4)[:, 4, 6], atol=4)
    stored = encode_png(pictures(4)[..., ::-1])
    edit(path, lambda f: replace(f, HEAD, np.array(stored)))
    images = read_all(tmp_path, [HEAD], last_frame="hold")[0].images[HEAD]
    np.testing.assert_array_equal(images, pictures(4))


def test_which_instruction_is_an_option(tmp_path):
    write_robotwin_first(tmp_path)
    assert read_all(tmp_path, [VECTOR], instructions="unseen")[1].instruction == "raise 1"
    (tmp_path / "instructions/episode0.json").unlink()
    said = read_all(tmp_path, [VECTOR], instruction="lift it")
    assert [e.instruction for e in said] == ["lift it", "lift it"]


def test_pickles_are_refused_with_the_reason(tmp_path):
    (tmp_path / "episode0").mkdir()
    (tmp_path / "episode0/0.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(
        ValueError, match=r"episode0/0\.pkl is a pickle, which runs code.*never loaded"
    ):
        RoboTwinSource(tmp_path, {}).recordings()
    with pytest.raises(ValueError, match=r"0\.pkl is a pickle.*never loaded"):
        RoboTwinSource(tmp_path / "episode0/0.pkl", {}).recordings()


def test_pickles_that_recording_leaves_beside_hdf5_do_not_matter(tmp_path):
    write_robotwin_first(tmp_path)
    (tmp_path / "_traj_data").mkdir()
    (tmp_path / "_traj_data/episode0.pkl").write_bytes(b"\x80\x04.")
    assert len(read_all(tmp_path, [VECTOR])) == 2


def shorten_image(file):
    blobs = [*jpegs(pictures(3), standard=False), b"\xff\xd8 cut short"]
    replace(file, HEAD, np.array(blobs))


def instruction_file(root):
    return root / "instructions/episode0.json"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda r, h: h.write_bytes(h.read_bytes()[:900]),
            r"episode0\.hdf5 is truncated or not HDF5",
        ),
        (lambda r, h: edit(h, lambda f: f["joint_action"].pop("vector")), r"has no key 'joint_act"),
        (lambda r, h: edit(h, lambda f: f.pop("joint_action")), r"not a RoboTwin episode; found: "),
        (
            lambda r, h: edit(h, lambda f: replace(f, VECTOR, np.zeros((3, 14)))),
            r"episode0\.hdf5: joint_action/vector has 3 frames, the joint states have 4",
        ),
        (
            lambda r, h: edit(h, lambda f: replace(f, HEAD, np.array(jpegs(pictures(2), False)))),
            r"head_camera/rgb has 2 frames, the joint states have 4",
        ),
        (
            lambda r, h: write_robotwin_first(r, [1]),
            r"episode0\.hdf5: joint_action holds 1 frames, an episode needs two or more",
        ),
        (lambda r, h: edit(h, shorten_image), r"rgb at frame 3 is a jpg image cut short"),
        (lambda r, h: instruction_file(r).unlink(), r"has no \.\./instructions/episode0\.json"),
        (lambda r, h: instruction_file(r).write_text('{"seen": ["a'), r"episode0\.json is truncat"),
        (
            lambda r, h: instruction_file(r).write_bytes(b'{"seen": ["\xff"]}'),
            r"episode0\.json is not UTF-8",
        ),
        (
            lambda r, h: instruction_file(r).write_text(json.dumps({"seen": [], "unseen": ["a"]})),
            r"episode0\.json has no seen instruction; set the option",
        ),
        (
            lambda r, h: [path.unlink() for path in (r / "data").iterdir()],
            r"no recordings \*\*/episode\*\.hdf5",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, damage, message):
    write_robotwin_first(tmp_path)
    damage(tmp_path, tmp_path / "data/episode0.hdf5")
    with pytest.raises(ValueError, match=message):
        read_all(tmp_path, [VECTOR, HEAD], last_frame="hold")


def test_an_empty_recorded_instruction_asks_for_one(tmp_path):
    write_robotwin_second(tmp_path, [3])
    path = tmp_path / "data/episode_0000000.hdf5"
    edit(path, lambda f: replace(f, "instructions", '[""]'))
    key = "action/left_arm_joint_states"
    with pytest.raises(ValueError, match=r"episode_0000000\.hdf5: instructions has no"):
        read_all(tmp_path, [key])
    assert read_all(tmp_path, [key], instruction="lift it")[0].instruction == "lift it"


def test_an_unknown_key_or_option_is_answered_with_the_closest(tmp_path):
    write_robotwin_first(tmp_path)
    with pytest.raises(ValueError, match=r"did you mean 'joint_action/vector'"):
        read_all(tmp_path, ["joint_action/vectr"])
    with pytest.raises(ValueError, match=r"has no field 'last_frames'; did you mean 'last_frame'"):
        RoboTwinSource(tmp_path, {"last_frames": "hold"})
