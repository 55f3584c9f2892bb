"""The only writer of datasets: episodes in, a LeRobot v3.0 directory out, whole or not at all.

The same episodes give the same bytes. Differences to lerobot 0.4.4's own writer: no temporary PNG
files, one row group per `ROW_GROUP_ROWS` frames instead of one per episode, exact statistics
(images too) instead of sampled ones, and a file is full when its uncompressed columns reach the
limit, which bounds its size from above. An episode is never split over two files; one larger than
the limit has a file to itself.

Legend: T frames of an episode.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rrf import atomic
from rrf.data import lerobot_layout as layout
from rrf.data.images import encode_png
from rrf.data.schema import (
    ACTION,
    IMAGE_PREFIX,
    REWARD,
    STATE,
    SUCCESS,
    Episode,
    Schema,
    check_episode,
)
from rrf.data.stats import ImageStats, VectorStats, describe, plain
from rrf.data.video import VideoWriter

ROW_GROUP_ROWS = 1000
ROW_GROUP_BYTES = 32 << 20
_MEGABYTE = 1 << 20
_IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@dataclasses.dataclass(frozen=True)
class FileLimits:
    """When a new file begins."""

    data_mb: float = 100
    video_mb: float = 200
    files_per_chunk: int = 1000


def write_dataset(
    root: str | Path,
    schema: Schema,
    episodes: Iterable[Episode],
    storage: str = "image",
    robot_type: str = "unknown",
    provenance: Mapping[str, str] | None = None,
    limits: FileLimits = FileLimits(),
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> int:
    """Write a dataset, replacing what stood at `root` once it is complete.

    Args:
        root: The dataset's directory.
        schema: What every episode must hold.
        episodes: In order; consumed one at a time.
        storage: "image" (lossless PNG in parquet) or "video" (h264).
        robot_type: Goes into info.json.
        provenance: Where the data come from, licence; goes into info.json.
        limits: When a new file begins.
        on_episode: Called after each episode is written.

    Returns:
        The number of frames written.

    Raises:
        ValueError: Naming episode, key and frame for an episode `schema` does not allow, or if
            there are no episodes. What stood at `root` is unchanged.
    """
    if storage not in ("image", "video"):
        raise ValueError(f"storage is '{storage}', must be 'image' or 'video'")
    with atomic.directory(root) as directory:
        writer = _Writer(directory, schema, storage, limits)
        try:
            for episode in episodes:
                writer.add(episode)
                on_episode(episode)
        finally:
            writer.close()
        if writer.num_episodes == 0:
            raise ValueError(f"no episodes to write to {root}")
        writer.write_meta(robot_type, provenance or {})
    return writer.num_frames


class _Writer:
    """Open files and running statistics of a dataset being written."""

    def __init__(self, root: Path, schema: Schema, storage: str, limits: FileLimits):
        self.num_frames = self.num_episodes = 0
        self._root, self._schema, self._storage, self._limits = root, schema, storage, limits
        self._features = layout.features_of(schema, storage)
        self._arrow_schema = pa.schema(
            [
                (key, _arrow_type(feature))
                for key, feature in self._features.items()
                if feature["dtype"] != "video"
            ]
        )
        self._data = _DataFiles(root, self._arrow_schema, limits)
        self._video_keys = [key for key, f in self._features.items() if f["dtype"] == "video"]
        self._videos = {key: _VideoFiles(root, key, schema, limits) for key in self._video_keys}
        self._tasks: dict[str, int] = {}
        self._rows: list[dict] = []
        self._vector_stats = VectorStats()
        self._image_stats = {f"{IMAGE_PREFIX}{camera}": ImageStats() for camera in schema.cameras}

    def add(self, episode: Episode) -> None:
        check_episode(episode, self._schema)
        length = len(episode)
        vectors = self._vectors(episode)
        columns = [
            _image_column(episode.images[key.removeprefix(IMAGE_PREFIX)])
            if key.startswith(IMAGE_PREFIX)
            else _column(vectors[key], self._arrow_schema.field(key).type)
            for key in self._arrow_schema.names
        ]
        chunk_index, file_index = self._data.add(pa.table(columns, schema=self._arrow_schema))
        row = {
            "episode_index": self.num_episodes,
            "tasks": [episode.instruction],
            "length": length,
            "data/chunk_index": chunk_index,
            "data/file_index": file_index,
            "dataset_from_index": self.num_frames,
            "dataset_to_index": self.num_frames + length,
        }
        for key, files in self._videos.items():
            row |= files.add(episode.images[key.removeprefix(IMAGE_PREFIX)])
        row |= self._episode_stats(episode, vectors)
        self._rows.append(row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
        self.num_frames += length
        self.num_episodes += 1

    def close(self) -> None:
        """Finish all files."""
        self._data.close()
        for files in self._videos.values():
            files.close()

    def write_meta(self, robot_type: str, provenance: Mapping[str, str]) -> None:
        """Write everything under meta/."""
        self._write_episode_table()
        tasks = pd.DataFrame({"task_index": list(self._tasks.values())}, index=list(self._tasks))
        tasks.to_parquet(self._root / layout.TASKS)
        stats = self._split(self._vector_stats.result())
        images = {key: plain(stream.result()) for key, stream in self._image_stats.items()}
        _write_json(self._root / layout.STATS, images | stats)
        info = {
            "codebase_version": layout.VERSION,
            "robot_type": robot_type,
            "total_episodes": self.num_episodes,
            "total_frames": self.num_frames,
            "total_tasks": len(self._tasks),
            "chunks_size": self._limits.files_per_chunk,
            "data_files_size_in_mb": self._limits.data_mb,
            "video_files_size_in_mb": self._limits.video_mb,
            "fps": self._schema.fps,
            "splits": {"train": f"0:{self.num_episodes}"},
            "data_path": layout.DATA_PATH,
            "video_path": layout.VIDEO_PATH if self._video_keys else None,
            "features": self._features,
            "provenance": dict(provenance),
        }
        _write_json(self._root / layout.INFO, info)

    def _write_episode_table(self) -> None:
        rows, chunk_index, file_index = self._rows, 0, 0
        per_file = max(
            1, int(self._limits.data_mb * _MEGABYTE / pa.Table.from_pylist(rows[:1]).nbytes)
        )
        for start in range(0, len(rows), per_file):
            part = [
                row
                | {"meta/episodes/chunk_index": chunk_index, "meta/episodes/file_index": file_index}
                for row in rows[start : start + per_file]
            ]
            path = self._root / layout.EPISODES_PATH.format(
                chunk_index=chunk_index, file_index=file_index
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(part), path, compression="snappy")
            chunk_index, file_index = layout.next_file(
                chunk_index, file_index, self._limits.files_per_chunk
            )

    def _vectors(self, episode: Episode) -> dict[str, np.ndarray]:
        length, task = len(episode), self._tasks.setdefault(episode.instruction, len(self._tasks))
        vectors = {STATE: episode.state, ACTION: episode.action}
        if self._schema.has_reward and episode.reward is not None:
            vectors[REWARD] = episode.reward
        if self._schema.has_success and episode.success is not None:
            vectors[SUCCESS] = episode.success
        frames = np.arange(length)
        return vectors | {
            "timestamp": (frames / self._schema.fps).astype(np.float32),
            "frame_index": frames,
            "episode_index": np.full(length, self.num_episodes),
            "index": self.num_frames + frames,
            "task_index": np.full(length, task),
        }

    def _episode_stats(self, episode: Episode, vectors: dict[str, np.ndarray]) -> dict:
        """Columns stats/<feature>/<statistic> of one episode; adds it to the dataset's statistics
        too.
        """
        everything = np.concatenate(
            [values.reshape(len(episode), -1).astype(np.float64) for values in vectors.values()],
            axis=1,
        )
        self._vector_stats.update(everything)
        stats = self._split(describe(everything))
        for camera, images in episode.images.items():
            stream = ImageStats()
            stream.update(images)
            self._image_stats[f"{IMAGE_PREFIX}{camera}"].merge(stream)
            stats[f"{IMAGE_PREFIX}{camera}"] = plain(stream.result())
        return {
            f"stats/{key}/{name}": value
            for key in self._features
            for name, value in stats[key].items()
        }

    def _split(self, stats: Mapping[str, np.ndarray]) -> dict[str, dict[str, list]]:
        """Statistics of all vectors side by side, taken apart by feature."""
        parts, start = {}, 0
        for key, feature in self._features.items():
            if feature["dtype"] in ("image", "video"):
                continue
            stop = start + feature["shape"][0]
            parts[key] = plain({n: v if n == "count" else v[start:stop] for n, v in stats.items()})
            start = stop
        return parts


class _DataFiles:
    """The rolling parquet files of frames."""

    def __init__(self, root: Path, schema: pa.Schema, limits: FileLimits):
        self._root, self._schema, self._limits = root, schema, limits
        self._place = (0, 0)
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._num_bytes = 0

    def add(self, episode: pa.Table) -> tuple[int, int]:
        """Append one episode; returns the (chunk, file) it went to."""
        if self._num_bytes and self._num_bytes + episode.nbytes > self._limits.data_mb * _MEGABYTE:
            self.close()
            self._place = layout.next_file(*self._place, self._limits.files_per_chunk)
        self._num_bytes += episode.nbytes
        self._pending.append(episode)
        is_full = sum(table.num_rows for table in self._pending) >= ROW_GROUP_ROWS
        if is_full or sum(table.nbytes for table in self._pending) >= ROW_GROUP_BYTES:
            self._flush()
        return self._place

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()
        self._writer, self._num_bytes = None, 0

    def _flush(self) -> None:
        if not self._pending:
            return
        if self._writer is None:
            chunk_index, file_index = self._place
            path = self._root / layout.DATA_PATH.format(
                chunk_index=chunk_index, file_index=file_index
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, self._schema, compression="snappy")
        self._writer.write_table(pa.concat_tables(self._pending))
        self._pending = []


class _VideoFiles:
    """The rolling video files of one camera."""

    def __init__(self, root: Path, key: str, schema: Schema, limits: FileLimits):
        self._root, self._key, self._schema, self._limits = root, key, schema, limits
        self._place = (0, 0)
        self._writer: VideoWriter | None = None

    def add(self, images: np.ndarray) -> dict:
        """Append one episode; returns its columns of the episode table."""
        if self._writer is not None and self._expected_mb(len(images)) > self._limits.video_mb:
            self.close()
            self._place = layout.next_file(*self._place, self._limits.files_per_chunk)
        chunk_index, file_index = self._place
        if self._writer is None:
            path = self._root / layout.VIDEO_PATH.format(
                video_key=self._key, chunk_index=chunk_index, file_index=file_index
            )
            self._writer = VideoWriter(path, self._schema.fps, *self._schema.image_size)
        start = self._writer.num_frames
        self._writer.add(images)
        return {
            f"videos/{self._key}/chunk_index": chunk_index,
            f"videos/{self._key}/file_index": file_index,
            f"videos/{self._key}/from_timestamp": start / self._schema.fps,
            f"videos/{self._key}/to_timestamp": self._writer.num_frames / self._schema.fps,
        }

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _expected_mb(self, num_new_frames: int) -> float:
        """The file's size if the new frames are as large as its frames so far."""
        assert self._writer is not None
        per_frame = self._writer.num_bytes / self._writer.num_frames
        return (self._writer.num_bytes + per_frame * num_new_frames) / _MEGABYTE


def _arrow_type(feature: dict) -> pa.DataType:
    if feature["dtype"] == "image":
        return _IMAGE_TYPE
    scalar = {"float32": pa.float32(), "int64": pa.int64(), "bool": pa.bool_()}[feature["dtype"]]
    (dimension,) = feature["shape"]
    return (
        pa.list_(scalar, dimension) if dimension > 1 else scalar
    )  # lerobot reads shape [1] as a scalar


def _column(values: np.ndarray, arrow_type: pa.DataType) -> pa.Array:
    flat = pa.array(np.ascontiguousarray(values).ravel())
    if not layout.is_list(arrow_type):
        return flat
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _image_column(images: np.ndarray) -> pa.Array:
    names = [f"frame-{index:06d}.png" for index in range(len(images))]
    blobs = pa.array(encode_png(images), pa.binary())
    return pa.StructArray.from_arrays(
        [blobs, pa.array(names, pa.string())], fields=list(_IMAGE_TYPE)
    )


def _write_json(path: Path, data) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")
