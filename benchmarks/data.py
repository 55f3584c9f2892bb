"""Conversion, reading and validation of datasets: `python -m benchmarks.data [ID ...]`.

By default all numbers are measured, which takes a quarter of an hour.

The frames are those of the demonstration recordings (`dvc pull`) with one camera, enlarged to
128x128 px and stored as JPEG of quality 95 in TFRecord files. So the episodes have the form of Open
X-Embodiment, as robots record them.

lerobot is used as its documentation shows. It writes with `add_frame` and `save_episode` and the
same codec. It reads the same files with a `DataLoader` over `LeRobotDataset` with
`delta_timestamps`, and decodes with pyav, because its default, torchcodec, needs FFmpeg's libraries
on the system. CPU-seconds count all threads and child processes.
"""

import dataclasses
import os
import shutil
import sys
import tempfile
import typing
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import harness
from benchmarks.clock import Stopwatch, in_turns
from benchmarks.data_recordings import FPS, SIZE, dataset_cfg, episodes, schema, write_recordings
from benchmarks.harness import Bench, apart, by_name
from benchmarks.peers import PEERS
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import ChecksCfg
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.opening import open_dataset
from rrf.data.dataset.reader import LeRobotReader
from rrf.data.dataset.sampling import batch_indices
from rrf.data.schema import ACTION, IMAGE_PREFIX, STATE, Episode
from rrf.data.validation.validate import validate

BATCH_SIZE = 64
CHUNK_LENGTH = 16
REPEATS = 3
SEED = 0


def rlds_passthrough_steps_per_cpu_s(bench: Bench) -> dict:
    """Convert RLDS to LeRobot v3, with JPEG files kept byte for byte."""
    return _conversion(bench, "rlds_passthrough_steps_per_cpu_s", "image")


def rlds_video_steps_per_cpu_s(bench: Bench) -> list[dict]:
    """Convert RLDS to LeRobot v3 in h264; on more data, also the speed-up by a second process."""
    row = _conversion(bench, "rlds_video_steps_per_cpu_s", "video")
    times = bench.size(50, 2)
    single, double = _least(
        bench,
        lambda: _convert("video", times, 1),
        lambda: _convert("video", times, 2),
        by=lambda cost: cost.wall_s,
    )
    speed_up = single.wall_s / double.wall_s
    return [row, bench.number("rlds_video_two_processes", speed_up, "times as fast as one")]


def convert_peak_mb_10x(bench: Bench) -> dict:
    """Peak memory when converting ten times as many recordings, compared with a tenth of them."""
    once, ten_times = (_in_child(f"_convert('video', {times})") for times in (1, bench.size(10, 2)))
    return bench.compare(
        "convert_peak_mb_10x",
        ten_times.peak_mb,
        "MB",
        "a tenth of the recordings",
        once.peak_mb,
        is_cost=True,
    )


def writer_ratio_vs_lerobot(bench: Bench) -> dict:
    """Frames written in h264 per CPU-second, compared with lerobot."""
    frames = episodes()
    with tempfile.TemporaryDirectory() as folder:
        ours, peer = _least(
            bench,
            lambda: _write(frames, Path(folder, "ours")),
            lambda: _write_with_lerobot(frames, Path(folder, "peer")),
        )
    return _ratio(bench, "writer_ratio_vs_lerobot", ours, peer)


def reader_ratio_vs_lerobot(bench: Bench) -> dict:
    """Frames read in random order per CPU-second without a cache, compared with lerobot."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "dataset")
        _write(episodes(), root)
        reader = open_dataset(root, CHUNK_LENGTH, cache_bytes=0)
        ours, peer = _least(bench, lambda: _epoch(reader), _lerobot_epoch(root))
    return _ratio(bench, "reader_ratio_vs_lerobot", ours, peer)


def memmap_frames_per_s(bench: Bench) -> dict:
    """Frames read per wall second from a decoded, memory-mapped cache that is already full."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "dataset")
        _write(episodes(), root)
        reader = open_dataset(root, CHUNK_LENGTH, cache_bytes=0, cache_dir=Path(folder, "cache"))
        _epoch(reader)
        [cost] = _least(bench, lambda: _epoch(reader), by=lambda cost: cost.wall_s)
    return bench.number("memmap_frames_per_s", cost.frames / cost.wall_s, "frames/s")


def validate_1m_rows_s(bench: Bench) -> list[dict]:
    """Wall seconds to validate 1,000,000 frames of states and actions, and the peak memory."""
    cost = _in_child(f"_validate_rows({bench.size(1_000_000, 10_000)})")
    return [
        bench.number("validate_1m_rows_s", cost.wall_s, "s"),
        bench.number("validate_1m_rows_peak_mb", cost.peak_mb, "MB"),
    ]


@dataclasses.dataclass
class Cost:
    """The cost of a piece of work."""

    frames: int
    cpu_s: float
    wall_s: float
    peak_mb: float = 0.0


def _least(
    bench: Bench, *measures: Callable[[], Cost], by: Callable[[Cost], float] = lambda c: c.cpu_s
) -> list[Cost]:
    """The cheapest of some runs of each, which take turns."""
    runs = in_turns(*measures, repeats=bench.size(REPEATS, 1))
    return [min(costs, key=by) for costs in runs]


