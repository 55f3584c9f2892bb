"""Tiny LeRobot v2.0 and v2.1 directories, laid out as lerobot 0.1 to 0.3 writes them.

Action dimension 0 is frame/100 and dimension 1 is -episode/100; images are those of `draw`.
"""

import io
import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from rrf.data.formats.lerobot_source import LeRobotSource
from tests.data.conftest import draw

FPS = 10
CAMERA = "observation.images.front"
TASKS = ("pull the lever", "push the button")
_IMAGE_FEATURE = {"shape": [16, 16, 3], "names": ["height", "width", "channel"]}


def write_v2(
    root: Path,
    lengths: dict[int, int],
    version: str = "v2.1",
    storage: str = "video",
    extra_frames: int = 0,
    info: dict | None = None,
) -> Path:
    """A directory with one camera, state 4, action 2 and two tasks in turn.

    Args:
        root: The directory.
        lengths: Episode number -> frames.
        version: The codebase_version.
        storage: "video", or "image" for PNG in parquet.
        extra_frames: Frames that each video has more than its table.
        info: Entries of info.json to replace.
    """
    for number, length in lengths.items():
        columns = _columns(number, length)
        if storage == "image":
            columns[CAMERA] = image_column(draw(number, length))
        write_table(data_path(root, number), columns)
        if storage == "video":
            write_video(video_path(root, number), draw(number, length + extra_frames))
    write_lines(
        root / "meta/episodes.jsonl",
        [
            {"episode_index": number, "tasks": [TASKS[number % 2]], "length": length}
            for number, length in lengths.items()
        ],
    )
    tasks = [{"task_index": index, "task": task} for index, task in enumerate(TASKS)]
    write_lines(root / "meta/tasks.jsonl", tasks)
    content = _info(lengths, version, storage) | (info or {})
    (root / "meta/info.json").write_text(json.dumps(content, indent=4))
    return root


def data_path(root: Path, number: int) -> Path:
    """An episode's table."""
    return root / f"data/chunk-000/episode_{number:06d}.parquet"


def video_path(root: Path, number: int) -> Path:
    """An episode's video."""
    return root / f"videos/chunk-000/{CAMERA}/episode_{number:06d}.mp4"


def write_lines(path: Path, lines: list[dict]) -> None:
    """A .jsonl file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_table(path: Path, columns: dict) -> None:
    """A parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def change_columns(path: Path, **changes) -> None:
    """Replace columns (dots in their names written as two underscores), None removes one."""
    table = pq.read_table(path)
    columns = {name: table[name] for name in table.column_names}
    for name, values in changes.items():
        columns[name.replace("__", ".")] = values
    write_table(path, {name: values for name, values in columns.items() if values is not None})


def image_column(images: np.ndarray, suffix: str = "PNG") -> pa.Array:
    """Encoded images as the `datasets` package stores them."""
    rows = []
    for frame, image in enumerate(images):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, suffix)
        rows.append({"bytes": buffer.getvalue(), "path": f"frame_{frame:06d}.png"})
    return pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def write_video(path: Path, images: np.ndarray, fps: int = FPS, movflags: str = "") -> None:
    """h264 with B-frames and one keyframe, as an encoder's defaults give it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options={"movflags": movflags} if movflags else {}) as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "10", "bf": "2"})
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt, stream.thread_count = "yuv420p", 1
        for index, image in enumerate(images):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def read(root, keys=("action",), number=0, **options):
    """One recording's episodes, and the source."""
    source = LeRobotSource(root, options)
    return list(source.episodes(source.recordings()[number], list(keys))), source


def read_one(root, keys=("action",), number=0, **options):
    """The only episode of a recording, and the source."""
    (episode,), source = read(root, keys, number, **options)
    return episode, source


def assert_shows(images, number, first_frame=0):
    """The walking square of `draw` stands where it should in every frame."""
    truth = draw(number, first_frame + len(images))[first_frame:]
    for expected, shown in zip(truth, images, strict=True):
        is_square = expected[..., 0] == 200
        assert shown[is_square][:, 0].mean() > 130 > shown[~is_square][:, 0].mean()


def edit_info(root, **changes):
    """Replace entries of info.json."""
    path = root / "meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_features(root, **changes):
    """Replace or add features (dots written as two underscores)."""
    features = json.loads((root / "meta/info.json").read_text())["features"]
    edit_info(root, features=features | {k.replace("__", "."): v for k, v in changes.items()})


def _columns(number: int, length: int) -> dict:
    frames = np.arange(length)
    action = np.stack([frames / 100, np.full(length, -number / 100)], axis=1)
    state = np.stack([frames, frames * 2, frames * 3, np.full(length, number)], axis=1)
    return {
        "observation.state": list(state.astype(np.float32)),
        "action": list(action.astype(np.float32)),
        "timestamp": (frames / FPS).astype(np.float32),
        "frame_index": frames,
        "episode_index": np.full(length, number),
        "index": frames + 100 * number,
        "task_index": np.full(length, number % 2),
    }


def _info(lengths: dict[int, int], version: str, storage: str) -> dict:
    vectors = {"observation.state": 4, "action": 2}
    scalars = ("timestamp", "frame_index", "episode_index", "index", "task_index")
    features = {CAMERA: {"dtype": storage} | _IMAGE_FEATURE}
    features |= {
        key: {"dtype": "float32", "shape": [size], "names": None} for key, size in vectors.items()
    }
    features |= {
        key: {"dtype": "float32" if key == "timestamp" else "int64", "shape": [1], "names": None}
        for key in scalars
    }
    return {
        "codebase_version": version,
        "robot_type": "toy",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths.values()),
        "total_tasks": len(TASKS),
        "total_videos": len(lengths),
        "total_chunks": 1,
        "chunks_size": 1000,
        "fps": FPS,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/"
        "episode_{episode_index:06d}.mp4",
        "features": features,
    }
