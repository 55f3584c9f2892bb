import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from rrf.data.formats.rlds import RLDSSource
from rrf.data.images import decode_image
from rrf.data.schema import EncodedImages
from tests.data.fixtures_rlds import (
    TOY,
    draw_jpeg,
    episodes_of,
    features_dict,
    image,
    sequence,
    tensor,
    text,
    toy_episode,
    video,
    write_rlds,
)

BRIDGE = Path(__file__).parents[4] / "shared/data/octo_bridge_rlds"
ALL = (
    "action", "is_first", "language_instruction", "observation/front", "observation/state",
    "phase", "episode_metadata/file_path", "episode_metadata/success",
)  # fmt: skip


@pytest.fixture
def toy(tmp_path):
    """Two splits, three shards, four episodes."""
    shards = {
        "train": [[toy_episode(0, 4), toy_episode(1, 3)], [toy_episode(2, 5)]],
        "val": [[toy_episode(3, 2)]],
    }
    return write_rlds(tmp_path / "toy/1.0.0", shards)


def read(path, keys=ALL, **options):
    source = RLDSSource(path, options)
    return [
        episode for recording in source.recordings() for episode in source.episodes(recording, keys)
    ]


def read_one(tmp_path, values, keys=ALL, features=TOY):
    """The only episode of a dataset that holds these values."""
    path = write_rlds(tmp_path / "one", {"train": [[values]]}, features)
    (episode,) = read(path, keys)
    return episode


def test_episodes_hold_what_was_written_in_the_types_of_features_json(toy):
    episodes = read(toy)
    assert [len(episode) for episode in episodes] == [4, 3, 5, 2]
    first = episodes[1]
    assert first.source == f"{toy}/toy-train.tfrecord-00000-of-00002:record_1"
    assert first.instruction == "öffne 1"
    assert first.fps is None
    assert first.arrays["action"].dtype == np.float32
    assert first.arrays["action"].tolist() == [[0, -1, 0.5], [0.25, -1, 0.5], [0.5, -1, 0.5]]
    assert first.arrays["observation/state"].dtype == np.float64
    assert first.arrays["observation/state"].tolist() == [[0, 1.25], [1, 1.25], [2, 1.25]]
    assert first.arrays["is_first"].dtype == np.bool_
    assert first.arrays["is_first"].tolist() == [True, False, False]
    assert first.arrays["phase"].dtype == np.int32
    assert first.arrays["phase"].tolist() == [0, -3, 600]
    assert first.arrays["language_instruction"].tolist() == ["öffne 1"] * 3


def test_what_stands_beside_the_steps_is_repeated_for_every_step(toy):
    arrays = read(toy)[1].arrays
    assert arrays["episode_metadata/success"].tolist() == [True, True, True]
    assert arrays["episode_metadata/file_path"].tolist() == ["/recordings/1.npy"] * 3


def test_images_are_passed_on_as_the_files_they_are(toy):
    images = read(toy)[2].images["observation/front"]
    assert isinstance(images, EncodedImages)
    assert images.suffix == "jpg"
    assert images.blobs == [draw_jpeg(20 + t) for t in range(5)]


def test_the_format_of_images_is_read_from_their_bytes_not_from_features_json(tmp_path):
    pngs = [draw_jpeg(t, file_format="png") for t in range(3)]
    episode = read_one(tmp_path, toy_episode(0, 3, steps__observation__front=pngs))
    assert episode.images["observation/front"] == EncodedImages(pngs, "png")


def test_a_camera_of_both_formats_is_decoded(tmp_path):
    mixed = [draw_jpeg(10), draw_jpeg(30, file_format="png")]
    episode = read_one(tmp_path, toy_episode(0, 2, steps__observation__front=mixed))
    images = episode.images["observation/front"]
    assert isinstance(images, np.ndarray)
    assert images[:, 0, 0, 0].tolist() == [10, 30]


def test_only_the_wanted_keys_are_given(toy):
    episode = read(toy, keys=["phase", "episode_metadata/success"])[0]
    assert set(episode.arrays) == {"phase", "episode_metadata/success"}
    assert episode.images == {}
    assert len(episode) == 4


