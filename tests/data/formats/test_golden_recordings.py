"""Recordings that lerobot and TensorFlow Datasets wrote, against what these read from them; see
tests/data/golden/README.md.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import DatasetCfg, SourceCfg, VectorCfg
from rrf.data.dataset.opening import open_dataset
from rrf.data.formats.lerobot_source import LeRobotSource
from rrf.data.formats.rlds import RLDSSource
from rrf.data.images import decode_image

GOLDEN = Path(__file__).parents[1] / "golden"
LAYOUTS = pytest.mark.parametrize("layout", ["lerobot_v21_tiny", "lerobot_v30_tiny"])
RLDS = GOLDEN / "rlds_tiny"
# Decoders of JPEG round differently: OpenCV's and TensorFlow's are at most 14 of 255 grey levels
# apart in these images, and 2 on average.
MAX_JPEG_DIFFERENCE, MEAN_JPEG_DIFFERENCE = 14, 2


def expected(file: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / file, allow_pickle=False) as data:
        return {key: data[key] for key in data.files}


def frames() -> tuple[dict[str, np.ndarray], dict]:
    """Of both layouts: what lerobot reads, by key, and the lengths, tasks and fps."""
    arrays = expected("lerobot_v30_tiny_expected.npz")
    return arrays, json.loads(str(arrays["config_json"]))["frames"]


def episodes_of(source, keys=None):
    keys = list(source.keys()) if keys is None else keys
    return [e for recording in source.recordings() for e in source.episodes(recording, keys)]


def pixels(episode, key: str) -> np.ndarray:
    return np.stack([decode_image(blob) for blob in episode.images[key].blobs])


def vector(key: str, width: int) -> VectorCfg:
    return VectorCfg(keys=[key], names=[f"{index}" for index in range(width)], unit="1")


def make_cfg(source: SourceCfg, fps, image, state: str, widths: tuple[int, int], camera: str):
    return DatasetCfg(
        name="golden",
        source=source,
        fps=fps,
        image_size=list(image.shape[1:3]),
        cameras={"front": camera},
        state=vector(state, widths[0]),
        action=vector("action", widths[1]),
        licence="MIT",
        provenance="golden data",
    )


def is_jpeg_of(found: np.ndarray, given: np.ndarray) -> bool:
    difference = np.abs(found.astype(int) - given)
    return difference.max() <= MAX_JPEG_DIFFERENCE and difference.mean() <= MEAN_JPEG_DIFFERENCE


@LAYOUTS
def test_every_column_of_both_layouts_is_read_as_lerobot_reads_it(layout):
    arrays, facts = frames()
    source = LeRobotSource(GOLDEN / layout, {})
    [camera] = [key for key, text in source.keys().items() if text.startswith("image")]
    found = episodes_of(source)
    assert [len(episode) for episode in found] == facts["episode_lengths"]
    assert {episode.fps for episode in found} == {facts["fps"]}
    for key in ("state", "action", "timestamp", "episode_index", "frame_index", "task_index"):
        column = {"state": "observation.state"}.get(key, key)
        values = np.concatenate([episode.arrays[column] for episode in found])
        given = arrays[f"frames/{key}"]
        np.testing.assert_array_equal(values, given.astype(values.dtype), key)
    indices = np.concatenate([episode.arrays["index"] for episode in found])
    assert indices.tolist() == list(range(len(arrays["frames/state"])))
    images = np.concatenate([pixels(episode, camera) for episode in found])
    np.testing.assert_array_equal(images, arrays["frames/image"])
    first = np.cumsum([0, *facts["episode_lengths"][:-1]])
    tasks = [facts["tasks"][number] for number in arrays["frames/task_index"][first]]
    assert [episode.instruction for episode in found] == tasks
    assert source.warnings == []


@LAYOUTS
def test_a_converted_dataset_gives_the_chunks_and_statistics_of_lerobot(layout, tmp_path):
    arrays, facts = frames()
    image, state, action = (arrays[f"frames/{key}"] for key in ("image", "state", "action"))
    [camera] = [k for k, v in LeRobotSource(GOLDEN / layout, {}).keys().items() if "image" in v]
    widths = (state.shape[1], action.shape[1])
    source = SourceCfg(format="lerobot", path="x")
    cfg = make_cfg(source, facts["fps"], image, "observation.state", widths, camera)
    convert(cfg, GOLDEN / layout, tmp_path / "d")
    num_frames, chunk_length = arrays["chunked/action_is_pad"].shape
    batch = open_dataset(tmp_path / "d", chunk_length).batch(np.arange(num_frames))
    np.testing.assert_array_equal(batch.observation.images["front"], image)
    np.testing.assert_array_equal(batch.observation.state, state)
    np.testing.assert_array_equal(batch.action, arrays["chunked/action"])
    np.testing.assert_array_equal(batch.is_pad, arrays["chunked/action_is_pad"])
    tasks = [facts["tasks"][number] for number in arrays["frames/task_index"]]
    assert batch.observation.instruction == tasks
    stats = json.loads((tmp_path / "d/meta/stats.json").read_text())
    for key in ("observation.state", "action"):
        for name in ("count", "min", "max", "mean", "std"):
            given = arrays[f"stats/{key}.{name}"]
            np.testing.assert_allclose(stats[key][name], given, rtol=1e-6, err_msg=f"{key} {name}")


def test_every_key_of_an_rlds_directory_is_read_as_tensorflow_datasets_reads_it():
    arrays, source = expected("rlds_tiny_expected.npz"), RLDSSource(RLDS, {})
    read: dict[str, set[str]] = {}
    for recording in source.recordings():
        for number, episode in enumerate(source.episodes(recording, list(source.keys()))):
            start = f"{recording.split}/ep{number}/"
            given = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
            read[start] = set(given)
            assert episode.instruction == given["language_instruction"][0]
            image, wrist = given.pop("image"), given.pop("wrist_image_tf_decoded")
            np.testing.assert_array_equal(pixels(episode, "observation/image"), image)
            assert is_jpeg_of(pixels(episode, "observation/wrist_image"), wrist)
            for key, values in given.items():
                places = (key, f"observation/{key}", f"episode_metadata/{key}")
                [place] = [place for place in places if place in episode.arrays]
                found = episode.arrays[place]
                if values.dtype.kind != "U":
                    assert found.dtype == values.dtype
                np.testing.assert_array_equal(found, np.broadcast_to(values, found.shape), key)
            assert len(given) + 2 == len(episode.arrays) + len(episode.images)
    assert {f"{start}{key}" for start, keys in read.items() for key in keys} == set(arrays)
    assert source.warnings == []


def test_converted_rlds_gives_what_tensorflow_datasets_reads(tmp_path):
    arrays = expected("rlds_tiny_expected.npz")
    starts = sorted({key.rpartition("/")[0] + "/" for key in arrays})

    def joined(key: str) -> np.ndarray:
        return np.concatenate([arrays[f"{start}{key}"] for start in starts])

    widths = (joined("state").shape[1], joined("action").shape[1])
    source = SourceCfg(format="rlds", path="x")
    cfg = make_cfg(source, 5, joined("image"), "observation/state", widths, "observation/image")
    cfg = cfg.replace(cameras=cfg.cameras | {"wrist": "observation/wrist_image"})
    convert(cfg, RLDS, tmp_path / "d")
    batch = open_dataset(tmp_path / "d", 1).batch(np.arange(len(joined("state"))))
    np.testing.assert_array_equal(batch.observation.images["front"], joined("image"))
    assert is_jpeg_of(batch.observation.images["wrist"], joined("wrist_image_tf_decoded"))
    np.testing.assert_array_equal(batch.observation.state, joined("state"))
    np.testing.assert_array_equal(batch.action[:, 0], joined("action"))
    assert batch.observation.instruction == joined("language_instruction").tolist()
