"""The only writer of datasets: episodes in, a LeRobot v3.0 directory out, whole or not at all.

The same episodes give the same bytes. Differences to lerobot 0.6.1's own writer: no temporary PNG
files, one row group per `ROW_GROUP_ROWS` frames instead of one per episode, exact statistics
(images too) instead of sampled ones, and a file is full when its uncompressed columns reach the
limit, which bounds its size from above. An episode is never split over two files; one larger than
the limit has a file to itself. Memory does not grow with the number of episodes.

Legend: T frames of an episode.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from rrf import atomic
from rrf.data import language
from rrf.data.conversion.encoded import EncodedEpisode, encode_episode
from rrf.data.conversion.rolling_files import DataFiles, EpisodeTable, FileLimits, VideoFiles
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.maps import MapStats, as_column, column_type
from rrf.data.dataset.stats import ImageStats, VectorStats, describe, plain
from rrf.data.encoding import Encoding
from rrf.data.schema import IMAGE_PREFIX, MAP_PREFIX, EncodedImages, Episode, Schema

_IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write_dataset(
    root: str | Path,
    schema: Schema,
    episodes: Iterable[Episode | EncodedEpisode],
    storage: str | Encoding = "image",
    robot_type: str = "unknown",
    provenance: Mapping[str, str] | None = None,
    limits: FileLimits = FileLimits(),
    on_episode: Callable[[Episode | EncodedEpisode], None] = lambda episode: None,
    more_info: Mapping | None = None,
    on_complete: Callable[[Path], None] = lambda root: None,
) -> int:
    """Write a dataset, replacing what stood at `root` once it is complete.

    Args:
        root: The dataset's directory.
        schema: What every episode must hold.
        episodes: In order; consumed one at a time.
        storage: "image" (in parquet), "video" (h264), or more exactly how images are stored.
        robot_type: Goes into info.json.
        provenance: Where the data come from, licence; goes into info.json.
        limits: When a new file begins.
        on_episode: Called after each episode is written.
        more_info: More entries of info.json.
        on_complete: Called with the directory that holds the complete dataset before it is put in
            place, to add to it.

    Returns:
        The number of frames written.

    Raises:
        ValueError: Naming episode, key and frame for an episode `schema` does not allow, or if
            there are no episodes. What stood at `root` is unchanged.
    """
    encoding = storage if isinstance(storage, Encoding) else Encoding(storage)
    with atomic.directory(root) as directory:
        writer = _Writer(directory, schema, encoding, limits)
        try:
            for episode in episodes:
                if isinstance(episode, Episode):
                    writer.add(encode_episode(episode, schema, encoding))
                else:
                    writer.add(episode)
                on_episode(episode)
        finally:
            writer.close()
        if writer.num_episodes == 0:
            raise ValueError(f"no episodes to write to {root}")
        writer.write_meta(robot_type, provenance or {}, more_info or {})
        on_complete(directory)
    return writer.num_frames


class _Writer:
    """Open files and running statistics of a dataset being written."""

    def __init__(self, root: Path, schema: Schema, encoding: Encoding, limits: FileLimits):
        self.num_frames = self.num_episodes = 0
        self._root, self._schema, self._limits = root, schema, limits
        self._features = layout.features_of(schema, encoding.storage, encoding.codec)
        map_types = {
            f"{MAP_PREFIX}{map_spec.name}": column_type(map_spec) for map_spec in schema.maps
        }
        types = map_types | language.TYPES
        self._arrow_schema = pa.schema(
            [
                (key, types.get(key) or _arrow_type(feature))
                for key, feature in self._features.items()
                if feature["dtype"] != "video"
            ]
        )
        self._data = DataFiles(root, self._arrow_schema, limits)
        self._video_keys = [key for key, f in self._features.items() if f["dtype"] == "video"]
        self._videos = {key: VideoFiles(root, key, schema, limits) for key in self._video_keys}
        self._tasks: dict[str, int] = {}
        self._episodes = EpisodeTable(root, limits)
        self._vector_stats = VectorStats(folder=root)
        self._image_stats = {f"{IMAGE_PREFIX}{camera}": ImageStats() for camera in schema.cameras}
        self._map_stats = {key: MapStats(root) for key in map_types}

    def add(self, episode: EncodedEpisode) -> None:
        length = len(episode)
        vectors = self._vectors(episode)
        columns = []
        said = episode.language.columns(length) if episode.language is not None else {}
        for key in self._arrow_schema.names:
            if key.startswith(IMAGE_PREFIX):
                columns.append(_image_column(episode.images[key]))
            elif key in self._map_stats:
                columns.append(as_column(episode.maps[key]))
            elif key in said:
                columns.append(said[key])
            else:
                columns.append(_column(vectors[key], self._arrow_schema.field(key).type))
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
            row |= files.add(episode.videos[key])
        self._episodes.add(row | self._episode_stats(episode, vectors) | dict(episode.columns))
        self.num_frames += length
        self.num_episodes += 1

    def close(self) -> None:
        """Finish all files."""
        self._data.close()
        self._episodes.close()
        for files in self._videos.values():
            files.close()

    def write_meta(
        self, robot_type: str, provenance: Mapping[str, str], more_info: Mapping
    ) -> None:
        """Write everything under meta/ but the episode table."""
        numbers = list(self._tasks.values())
        tasks = pd.DataFrame({"task_index": numbers}, index=pd.Index(list(self._tasks)))
        tasks.to_parquet(self._root / layout.TASKS)
        stats = self._split(self._vector_stats.result())
        streams = self._image_stats | self._map_stats
        stats |= {key: plain(stream.result()) for key, stream in streams.items()}
        _write_json(self._root / layout.STATS, {key: stats[key] for key in self._described()})
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
        _write_json(self._root / layout.INFO, info | dict(more_info))

    def _vectors(self, episode: EncodedEpisode) -> dict[str, np.ndarray]:
        """All vectors of an episode, in the order of the features."""
        length, task = len(episode), self._tasks.setdefault(episode.instruction, len(self._tasks))
        frames = np.arange(length)
        return episode.vectors | {
            "timestamp": (frames / self._schema.fps).astype(np.float32),
            "frame_index": frames,
            "episode_index": np.full(length, self.num_episodes),
            "index": self.num_frames + frames,
            "task_index": np.full(length, task),
        }

    def _episode_stats(self, episode: EncodedEpisode, vectors: dict[str, np.ndarray]) -> dict:
        """Columns stats/<feature>/<statistic> of one episode; adds it to the dataset's statistics
        too.
        """
        everything = np.concatenate(
            [values.reshape(len(episode), -1).astype(np.float64) for values in vectors.values()],
            axis=1,
        )
        self._vector_stats.update(everything)
        stats = self._split(describe(everything))
        for key, stream in episode.image_stats.items():
            self._image_stats[key].merge(stream)
            stats[key] = plain(stream.result())
        for key, values in episode.maps.items():
            self._map_stats[key].update(values)
            map_stats = MapStats(self._root)
            map_stats.update(values)
            stats[key] = plain(map_stats.result())
        return {
            f"stats/{key}/{name}": value
            for key in self._described()
            for name, value in stats[key].items()
        }

    def _described(self) -> list[str]:
        """The features that have statistics."""
        return [key for key in self._features if key not in language.COLUMNS]

    def _split(self, stats: Mapping[str, np.ndarray]) -> dict[str, dict[str, list]]:
        """Statistics of all vectors side by side, taken apart by feature."""
        parts, start = {}, 0
        for key, feature in self._features.items():
            if feature["dtype"] in ("image", "video", language.DTYPE) or key in self._map_stats:
                continue
            stop = start + feature["shape"][0]
            parts[key] = plain({n: v if n == "count" else v[start:stop] for n, v in stats.items()})
            start = stop
        return parts


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
    if not parquet.is_list(arrow_type):
        return flat
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _image_column(images: EncodedImages) -> pa.Array:
    names = [f"frame-{index:06d}.{images.suffix}" for index in range(len(images))]
    blobs = pa.array(images.blobs, pa.binary())
    return pa.StructArray.from_arrays(
        [blobs, pa.array(names, pa.string())], fields=list(_IMAGE_TYPE)
    )


def _write_json(path: Path, data) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")
