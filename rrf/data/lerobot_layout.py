"""Where things stand in a LeRobot v3.0 dataset, and how its tables become numpy arrays.

    meta/info.json                                  fps, features, counts, path templates
    meta/stats.json                                 statistics per feature
    meta/tasks.parquet                              index = instruction, column task_index
    meta/episodes/chunk-000/file-000.parquet        one row per episode: length, files, index range
    data/chunk-000/file-000.parquet                 one row per frame, many episodes per file
    videos/<key>/chunk-000/file-000.mp4             many episodes per file (storage "video")

Verified against what lerobot 0.6.1 writes and reads. Unit and limits of a vector stand under the
feature's "info", which lerobot ignores.
"""

import contextlib
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rrf.data import language
from rrf.data.depth import depth_map, is_depth
from rrf.data.files import RemotePath, open_dataset_root
from rrf.data.schema import (
    ACTION,
    IMAGE_PREFIX,
    MAP_PREFIX,
    REWARD,
    SCALARS,
    STATE,
    SUCCESS,
    TERMINATED,
    PixelMap,
    Schema,
    Vector,
)

VERSION = "v3.0"
INFO = "meta/info.json"
STATS = "meta/stats.json"
TASKS = "meta/tasks.parquet"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
INDEX_FEATURES = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}


EPISODE_COLUMNS = (
    "episode_index",
    "tasks",
    "length",
    "data/chunk_index",
    "data/file_index",
    "dataset_from_index",
    "dataset_to_index",
)
DATASET_COLUMN = "dataset"  # of the episode table of a merged dataset: where an episode came from
WEIGHT_COLUMN = "weight"  # the same: how often one of its frames is drawn in training
ORIGIN_COLUMN = "origin_episode"  # of an edited dataset: the episode's number before the edit
_Root = typing.TypeVar("_Root", bound=Path | RemotePath)
_INFO_KEYS = ("codebase_version", "fps", "features", "total_episodes", "total_frames")


def features_of(schema: Schema, storage: str, codec: str = "h264") -> dict[str, dict]:
    """The "features" of info.json for episodes of `schema`, in the order of the data files'
    columns.
    """
    height, width = schema.image_size
    image = {
        "dtype": storage,
        "shape": [height, width, 3],
        "names": ["height", "width", "channels"],
    }
    if storage == "video":
        image["info"] = {
            "video.height": height,
            "video.width": width,
            "video.codec": codec,
            "video.pix_fmt": "yuv420p",
            "video.fps": schema.fps,
            "video.channels": 3,
            "has_audio": False,
            "is_depth_map": False,
        }
    features = {f"{IMAGE_PREFIX}{camera}": dict(image) for camera in schema.cameras}
    features[STATE] = _vector_feature(schema.state)
    features[ACTION] = _vector_feature(schema.action)
    for key in schema.scalars:
        features[key] = _scalar_feature(SCALARS[key])
    for one in schema.maps:
        features[f"{MAP_PREFIX}{one.name}"] = {
            "dtype": one.dtype,
            "shape": list(one.size),
            "names": ["height", "width"],
            "info": {"unit": one.unit},
        }
    features |= {name: _scalar_feature(dtype) for name, dtype in INDEX_FEATURES.items()}
    if schema.has_language:
        features |= {key: _scalar_feature(language.DTYPE) for key in language.COLUMNS}
    return features


def schema_of(info: dict) -> Schema:
    """The schema of a dataset written by us or by lerobot.

    Raises ValueError if it lacks state or action, cameras differ in size, or two maps share a name.
    """
    features = info["features"]
    cameras = [
        key for key, one in features.items() if key.startswith(IMAGE_PREFIX) and not is_depth(one)
    ]
    for key in (STATE, ACTION):
        if key not in features:
            raise ValueError(f"the dataset has no feature '{key}'; it has: {', '.join(features)}")
    sizes = {_image_size(features[key]) for key in cameras}
    if len(sizes) > 1:
        raise ValueError(f"cameras of different sizes are not supported: {sorted(sizes)}")
    return Schema(
        fps=info["fps"],
        image_size=sizes.pop() if sizes else (0, 0),
        cameras=tuple(key.removeprefix(IMAGE_PREFIX) for key in cameras),
        state=_vector_of(features[STATE]),
        action=_vector_of(features[ACTION]),
        has_reward=REWARD in features,
        has_success=SUCCESS in features,
        has_terminated=TERMINATED in features,
        maps=tuple(maps_of(info).values()),
        has_language=has_language(info),
    )


def has_language(info: dict) -> bool:
    """Whether a dataset has a column of language annotations."""
    return any(key in info["features"] for key in language.COLUMNS)