def test_keys_name_types_and_shapes(toy):
    assert RLDSSource(toy, {}).keys() == {
        "action": "float32[3]",
        "is_first": "bool[]",
        "language_instruction": "text",
        "observation/front": "image[8, 8]",
        "observation/state": "float64[2]",
        "phase": "int32[]",
        "episode_metadata/file_path": "text",
        "episode_metadata/success": "bool[]",
    }


def test_a_shard_is_a_recording_in_the_order_of_dataset_info(toy):
    recordings = RLDSSource(toy, {}).recordings()
    assert [(r.name, r.num_episodes) for r in recordings] == [
        ("toy-train.tfrecord-00000-of-00002", 2),
        ("toy-train.tfrecord-00001-of-00002", 1),
        ("toy-val.tfrecord-00000-of-00001", 1),
    ]
    assert [r.paths for r in recordings] == [(toy / r.name,) for r in recordings]


def test_splits_are_chosen_by_name(toy):
    assert [len(e) for e in read(toy, split="val")] == [2]
    assert [len(e) for e in read(toy, split=["val", "train"])] == [4, 3, 5, 2]
    with pytest.raises(ValueError, match="has no split 'vla'; did you mean 'val'"):
        read(toy, split="vla")


def test_an_unknown_option_names_the_closest_one(toy):
    with pytest.raises(ValueError, match="no field 'splits'; did you mean 'split'"):
        read(toy, splits="val")


def test_a_directory_above_the_version_will_do_if_there_is_only_one(toy):
    assert len(read(toy.parent.parent)) == 4
    write_rlds(toy.parent / "1.1.0", {"train": [[toy_episode(0, 2)]]})
    with pytest.raises(ValueError, match=r"holds 2 datasets.*toy/1\.0\.0, .*toy/1\.1\.0"):
        read(toy.parent)


def test_the_instruction_of_the_observation_stands_in_for_a_blank_one(tmp_path):
    steps = {
        "is_first": tensor("bool"),
        "language_instruction": text(),
        "observation": features_dict({"natural_language_instruction": tensor("string")}),
    }
    values = {
        "steps/is_first": [1, 0],
        "steps/language_instruction": [b" "] * 2,
        "steps/observation/natural_language_instruction": [b"lift"] * 2,
    }
    features = episodes_of(steps)
    assert read_one(tmp_path / "a", values, ["is_first"], features).instruction == "lift"
    values["steps/observation/natural_language_instruction"] = [b""] * 2
    assert read_one(tmp_path / "b", values, ["is_first"], features).instruction is None


def test_tensors_stored_as_blobs(tmp_path):
    depth = np.arange(12, dtype="<u2").reshape(2, 2, 3)
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    features = episodes_of(
        {
            "depth": tensor("uint16", 2, 3, encoding="zlib"),
            "rgb": tensor("uint8", 2, 2, 3, encoding="bytes"),
        }
    )
    values = {
        "steps/depth": [zlib.compress(d.tobytes()) for d in depth],
        "steps/rgb": [p.tobytes() for p in pixels],
    }
    episode = read_one(tmp_path, values, ["depth", "rgb"], features)
    np.testing.assert_array_equal(episode.arrays["depth"], depth)
    np.testing.assert_array_equal(episode.images["rgb"], pixels)
    values["steps/depth"][1] = zlib.compress(bytes(11))
    with pytest.raises(ValueError, match="depth at step 1 holds 11 bytes, not the 12 of uint16"):
        read_one(tmp_path / "short", values, ["depth"], features)
    values["steps/depth"][1] = b"no zlib"
    with pytest.raises(ValueError, match="depth at step 1 is not zlib"):
        read_one(tmp_path / "junk", values, ["depth"], features)


def test_a_sequence_of_fixed_length_in_every_step_is_an_array(tmp_path):
    features = episodes_of({"goal": sequence(tensor("float32", 2), 3), "t": tensor("int64")})
    values = {
        "steps/goal/ragged_flat_values": [float(i) for i in range(12)],
        "steps/goal/ragged_row_lengths_0": [3, 3],
        "steps/t": [0, 1],
    }
    goal = read_one(tmp_path, values, ["goal"], features).arrays["goal"]
    assert goal.shape == (2, 3, 2)
    assert goal[1, 0].tolist() == [6, 7]


