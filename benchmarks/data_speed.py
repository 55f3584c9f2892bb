"""Our LeRobot v3 writer and reader beside lerobot's own, on the same frames in the same process.

Frames are those of the demonstration recordings (`dvc pull`), 64x64 px, PNG in parquet on both
sides. A figure is frames per CPU-second; `wall_s` and `peer_wall_s` stand beside it. lerobot is
used as its documentation shows: `add_frame` and `save_episode` to write, `DataLoader` over
`LeRobotDataset` with `delta_timestamps` to read.

    python -m benchmarks.data_speed
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.record import number, save
from rrf import workspace
from rrf.data.convert import recordings
from rrf.data.dataset_cfg import DatasetCfg, dataset_paths, load_dataset_cfg
from rrf.data.lerobot_reader import LeRobotReader
from rrf.data.lerobot_writer import write_dataset
from rrf.data.robomimic import read_robomimic
from rrf.data.sampling import batch_indices
from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE, Episode

DATASET = "metaworld-demo"
NUM_FRAMES = 600
BATCH_SIZE = 32
CHUNK_LENGTH = 2
REPEATS = 3
SEED = 0
COMMAND = "python -m benchmarks.data_speed"


def writer_ratio_vs_lerobot(command: str = COMMAND) -> dict:
    """Frames written per CPU-second, and how many times lerobot's that is."""
    cfg, episodes = _episodes()
    frames = sum(len(episode) for episode in episodes)
    with tempfile.TemporaryDirectory() as folder:
        ours = _best(lambda: _write(cfg, episodes, Path(folder) / "ours"))
        peer = _best(lambda: _write_with_lerobot(cfg, episodes, Path(folder) / "peer"))
    return _ratio("writer_ratio_vs_lerobot", frames, ours, peer, command)


def reader_ratio_vs_lerobot(command: str = COMMAND) -> dict:
    """Frames read per CPU-second in a first epoch, which decodes every image, beside lerobot's."""
    return _reader_ratio("reader_ratio_vs_lerobot", num_epochs_before=0, command=command)


def reader_cached_ratio_vs_lerobot(command: str = COMMAND) -> dict:
    """The same in a later epoch: our reader kept the decoded images, lerobot's decodes again."""
    return _reader_ratio("reader_cached_ratio_vs_lerobot", num_epochs_before=1, command=command)


def _reader_ratio(id: str, num_epochs_before: int, command: str) -> dict:
    cfg, episodes = _episodes()
    frames = sum(len(episode) for episode in episodes)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "dataset"
        write_dataset(root, cfg.schema(), episodes, "image")
        ours = _best(lambda: _read(root, num_epochs_before))
        peer = _best(_lerobot_epoch(root, cfg.fps))
    return _ratio(id, frames, ours, peer, command)


def _episodes() -> tuple[DatasetCfg, list[Episode]]:
    """The first episodes of the recordings, `NUM_FRAMES` frames or a little more."""
    cfg = load_dataset_cfg(DATASET)
    episodes: list[Episode] = []
    for path in recordings(cfg, dataset_paths(cfg).raw):
        for episode in read_robomimic(path, cfg):
            episodes.append(episode)
            if sum(len(e) for e in episodes) >= NUM_FRAMES:
                return cfg, episodes
    return cfg, episodes


def _write(cfg: DatasetCfg, episodes: list[Episode], root: Path) -> tuple[float, float]:
    with _Stopwatch() as watch:
        write_dataset(root, cfg.schema(), episodes, "image")
    return watch.cpu_s, watch.wall_s


def _write_with_lerobot(
    cfg: DatasetCfg, episodes: list[Episode], root: Path
) -> tuple[float, float]:
    dataset_class = _lerobot_dataset_class()
    shutil.rmtree(root, ignore_errors=True)
    features = {
        STATE: {"dtype": "float32", "shape": (len(cfg.state.names),), "names": cfg.state.names},
        ACTION: {"dtype": "float32", "shape": (len(cfg.action.names),), "names": cfg.action.names},
    }
    for camera in cfg.cameras:
        features[f"{IMAGE_PREFIX}{camera}"] = {
            "dtype": "image",
            "shape": (*cfg.image_size, 3),
            "names": ["height", "width", "channels"],
        }
    with _Stopwatch() as watch:
        dataset = dataset_class.create("local/peer", cfg.fps, features, root=root, use_videos=False)
        for episode in episodes:
            for index in range(len(episode)):
                images = {
                    f"{IMAGE_PREFIX}{camera}": frames[index]
                    for camera, frames in episode.images.items()
                }
                vectors = {STATE: episode.state[index], ACTION: episode.action[index]}
                dataset.add_frame(images | vectors | {"task": episode.instruction})
            dataset.save_episode()
        dataset.finalize()
    return watch.cpu_s, watch.wall_s


def _read(root: Path, num_epochs_before: int) -> tuple[float, float]:
    reader = LeRobotReader(root, CHUNK_LENGTH)
    steps = reader.num_frames // BATCH_SIZE
    for step in range(steps * num_epochs_before + num_epochs_before):
        reader.batch(batch_indices(reader.num_frames, BATCH_SIZE, SEED, step))
    with _Stopwatch() as watch:
        order = np.random.default_rng(SEED).permutation(reader.num_frames)
        for start in range(0, reader.num_frames, BATCH_SIZE):
            reader.batch(order[start : start + BATCH_SIZE])
    return watch.cpu_s, watch.wall_s


def _lerobot_epoch(root: Path, fps: int) -> Callable[[], tuple[float, float]]:
    dataset_class = _lerobot_dataset_class()
    import torch

    torch.set_num_threads(1)
    steps = {ACTION: [step / fps for step in range(CHUNK_LENGTH)]}
    dataset = dataset_class("local/peer", root=root, delta_timestamps=steps)

    def epoch() -> tuple[float, float]:
        loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)
        with _Stopwatch() as watch:
            for _ in loader:
                pass
        return watch.cpu_s, watch.wall_s

    return epoch


def _lerobot_dataset_class():
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset


class _Stopwatch:
    """CPU and wall seconds of a block."""

    def __enter__(self) -> "_Stopwatch":
        self._started = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_) -> None:
        self.cpu_s = time.process_time() - self._started[0]
        self.wall_s = time.perf_counter() - self._started[1]


def _best(measure: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """The least CPU seconds of several runs, with the wall seconds of that run."""
    return min(measure() for _ in range(REPEATS))


def _ratio(
    id: str, frames: int, ours: tuple[float, float], peer: tuple[float, float], command: str
) -> dict:
    row = number(
        id,
        frames / ours[0],
        "frames/cpu-s",
        peer="lerobot 0.4.4",
        peer_value=frames / peer[0],
        ratio=peer[0] / ours[0],
        command=command,
        seeds=[SEED],
    )
    return row | {"wall_s": round(ours[1], 4), "peer_wall_s": round(peer[1], 4)}


if __name__ == "__main__":
    workspace.settle_environment()
    rows = [
        writer_ratio_vs_lerobot(),
        reader_ratio_vs_lerobot(),
        reader_cached_ratio_vs_lerobot(),
    ]
    for row in rows:
        pair = f"{row['value']} against {row['peer_value']} {row['unit']}"
        print(f"{row['id']}: {pair}, x{row['ratio']}")
    save("data_speed", rows)