def maps_of(info: dict) -> dict[str, PixelMap]:
    """The images of a dataset that are not RGB, by the features that hold them: our own, and depth
    maps of lerobot.

    Raises ValueError if two have the same name.
    """
    maps = {}
    for key, feature in info["features"].items():
        if is_depth(feature):
            maps[key] = depth_map(key, feature)
        elif key.startswith(MAP_PREFIX) and len(feature["shape"]) == 2:
            height, width = feature["shape"]
            unit = (feature.get("info") or {}).get("unit", "")
            maps[key] = PixelMap(
                key.removeprefix(MAP_PREFIX), feature["dtype"], (height, width), unit
            )
    names = [one.name for one in maps.values()]
    for key, one in maps.items():
        if names.count(one.name) > 1:
            raise ValueError(f"{key} and another feature are both maps called '{one.name}'")
    return maps


def read_info(root: str | Path | RemotePath) -> dict:
    """`meta/info.json`.

    Raises:
        ValueError: If there is no dataset (with the commands that bring it), it is damaged, or of
            another version.
    """
    path = open_dataset_root(root) / INFO
    if not path.is_file():
        raise ValueError(f"no dataset at {root}; run: dvc repro --pull")
    try:
        info = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); run: dvc repro") from error
    lacking = [key for key in _INFO_KEYS if not isinstance(info, dict) or key not in info]
    if lacking:
        raise ValueError(f"{path} lacks {', '.join(lacking)}; run: dvc repro")
    version = info["codebase_version"]
    if version != VERSION:
        raise ValueError(f"{path}: codebase_version is {version}, only {VERSION} is read")
    return info


def data_files(root: str | Path) -> list[Path]:
    """All data files in order. Raises ValueError if there are none."""
    return _files(Path(root), "data")


def read_table(path: Path | RemotePath, columns: Sequence[str] | None = None) -> pa.Table:
    """One parquet file, of a remote one only what the columns need.

    Raises ValueError naming the file if it is truncated or lacks a column.
    """
    with open_parquet(path, columns or ()) as file, readable(path):
        return file.read(list(columns) if columns is not None else None)


@contextlib.contextmanager
def open_parquet(path: Path | RemotePath, columns: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """A parquet file that has `columns`, open within the block.

    Raises ValueError naming the file if it is truncated or lacks a column.
    """
    with contextlib.ExitStack() as stack:
        with readable(path):
            if isinstance(path, Path):
                file = stack.enter_context(pq.ParquetFile(path))
            else:  # neighbouring columns by one request, which asks for no more than they need
                remote = stack.enter_context(path.open("rb", num_blocks=0))
                file = stack.enter_context(pq.ParquetFile(remote, pre_buffer=True))
        known = file.schema_arrow.names
        missing = [column for column in columns if column not in known]
        if missing:
            raise ValueError(f"{path} has no column '{missing[0]}'; it has: {', '.join(known)}")
        yield file


@contextlib.contextmanager
def readable(path: Path | RemotePath) -> Iterator[None]:
    """Say of errors within the block that the parquet file at `path` cannot be read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        hint = "run: dvc repro" if isinstance(path, Path) else "upload it again, or try later"
        what = " ".join(str(error).split())  # on one line
        raise ValueError(f"{path} is truncated or not parquet ({what}); {hint}") from error


def read_episodes(root: str | Path | RemotePath) -> pd.DataFrame:
    """The episode table without its statistics, one row per episode.

    Raises:
        ValueError: If it is missing, damaged or lacks a column.
    """
    tables, folder = [], open_dataset_root(root)
    for path in _files(folder, "meta/episodes"):
        with open_parquet(path) as file, readable(path):
            names = file.schema_arrow.names
            tables.append(file.read([name for name in names if not name.startswith("stats/")]))
    with readable(folder / "meta/episodes"):
        episodes = pa.concat_tables(tables).to_pandas()
    lacking = [column for column in EPISODE_COLUMNS if column not in episodes]
    if lacking:
        raise ValueError(
            f"the episode table of {root} has no column '{lacking[0]}'; run: dvc repro"
        )
    return episodes


def read_tasks(root: str | Path | RemotePath) -> list[str]:
    """The instructions, in the order of their task_index.

    Raises ValueError if the table is missing or damaged.
    """
    path = open_dataset_root(root) / TASKS
    if not path.is_file():
        raise ValueError(f"{path} is missing; run: dvc repro")
    frame = read_table(path).to_pandas()
    if "task_index" not in frame:
        raise ValueError(f"{path} has no column 'task_index'; run: dvc repro")
    return [str(task) for task in frame.sort_values("task_index").index]


def read_columns(root: str | Path | RemotePath, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of all data files as arrays: [N, D] for vectors, [N] for scalars.

    Raises:
        ValueError: Naming file or column and row for what cannot be read.
    """
    folder = open_dataset_root(root)
    tables = [read_table(path, columns) for path in _files(folder, "data")]
    with readable(folder / "data"):
        table = pa.concat_tables(tables)
    arrays = {}
    for name in columns:
        try:
            is_vector = is_list(table.schema.field(name).type)
            arrays[name] = as_matrix(table[name]) if is_vector else table[name].to_numpy()
        except ValueError as error:
            raise ValueError(f"{root}: column {name}: {error}") from error
    return arrays


def read_selected(
    root: str | Path | RemotePath,
    key: str,
    rows_n: np.ndarray,
    of: Callable[[pa.ChunkedArray], np.ndarray],
) -> np.ndarray:
    """Some rows of a column of all data files.

    Args:
        root: The dataset's directory.
        key: The column.
        rows_n: The rows, ascending.
        of: Makes an array of what is wanted of the column of one file.

    Raises:
        ValueError: Naming the file that cannot be read or lacks the column.
    """
    parts, first = [], 0
    for path in _files(open_dataset_root(root), "data"):
        with open_parquet(path) as file:
            num_rows = file.metadata.num_rows
        inside = rows_n[(rows_n >= first) & (rows_n < first + num_rows)] - first
        if len(inside):
            parts.append(of(read_table(path, [key])[key].take(pa.array(inside))))
        first += num_rows
    return np.concatenate(parts)


def read_language(
    root: str | Path | RemotePath, episodes: Sequence[tuple[int, int]]
) -> list[dict[str, pa.ChunkedArray]]:
    """The columns of language annotations that the data files have, of each episode.

    Args:
        root: The dataset's directory.
        episodes: First row and end of each, ascending.

    Raises:
        ValueError: Naming the file that cannot be read.
    """
    found, first = [], 0
    for path in _files(open_dataset_root(root), "data"):
        with open_parquet(path) as file:
            num_rows, names = file.metadata.num_rows, file.schema_arrow.names
        inside = [(a - first, b - a) for a, b in episodes if first <= a < first + num_rows]
        if inside:
            table = read_table(path, [key for key in language.COLUMNS if key in names])
            names = table.column_names
            found += [{key: table[key].slice(*place) for key in names} for place in inside]
        first += num_rows
    return found


def as_matrix(column: pa.ChunkedArray) -> np.ndarray:
    """A column as [N, D] (D = 1 for scalars).

    Raises ValueError naming the first row of another length.
    """
    if not is_list(column.type):
        return column.to_numpy()[:, None]
    array = column.combine_chunks()
    if array.null_count:
        raise ValueError(f"row {int(np.argmax(np.asarray(array.is_null())))} is missing")
    lengths = np.asarray(array.value_lengths())
    if len(lengths) and not (lengths == lengths[0]).all():
        row = int(np.argmax(lengths != lengths[0]))
        raise ValueError(f"row {row} has {lengths[row]} values, the rows before have {lengths[0]}")
    dimension = int(lengths[0]) if len(lengths) else 0
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), dimension)


