"""Datasets that lerobot wrote itself, under other names, read as lerobot reads them."""

import json
import multiprocessing
import shutil

import numpy as np
import pytest

from rrf.data.dataset.opening import open_dataset
from tests.data.conftest import draw

FPS = 10
LENGTHS = (5, 3, 6, 4)
KEYS = {
    "observation.state": "state",
    "action": "actions",
    "observation.images.front": "image",
    "observation.images.wrist": "wrist_image",
}


@pytest.fixture(scope="module", params=[True, False], ids=["video", "image"])
def root(request, lerobot_dataset, tmp_path_factory):
    """Four episodes in one file; two cameras, state 3 as float64, actions 2."""
    root = tmp_path_factory.mktemp("foreign") / "d"
    image = {
        "dtype": "video" if request.param else "image",
        "shape": (16, 16, 3),
        "names": ["height", "width", "channel"],
    }
    features = {
        "wrist_image": image,
        "image": image,
        "state": {"dtype": "float64", "shape": (3,), "names": {"motors": ["a", "b", "c"]}},
        "actions": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    }
    from lerobot.configs import RGBEncoderConfig

    h264 = RGBEncoderConfig(vcodec="h264")
    dataset = lerobot_dataset.create(
        "local/foreign", FPS, features, root=root, use_videos=request.param, rgb_encoder=h264
    )
    for number, length in enumerate(LENGTHS):
        for frame, drawn in enumerate(draw(number, length)):
            dataset.add_frame(
                {
                    "image": drawn,
                    "wrist_image": drawn[::-1],
                    "state": np.array([frame, number, 0.25]),
                    "actions": np.array([frame / 8, -number], np.float32),
                    "task": f"task {number % 2}",
                }
            )
        dataset.save_episode()
    dataset.finalize()
    return root


def steps(first, last):
    return [step / FPS for step in range(first, last)]


def test_frames_chunks_and_history_are_those_of_lerobot(root, lerobot_dataset):
    deltas = {"actions": steps(0, 4), "state": steps(-2, 1), "image": steps(-1, 1)}
    theirs = lerobot_dataset(
        "local/foreign", root=root, video_backend="pyav", delta_timestamps=deltas
    )
    reader = open_dataset(root, 4, keys=KEYS, state_history=2, image_history=1)
    assert (reader.num_frames, reader.num_episodes) == (18, 4)
    batch = reader.batch(np.arange(18))
    history = batch.history
    for index in range(18):
        item = theirs[index]
        pixels = (item["image"].numpy().transpose(0, 2, 3, 1) * 255).round()
        np.testing.assert_array_equal(pixels[1], batch.observation.images["front"][index])
        np.testing.assert_array_equal(pixels[:1], history.images["front"][index])
        wrist = (item["wrist_image"].numpy().transpose(1, 2, 0) * 255).round()
        np.testing.assert_array_equal(wrist, batch.observation.images["wrist"][index])
        np.testing.assert_array_equal(
            item["state"][[2, 1, 0]].ravel(), batch.observation.state[index]
        )
        np.testing.assert_array_equal(item["state"][:2], history.state[index])
        past = batch.observation.images["front@1"][index]
        np.testing.assert_array_equal(pixels[0], past)
        np.testing.assert_array_equal(item["state_is_pad"][:2], history.is_state_pad[index])
        np.testing.assert_array_equal(item["image_is_pad"][:1], history.is_image_pad[index])
        np.testing.assert_array_equal(item["actions"], batch.action[index])
        np.testing.assert_array_equal(item["actions_is_pad"], batch.is_pad[index])
        assert item["task"] == batch.observation.instruction[index]


def test_the_schema_has_our_names_and_their_dimensions(root):
    reader = open_dataset(root, 1, keys=KEYS)
    assert reader.schema.cameras == ("wrist", "front")
    assert reader.schema.state.names == ("a", "b", "c")
    assert reader.schema.action.names == ("x", "y")
    state = reader.batch(np.array([6])).observation.state  # frame 1 of episode 1
    assert state.dtype == np.float32
    assert state.tolist() == [[1.0, 1.0, 0.25]]


def test_only_the_cameras_asked_for_are_read(root, tmp_path):
    shutil.copytree(root, tmp_path / "d")
    for video in (tmp_path / "d").glob("videos/wrist_image/*/*.mp4"):
        video.unlink()
    reader = open_dataset(tmp_path / "d", 1, keys=KEYS, cameras=["front"])
    assert list(reader.batch(np.array([2])).observation.images) == ["front"]
    assert open_dataset(tmp_path / "d", 1, keys=KEYS, cameras=[]).schema.image_size == (0, 0)


def test_cameras_of_different_sizes_are_read_one_at_a_time(root, tmp_path):
    shutil.copytree(root, tmp_path / "d")
    path = tmp_path / "d/meta/info.json"
    info = json.loads(path.read_text())
    info["features"]["wrist_image"]["shape"] = [8, 8, 3]
    path.write_text(json.dumps(info))
    with pytest.raises(ValueError, match="cameras of different sizes"):
        open_dataset(tmp_path / "d", 1, keys=KEYS)
    reader = open_dataset(tmp_path / "d", 1, keys=KEYS, cameras=["front"])
    assert reader.schema.image_size == (16, 16)


def test_wrong_keys_and_cameras_are_named(root):
    with pytest.raises(ValueError, match=r"has no feature 'observation\.state'; it has: .*state"):
        open_dataset(root, 1)
    with pytest.raises(ValueError, match=r"action: .* no feature 'action'; did you mean 'actions'"):
        open_dataset(root, 1, keys=KEYS | {"action": "action"})
    with pytest.raises(ValueError, match=r"keys: 'actoin' is not one of our keys; did you mean '"):
        open_dataset(root, 1, keys={"actoin": "actions"})
    with pytest.raises(ValueError, match=r"no camera 'frnt'; did you mean 'front'"):
        open_dataset(root, 1, keys=KEYS, cameras=["frnt"])


def test_a_path_template_that_leads_out_of_the_dataset_is_refused(root, tmp_path):
    shutil.copytree(root, tmp_path / "d")
    path = tmp_path / "d/meta/info.json"
    info = json.loads(path.read_text())
    name = "video_path" if info["features"]["image"]["dtype"] == "video" else "data_path"
    path.write_text(json.dumps(info | {name: f"../d/{info[name]}"}))
    reader = open_dataset(tmp_path / "d", 1, keys=KEYS)
    with pytest.raises(ValueError, match=rf"{name}: the path '\.\./d/.*' leads out of"):
        reader.batch(np.array([0]))


def test_a_forked_process_opens_the_files_itself(root):
    reader = open_dataset(root, 1, keys=KEYS, cache_bytes=0)
    expected = reader.batch(np.arange(18)).observation.images["front"]
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def read(frames):
        for _ in range(20):
            images = reader.batch(frames).observation.images["front"]
            if not (images == expected[frames]).all():
                break
        else:
            results.put("same")
            return
        results.put("other")

    frames = [np.arange(0, 18, 3), np.arange(17, -1, -2), np.arange(5, 12)]
    processes = [context.Process(target=read, args=(each,)) for each in frames]
    for process in processes:
        process.start()
    assert [results.get(timeout=300) for _ in processes] == ["same"] * 3
    for process in processes:
        process.join()