def test_grey_images_keep_all_their_bits(tmp_path):
    depth = np.arange(2 * 4 * 6, dtype=np.uint16).reshape(2, 4, 6, 1) * 1300
    features = episodes_of({"depth": image(4, 6, 1, dtype="uint16")})
    values = {"steps/depth": [cv2.imencode(".png", one)[1].tobytes() for one in depth]}
    found = read_one(tmp_path, values, ["depth"], features).arrays["depth"]
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, depth)
    values["steps/depth"][1] = draw_jpeg(7, 4)
    with pytest.raises(ValueError, match=r"depth .* at frame 1 has 3 channels"):
        read_one(tmp_path / "rgb", values, ["depth"], features)
    values["steps/depth"] = [cv2.imencode(".png", np.zeros((4, 5), np.uint16))[1].tobytes()] * 2
    with pytest.raises(
        ValueError, match=r"holds uint16\[4, 5, 1\], features.json says uint16\[4, 6"
    ):
        read_one(tmp_path / "size", values, ["depth"], features)


def test_what_has_no_array_form_is_not_offered_and_says_why(tmp_path):
    features = episodes_of(
        {
            "t": tensor("int64"),
            "words": sequence(text()),
            "cloud": tensor("float32", -1, 3),
            "clip": video(),
            "depth": image(4, 4, 1, dtype="float32"),
            "half": tensor("bfloat16", 2),
        }
    )
    source = RLDSSource(write_rlds(tmp_path / "odd", {"train": [[]]}, features), {})
    assert source.keys() == {"t": "int64[]"}
    reasons = {
        "words": "sequence without a fixed length",
        "cloud": r"the shape \[-1, 3\], which is not the same in every step",
        "clip": "is a Video",
        "depth": r"float32\[4, 4, 1\]",
        "half": "dtype bfloat16",
    }
    (recording,) = RLDSSource(one_shard(tmp_path), {}).recordings()
    for key, reason in reasons.items():
        with pytest.raises(ValueError, match=rf"json: '{key}' cannot be read: it .*{reason}"):
            next(source.episodes(recording, [key]))


def one_shard(tmp_path):
    return write_rlds(tmp_path / "toy", {"train": [[toy_episode(0, 2)]]})


@pytest.fixture(scope="module")
def bridge():
    """The source over real data, and the episodes of its train and val shard."""
    if not BRIDGE.is_dir():
        pytest.skip(f"no real data at {BRIDGE}")
    source = RLDSSource(BRIDGE, {})
    return source, *(
        [*source.episodes(recording, list(source.keys()))] for recording in source.recordings()
    )


def test_bridge_has_25_episodes_of_10_steps_in_each_split(bridge):
    source, train, val = bridge
    assert [r.num_episodes for r in source.recordings()] == [len(train), len(val)] == [25, 25]
    keys = source.keys()
    assert len(keys) == 20
    assert keys["language_embedding"] == "float32[512]"
    assert keys["observation/image_0"] == "image[64, 64]"
    assert keys["episode_metadata/episode_id"] == "int32[]"
    for episode in train + val:
        assert episode.arrays["action"].shape == (10, 7)
        assert episode.arrays["observation/state"].shape == (10, 7)
        assert episode.arrays["language_embedding"].shape == (10, 512)
        assert episode.arrays["is_first"].tolist() == [True] + [False] * 9
        assert [len(images) for images in episode.images.values()] == [10] * 4
    assert train[0].instruction == "put cup from counter or drying rack into sink"
    assert {episode.instruction for episode in train} >= {
        "put carrot on plate",
        "turn lever vertical to front",
    }


def test_bridge_shows_its_traps(bridge):
    _, train, val = bridge
    # train and val hold the same episodes, in another order
    assert len({content(episode) for episode in train}) == 25
    assert {content(episode) for episode in train} == {content(episode) for episode in val}
    # episode_id counts within a file of the original data only
    ids = {int(episode.arrays["episode_metadata/episode_id"][0]) for episode in train}
    assert ids == set(range(8))
    # the flags deny every camera, though only image_3 is black
    for camera, is_black in ((0, False), (1, False), (2, False), (3, True)):
        for episode in train:
            assert not episode.arrays[f"episode_metadata/has_image_{camera}"].any()
            blobs = episode.images[f"observation/image_{camera}"].blobs
            assert (decode_image(blobs[0]).max() == 0) == is_black


def content(episode):
    return episode.arrays["action"].tobytes() + b"".join(
        episode.images["observation/image_0"].blobs
    )
