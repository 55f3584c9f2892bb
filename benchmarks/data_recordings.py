"""The recordings that `benchmarks.data` converts.

They are demonstrations enlarged to 128x128 px and stored as JPEG of quality 95 in TFRecord files,
in the form of Open X-Embodiment.
"""

import functools
import io
import itertools
import json
import shutil
import typing
from pathlib import Path

import numpy as np
from PIL import Image

from rrf.data.conversion.dataset_cfg import (
    DatasetCfg,
    SourceCfg,
    VectorCfg,
    dataset_paths,
    load_dataset_cfg,
)
from rrf.data.raw import RawEpisode
from rrf.data.schema import Episode, Schema, Vector
from tests.data.fixtures_rlds import episodes_of, features_dict, image, tensor, text, write_rlds

RECORDINGS = "metaworld-demo"
EPISODES_PER_RECORDING = 4
SIZE = 128  # px
FPS = 16
NUM_SHARDS = 4


def dataset_cfg(storage: typing.Literal["image", "video"]) -> DatasetCfg:
    """The config for converting the recordings."""
    vector = {"names": list("xyzg"), "unit": "m"}
    return DatasetCfg(
        name="benchmark",
        source=SourceCfg(format="rlds", path="raw"),
        fps=FPS,
        storage=storage,
        image_size=[SIZE, SIZE],
        cameras={"front": "observation/image"},
        state=VectorCfg(keys=["observation/state"], **vector),
        action=VectorCfg(keys=["action"], **vector),
        licence="MIT",
        provenance="made for this benchmark",
    )


def write_recordings(directory: Path, times: int) -> None:
    """Write the recordings as RLDS, with each shard repeated `times` times."""
    steps = {
        "action": tensor("float32", 4),
        "language_instruction": text(),
        "observation": features_dict(
            {"image": image(SIZE, SIZE, 3), "state": tensor("float32", 4)}
        ),
    }
    shards = [_examples()[start::NUM_SHARDS] for start in range(NUM_SHARDS)]
    write_rlds(directory, {"train": shards}, episodes_of(steps))
    if times > 1:  # copies of the same shards: fast to make, and as slow to read as new ones
        described = json.loads((directory / "dataset_info.json").read_text())
        described["splits"][0]["shardLengths"] *= times
        (directory / "dataset_info.json").write_text(json.dumps(described))
        for index in reversed(range(NUM_SHARDS)):
            written = directory / f"toy-train.tfrecord-{index:05d}-of-{NUM_SHARDS:05d}"
            for copy in range(times):
                number_ = copy * NUM_SHARDS + index
                name = f"toy-train.tfrecord-{number_:05d}-of-{times * NUM_SHARDS:05d}"
                shutil.copy(written, directory / name)
            written.unlink()


def schema() -> Schema:
    """The schema of the enlarged recordings."""
    vector = Vector(names=tuple("xyzg"), unit="m")
    return Schema(
        fps=FPS, image_size=(SIZE, SIZE), cameras=("front",), state=vector, action=vector,
        has_reward=False, has_success=False,
    )  # fmt: skip


@functools.cache
def episodes() -> list[Episode]:
    """The first recordings of each task, enlarged."""
    cfg = load_dataset_cfg(RECORDINGS)
    source = cfg.source.reader(dataset_paths(cfg).raw)
    camera = next(iter(cfg.cameras.values()))
    keys = [camera, *cfg.state.keys, *cfg.action.keys]
    return [
        _enlarged(raw, camera, cfg)
        for recording in source.recordings()
        for raw in itertools.islice(source.episodes(recording, keys), EPISODES_PER_RECORDING)
    ]


@functools.cache
def _examples() -> list[dict[str, list]]:
    """The recordings as RLDS Examples."""
    examples = []
    for episode in episodes():
        frames = np.asarray(episode.images["front"])
        values = {
            "steps/action": [float(value) for value in episode.action.ravel()],
            "steps/language_instruction": [episode.instruction.encode()] * len(frames),
            "steps/observation/image": [_jpeg(frame) for frame in frames],
            "steps/observation/state": [float(value) for value in episode.state.ravel()],
        }
        examples.append(values)
    return examples


def _jpeg(frame: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "jpeg", quality=95)
    return file.getvalue()


def _enlarged(raw: RawEpisode, camera: str, cfg: DatasetCfg) -> Episode:
    frames = [
        np.asarray(Image.fromarray(frame).resize((SIZE, SIZE), Image.Resampling.BICUBIC))
        for frame in np.asarray(raw.images[camera])
    ]
    state, action = (
        np.concatenate([raw.arrays[key] for key in keys], 1).astype(np.float32)
        for keys in (cfg.state.keys, cfg.action.keys)
    )
    return Episode({"front": np.stack(frames)}, state, action, raw.instruction or "", raw.source)
