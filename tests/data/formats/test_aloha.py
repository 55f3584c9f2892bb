import h5py
import numpy as np
import pytest

from rrf.data.formats.aloha import AlohaSource
from rrf.data.images import decode_image
from rrf.data.schema import EncodedImages
from tests.data.conftest import draw
from tests.data.fixtures_hdf5 import jpeg, jpegs, pad, write_aloha

HIGH = "observations/images/cam_high"


def read_all(path, *keys, **options):
    source = AlohaSource(path, options)
    return [e for recording in source.recordings() for e in source.episodes(recording, keys)]


def replace(path, key, values, **how):
    with h5py.File(path, "r+") as file:
        del file[key]
        file.create_dataset(key, data=values, **how)


def test_episodes_come_in_the_order_of_their_numbers(tmp_path):
    for index in (10, 2, 0):
        write_aloha(tmp_path / f"episode_{index}.hdf5", index)
    write_aloha(tmp_path / "other.hdf5", 99)
    source = AlohaSource(tmp_path, {})
    assert [r.name for r in source.recordings()] == ["episode_0", "episode_2", "episode_10"]
    assert {r.num_episodes for r in source.recordings()} == {1}
    episodes = read_all(tmp_path, "action", "observations/qpos", HIGH)
    assert [e.arrays["action"][0, 0] for e in episodes] == [0.0, 2.0, 10.0]
    last = episodes[2]
    assert last.source == str(tmp_path / "episode_10.hdf5")
    assert last.arrays["observations/qpos"][1, :2].tolist() == [14.0, 15.0]
    np.testing.assert_array_equal(last.images[HIGH], draw(10, 4))


def test_keys_are_the_datasets_with_a_value_per_frame(tmp_path):
    write_aloha(tmp_path / "episode_0.hdf5", compressed=True)
    assert AlohaSource(tmp_path, {}).keys() == {
        "action": "float32[14]",
        "observations/effort": "float32[14]",
        "observations/images/cam_high": "image[16, 16]",
        "observations/images/cam_low": "image[16, 16]",
        "observations/qpos": "float32[14]",
        "observations/qvel": "float32[14]",
    }


def test_compressed_images_stay_as_they_are_without_their_padding(tmp_path):
    write_aloha(tmp_path / "episode_0.hdf5", compressed=True)
    (episode,) = read_all(tmp_path, HIGH, "action")
    images = episode.images[HIGH]
    assert isinstance(images, EncodedImages)
    assert images.suffix == "jpg"
    assert images.blobs == jpegs(0, 4)
    assert np.abs(decode_image(images.blobs[3]).astype(int) - draw(0, 4)[3]).mean() < 20


def test_padding_is_found_without_compress_len(tmp_path):
    path = write_aloha(tmp_path / "episode_0.hdf5", compressed=True)
    with h5py.File(path, "r+") as file:
        del file["compress_len"]
    assert read_all(path, HIGH)[0].images[HIGH].blobs == jpegs(0, 4)


@pytest.mark.parametrize("kind", ["bytes", "variable length"])
def test_images_stored_as_byte_strings_are_read(tmp_path, kind):
    path = write_aloha(tmp_path / "episode_0.hdf5")
    blobs = jpegs(5, 4)
    if kind == "bytes":
        replace(path, HIGH, np.array(blobs))
    else:
        values = np.empty(4, object)
        values[:] = [np.frombuffer(blob, np.uint8) for blob in blobs]
        replace(path, HIGH, values, dtype=h5py.vlen_dtype(np.uint8))
    assert AlohaSource(path, {}).keys()[HIGH] == "image[16, 16]"
    assert read_all(path, HIGH)[0].images[HIGH].blobs == blobs