def _in_child(expression: str) -> Cost:
    """The cost of evaluating `expression` of this module in a new process, with its peak memory."""
    program = (
        f"import json; from benchmarks import clock, data; cost = data.{expression}\n"
        "cost.peak_mb = clock.peak_kb() / 1000\n"
        "print(json.dumps(vars(cost)))"
    )
    return Cost(**apart(expression, [sys.executable, "-c", program]))


def _conversion(bench: Bench, id: str, storage: typing.Literal["image", "video"]) -> dict:
    [cost] = _least(bench, lambda: _convert(storage, bench.size(4, 1)))
    return bench.number(id, cost.frames / cost.cpu_s, "steps/cpu-s", seeds=[SEED])


def _convert(
    storage: typing.Literal["image", "video"], times: int = 1, num_workers: int = 1
) -> Cost:
    """Convert the recordings, with each shard repeated `times` times."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "raw", "1.0.0")
        write_recordings(raw, times)
        with Stopwatch() as watch:
            done = convert(dataset_cfg(storage), raw, Path(folder, "out"), num_workers=num_workers)
    return Cost(done.frames, watch.cpu_s, watch.wall_s)


def _write(episodes: list[Episode], root: Path) -> Cost:
    with Stopwatch() as watch:
        write_dataset(root, schema(), episodes, "video")
    return Cost(sum(map(len, episodes)), watch.cpu_s, watch.wall_s)


def _write_with_lerobot(episodes: list[Episode], root: Path) -> Cost:
    shutil.rmtree(root, ignore_errors=True)
    vector = {"dtype": "float32", "shape": (4,), "names": list("xyzg")}
    pixels = {"dtype": "video", "shape": (SIZE, SIZE, 3), "names": ["height", "width", "channels"]}
    features = {STATE: vector, ACTION: vector, f"{IMAGE_PREFIX}front": pixels}
    dataset_class = _lerobot_dataset_class()
    from lerobot.configs import RGBEncoderConfig

    h264 = RGBEncoderConfig(vcodec="h264")
    with Stopwatch() as watch:
        dataset = dataset_class.create("local/peer", FPS, features, root=root, rgb_encoder=h264)
        for episode in episodes:
            images = np.asarray(episode.images["front"])
            for index in range(len(episode)):
                vectors = {STATE: episode.state[index], ACTION: episode.action[index]}
                rest = {f"{IMAGE_PREFIX}front": images[index], "task": episode.instruction}
                dataset.add_frame(vectors | rest)
            dataset.save_episode()
        dataset.finalize()
    return Cost(sum(map(len, episodes)), watch.cpu_s, watch.wall_s)


def _epoch(reader: LeRobotReader) -> Cost:
    steps = reader.num_frames // BATCH_SIZE
    with Stopwatch() as watch:
        for step in range(steps):
            reader.batch(batch_indices(reader.num_frames, BATCH_SIZE, SEED, step))
    return Cost(steps * BATCH_SIZE, watch.cpu_s, watch.wall_s)


def _lerobot_epoch(root: Path) -> Callable[[], Cost]:
    import torch

    torch.set_num_threads(1)
    steps = {ACTION: [step / FPS for step in range(CHUNK_LENGTH)]}
    dataset = _lerobot_dataset_class()(
        "local/peer", root=root, delta_timestamps=steps, video_backend="pyav"
    )

    def epoch() -> Cost:
        loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)
        with Stopwatch() as watch:
            for _ in loader:
                pass
        return Cost(len(dataset), watch.cpu_s, watch.wall_s)

    return epoch


def _lerobot_dataset_class():
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset


def _validate_rows(num_rows: int) -> Cost:
    """Validate a dataset of random walks without images, in episodes of 500 frames."""
    length, rng = 500, np.random.default_rng(SEED)

    def walks():
        for index in range(num_rows // length):
            walk = rng.normal(size=(length, 8)).astype(np.float32).cumsum(0)
            yield Episode({}, walk[:, :4], walk[:, 4:], "walk about", f"walk {index}")

    without_images = dataclasses.replace(schema(), image_size=(0, 0), cameras=())
    with tempfile.TemporaryDirectory() as folder:
        write_dataset(Path(folder, "d"), without_images, walks())
        with Stopwatch() as watch:
            report = validate("walks", Path(folder, "d"), ChecksCfg(), Path(folder, "report"))
        assert report.passed, [check for check in report.checks if check.status != "pass"]
    return Cost(num_rows, watch.cpu_s, watch.wall_s)


def _ratio(bench: Bench, id: str, ours: Cost, peer: Cost) -> dict:
    row = bench.compare(
        id,
        ours.frames / ours.cpu_s,
        "frames/cpu-s",
        PEERS["lerobot"].name,
        peer.frames / peer.cpu_s,
        seeds=[SEED],
    )
    return row | {"wall_s": round(ours.wall_s, 4), "peer_wall_s": round(peer.wall_s, 4)}


IDS = by_name(
    rlds_passthrough_steps_per_cpu_s,
    rlds_video_steps_per_cpu_s,
    convert_peak_mb_10x,
    writer_ratio_vs_lerobot,
    reader_ratio_vs_lerobot,
    memmap_frames_per_s,
    validate_1m_rows_s,
)


if __name__ == "__main__":
    harness.main("data", __doc__, IDS)
