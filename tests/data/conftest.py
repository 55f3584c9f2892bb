"""Small recordings and datasets.

Images are drawn so that episode, frame and position can be read off their pixels.
"""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rrf.data.conversion.dataset_cfg import DatasetCfg, SourceCfg, VectorCfg
from rrf.data.formats.robomimic import write_robomimic
from rrf.data.validation.tables import Tables, read_tables

SIZE = 16
CHUNK = 3  # actions that lerobot gives with a frame
FPS = 10


def run(*words) -> tuple[int, str, BaseException | None]:
    """The exit code, the output in one line, and the error of a command of `rrf data`."""
    from rrf.cli.data import app

    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, re.sub(r"\s+", " ", done.output), done.exception


def draw(episode: int, num_frames: int, size: int = SIZE) -> np.ndarray:
    """uint8 [T, H, W, 3]: a square of the episode's colour walks over a gradient, one pixel per
    frame.
    """
    rows, columns = np.mgrid[:size, :size]
    images = np.empty((num_frames, size, size, 3), np.uint8)
    for frame in range(num_frames):
        images[frame] = np.stack([rows * 8, columns * 8, rows + columns], axis=-1)
        left = (frame * 2 + episode) % (size - 4)
        images[frame, 4:8, left : left + 4] = (200, 20 * (episode % 12), 40)
    return images


def make_demo(episode: int, num_frames: int, size: int = SIZE) -> dict:
    """One demonstration; action dimension 0 is frame/100 and dimension 1 is -episode/100."""
    frames = np.arange(num_frames, dtype=np.float32)
    wave = np.sin(frames * 1.7 + episode, dtype=np.float32)
    actions = np.stack([frames / 100, np.full_like(frames, -episode / 100), wave / 2], axis=1)
    success = np.zeros(num_frames, np.uint8)
    success[-1] = 1
    return {
        "actions": actions.astype(np.float32),
        "rewards": frames,
        "dones": success,
        "states": np.zeros((num_frames, 5)),
        "success": success,
        "obs": {
            "front_image": draw(episode, num_frames, size),
            "eef_pos": np.stack([frames / 50, wave, frames * 0 + episode], axis=1),
            "gripper_opening": np.full((num_frames, 1), 0.5, np.float32),
        },
        "attrs": {"seed": 777, "index": episode, "success": True},
    }


def make_cfg(**changes) -> DatasetCfg:
    """A config that fits `make_demo`."""
    fields = dict(
        name="toy",
        source=SourceCfg(path="datasets/raw/toy"),
        fps=FPS,
        image_size=[SIZE, SIZE],
        cameras={"front": "obs/front_image"},
        state=VectorCfg(
            keys=["obs/eef_pos", "obs/gripper_opening"],
            names=["x", "y", "z", "gripper"],
            unit="m, m, m, fraction",
            low=[-10, -10, -10, 0],
            high=[100, 100, 100, 1],
        ),
        action=VectorCfg(
            keys=["actions"],
            names=["dx", "dy", "dz"],
            unit="fraction",
            low=[-1, -1, -1],
            high=[1, 1, 1],
        ),
        reward="rewards",
        success="success",
        licence="MIT",
        provenance="drawn by a test",
    )
    return DatasetCfg(**(fields | changes))


def write_raw(folder: Path, lengths: dict[str, list[int]], size: int = SIZE) -> Path:
    """One robomimic file per task in `lengths` (task -> frames of each demo)."""
    episode = 0
    for task, demo_lengths in lengths.items():
        demos = []
        for length in demo_lengths:
            demos.append(make_demo(episode, length, size))
            episode += 1
        instruction = f"do the {task}"
        write_robomimic(folder / f"{task}.hdf5", demos, {"env_name": task}, instruction, FPS)
    return folder


def edit_table(path: Path, change) -> None:
    """Rewrite one parquet file as `change(table)`."""
    pq.write_table(change(pq.read_table(path)), path)


def edit_column(root: Path, key: str, rows: dict) -> None:
    """Change a column of the only data file: row -> new value."""

    def change(table: pa.Table) -> pa.Table:
        values = table[key].to_pylist()
        for row, value in rows.items():
            values[row] = value
        field = table.schema.field(key)
        column = pa.array(values, field.type)
        return table.set_column(table.schema.get_field_index(key), field, column)

    edit_table(root / "data/chunk-000/file-000.parquet", change)


def edit_images(root: Path, rows: dict, key: str = "observation.images.front") -> None:
    """Change encoded images: row -> a function of the bytes."""
    table = pq.read_table(root / "data/chunk-000/file-000.parquet", columns=[key])
    images = table[key].to_pylist()
    changed = {row: images[row] | {"bytes": f(images[row]["bytes"])} for row, f in rows.items()}
    edit_column(root, key, changed)


def writable_tables(root: Path) -> Tables:
    """The tables of a dataset, whose vectors a test may change."""
    tables = read_tables(root)
    tables.vectors = {key: values.copy() for key, values in tables.vectors.items()}
    return tables


@pytest.fixture(scope="module")
def lerobot_dataset(tmp_path_factory):
    """lerobot's class, without network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_DATASETS_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
        from lerobot.datasets.lerobot_dataset import LeRobotDataset

        yield LeRobotDataset


@pytest.fixture(scope="module")
def open_with_lerobot(lerobot_dataset):
    """A function that opens a directory as LeRobotDataset, with chunks of three actions."""

    def open_dataset(root, fps=FPS):
        steps = {"action": [step / fps for step in range(CHUNK)]}
        return lerobot_dataset("local/toy", root=root, video_backend="pyav", delta_timestamps=steps)

    return open_dataset


@pytest.fixture
def cfg() -> DatasetCfg:
    return make_cfg()


@pytest.fixture
def raw(tmp_path) -> Path:
    """Two tasks, five episodes, 36 frames."""
    return write_raw(tmp_path / "raw", {"pull": [8, 6, 7], "push": [5, 10]})