@pytest.mark.parametrize("compressed", [False, True])
def test_colours_in_the_order_of_opencv_are_swapped_on_request(tmp_path, compressed):
    write_aloha(tmp_path / "episode_0.hdf5", compressed=compressed)
    images = read_all(tmp_path, HIGH, channels="bgr")[0].images[HIGH]
    stored = draw(0, 4)
    if compressed:
        stored = np.stack([decode_image(blob) for blob in jpegs(0, 4)])
    np.testing.assert_array_equal(images[..., 0], stored[..., 2])
    np.testing.assert_array_equal(images[..., 1], stored[..., 1])
    np.testing.assert_array_equal(images[..., 2], stored[..., 0])


def test_swapping_colours_needs_images_that_decode_to_one_size(tmp_path):
    path = write_aloha(tmp_path / "episode_0.hdf5", compressed=True)
    blobs = jpegs(0, 4)
    replace(path, HIGH, pad([*blobs[:3], jpeg(np.zeros((8, 8, 3), np.uint8))]))
    with h5py.File(path, "r+") as file:
        del file["compress_len"]
    with pytest.raises(ValueError, match=r"at frame 3 is \[8, 8, 3\], frame 0 is \[16, 16, 3\]"):
        read_all(path, HIGH, channels="bgr")
    replace(path, HIGH, pad([blobs[0], blobs[1][:40] + blobs[1][-2:], *blobs[2:]]))
    with pytest.raises(ValueError, match=r"cam_high at frame 1: \d+ bytes of"):
        read_all(path, HIGH, channels="bgr")


def test_an_image_cut_by_its_padding_is_named_with_its_frame(tmp_path):
    path = write_aloha(tmp_path / "episode_0.hdf5", compressed=True)
    blobs = jpegs(0, 4)
    blobs[2] = blobs[2][:-5]
    replace(path, HIGH, pad(blobs))
    with pytest.raises(
        ValueError, match=r"episode_0\.hdf5: .*cam_high at frame 2 is a jpg .*short"
    ):
        read_all(path, HIGH)


def test_bytes_that_are_no_image_are_named_with_their_frame(tmp_path):
    path = write_aloha(tmp_path / "episode_0.hdf5", compressed=True)
    replace(path, HIGH, pad([*jpegs(0, 3), b"RIFFxxxx"]))
    with pytest.raises(ValueError, match=r"cam_high at frame 3 is not a jpg image: b'RI"):
        read_all(path, HIGH)


def test_keys_look_at_the_first_image_only(tmp_path):
    path = write_aloha(tmp_path / "episode_0.hdf5", compressed=True)
    replace(path, HIGH, pad([jpegs(0, 1)[0], b"RIFFxxxx"]))
    assert AlohaSource(path, {}).keys()[HIGH] == "image[16, 16]"


def test_a_length_that_no_camera_has_is_refused(tmp_path):
    path = write_aloha(tmp_path / "episode_0.hdf5", compressed=True)
    replace(path, "compress_len", np.full((2, 4), 100.0))
    size = len(jpegs(0, 4)[0])
    with pytest.raises(
        ValueError, match=rf"cam_high at frame 0 has {size} bytes, but compress_len"
    ):
        read_all(path, HIGH)
    replace(path, "compress_len", np.full((2, 3), 100.0))
    with pytest.raises(
        ValueError, match=r"compress_len has shape \[2, 3\], expected \[cameras, 4\]"
    ):
        read_all(path, HIGH)


def test_instruction_and_frame_rate_are_what_the_file_says(tmp_path):
    path = write_aloha(tmp_path / "episode_0.hdf5")
    (episode,) = read_all(path, "action")
    assert (episode.instruction, episode.fps, episode.usual_fps) == (None, None, 50.0)
    write_aloha(path, fps=25, task="transfer the cube")
    (episode,) = read_all(path, "action")
    assert (episode.instruction, episode.fps) == ("transfer the cube", 25.0)


def test_an_instruction_in_a_dataset_is_read_and_is_no_key(tmp_path):
    path = write_aloha(tmp_path / "episode_0.hdf5")
    with h5py.File(path, "r+") as file:
        file["language_raw"] = ["fold the shirt"]
    assert read_all(path, "action")[0].instruction == "fold the shirt"
    known = AlohaSource(path, {}).keys()
    assert "language_raw" not in known