def is_list(arrow_type: pa.DataType) -> bool:
    """Whether a column holds vectors."""
    return pa.types.is_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type)


def next_file(chunk_index: int, file_index: int, files_per_chunk: int) -> tuple[int, int]:
    """The (chunk, file) after this one."""
    return (
        (chunk_index + 1, 0) if file_index + 1 >= files_per_chunk else (chunk_index, file_index + 1)
    )


def _files(root: _Root, folder: str) -> list[_Root]:
    paths = sorted((root / folder).glob("*/*.parquet"), key=chunk_and_file)
    if not paths:
        raise ValueError(f"the dataset at {root} has no files in {folder}/; run: dvc repro --pull")
    return typing.cast(list[_Root], paths)


def chunk_and_file(path: Path | RemotePath) -> tuple[int, int]:
    """The numbers in a path that ends in chunk-000/file-000.parquet."""
    return int(path.parent.name.rpartition("-")[2]), int(path.stem.rpartition("-")[2])


def _scalar_feature(dtype: str) -> dict:
    return {"dtype": dtype, "shape": [1], "names": None}


def _vector_feature(vector: Vector) -> dict:
    info: dict = {"unit": vector.unit}
    if vector.low is not None:
        info["low"] = list(vector.low)
    if vector.high is not None:
        info["high"] = list(vector.high)
    return {
        "dtype": "float32",
        "shape": [len(vector.names)],
        "names": list(vector.names),
        "info": info,
    }


def _vector_of(feature: dict) -> Vector:
    (dimension,) = feature["shape"]
    names = feature.get("names")
    if isinstance(names, dict):  # lerobot's {"motors": [...]}
        names = [name for group in names.values() for name in _as_list(group)]
    if not names or len(names) != dimension:
        names = [str(index) for index in range(dimension)]
    info = feature.get("info") or {}
    low, high = info.get("low"), info.get("high")
    return Vector(
        tuple(names),
        info.get("unit", ""),
        tuple(low) if low is not None else None,
        tuple(high) if high is not None else None,
    )


def _as_list(names: Iterable[str] | str) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _image_size(feature: dict) -> tuple[int, int]:
    shape = list(feature["shape"])
    if (feature.get("names") or ["height"])[0] in ("channel", "channels"):
        shape = [*shape[1:], shape[0]]
    return shape[0], shape[1]
