"""Where things stand in a LeRobot v3.0 dataset, and what its info.json says of them.

    meta/info.json                                  fps, features, counts, path templates
    meta/stats.json                                 statistics per feature
    meta/tasks.parquet                              index = instruction, column task_index
    meta/episodes/chunk-000/file-000.parquet        one row per episode: length, files, index range
    data/chunk-000/file-000.parquet                 one row per frame, many episodes per file
    videos/<key>/chunk-000/file-000.mp4             many episodes per file (storage "video")

Verified against what lerobot 0.6.1 writes and reads. Unit and limits of a vector stand under the
feature's "info", which lerobot ignores.
"""

import re
import string
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from rrf import atomic
from rrf.data import language
from rrf.data.files import RemotePath, open_dataset_root
from rrf.data.remedies import again
from rrf.data.schema import (
    ACTION,
    EXTRA_PREFIX,
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
NORM_STATS = "norm_stats.json"
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


DATASET_COLUMN = "dataset"  # of the episode table of a merged dataset: where an episode came from
WEIGHT_COLUMN = "weight"  # the same: how often one of its frames is drawn in training
LOG_PREFIX = "log_"  # of columns of logged episodes, which merging and editing keep
ORIGIN_COLUMN = "origin_episode"  # of an edited dataset: the episode's number before the edit
_Root = typing.TypeVar("_Root", bound=Path | RemotePath)
_FORMAT_SPEC = re.compile(r"(0?\d{1,2})?d?")
_DEPTH_DTYPES = {"mm": "uint16", "m": "float32"}  # of TIFF files, by unit
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
    for name, vector in schema.extras:
        features[f"{EXTRA_PREFIX}{name}"] = _vector_feature(vector)
    for map_spec in schema.maps:
        features[f"{MAP_PREFIX}{map_spec.name}"] = {
            "dtype": map_spec.dtype,
            "shape": list(map_spec.size),
            "names": ["height", "width"],
            "info": {"unit": map_spec.unit},
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
        key
        for key, feature in features.items()
        if key.startswith(IMAGE_PREFIX) and not is_depth(feature)
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
        extras=tuple(
            (key.removeprefix(EXTRA_PREFIX), _vector_of(feature))
            for key, feature in features.items()
            if key.startswith(EXTRA_PREFIX) and len(feature["shape"]) == 1
        ),
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
    names = [description.name for description in maps.values()]
    for key, description in maps.items():
        if names.count(description.name) > 1:
            raise ValueError(f"{key} and another feature are both maps called '{description.name}'")
    return maps


def read_info(root: str | Path | RemotePath) -> dict:
    """`meta/info.json`.

    Raises:
        ValueError: If there is no dataset (with the commands that bring it), it is damaged, or of
            another version.
    """
    path = open_dataset_root(root) / INFO
    if not path.is_file():
        raise ValueError(f"no dataset at {root}; {again(open_dataset_root(root))}")
    try:
        info = atomic.parse_json(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {again(path)}") from error
    lacking = [key for key in _INFO_KEYS if not isinstance(info, dict) or key not in info]
    if lacking:
        raise ValueError(f"{path} lacks {', '.join(lacking)}; {again(path)}")
    version = info["codebase_version"]
    if version != VERSION:
        raise ValueError(f"{path}: codebase_version is {version}, only {VERSION} is read")
    return info


def is_depth(feature: Mapping) -> bool:
    """Whether a feature of info.json is a depth map."""
    info, older = feature.get("info") or {}, feature.get("video_info") or {}
    marks = (info.get("is_depth_map"), info.get("video.is_depth_map"))
    return any(marks) or bool(older.get("video.is_depth_map"))


def depth_map(key: str, feature: Mapping) -> PixelMap:
    """What reading the feature gives."""
    shape = list(feature["shape"])
    if len(shape) == 3:  # one channel, last or first
        shape = shape[1:] if shape[0] == 1 and shape[2] != 1 else shape[:2]
    unit = "m"
    if feature["dtype"] != "video":
        unit = (feature.get("info") or {}).get("depth_unit") or ""
    dtype = _DEPTH_DTYPES.get(unit, "float32")
    return PixelMap(key.removeprefix(IMAGE_PREFIX), dtype, (shape[0], shape[1]), unit)


def read_norm_stats(root: str | Path | RemotePath) -> dict[str, dict[str, list]]:
    """`norm_stats.json` of a published dataset.

    Raises ValueError with the command that makes it.
    """
    path = open_dataset_root(root) / NORM_STATS
    if not path.is_file():
        raise ValueError(
            f"{path} is missing, so the dataset was never published; "
            f"{again(path, 'publish it by its name in configs/datasets: rrf data stats NAME')}"
        )
    return atomic.parse_json(path.read_bytes(), str(path))


def path_inside(root: _Root, relative: str, where: str) -> _Root:
    """`root / relative`. Raises ValueError if `relative` leads out of `root`."""
    parts = PurePosixPath(relative)
    if parts.is_absolute() or ".." in parts.parts or "\0" in relative:
        raise ValueError(f"{where}: the path {relative!r} leads out of {root}")
    return typing.cast(_Root, root / parts)


def fill(template: str, where: str, values: Mapping[str, int | str]) -> str:
    """A path template with its fields filled in.

    Only plain fields such as {episode_index:06d} are allowed, because `str.format` would also
    follow attributes and pad to any width.
    """
    filled = ""
    try:
        for literal, field, spec, conversion in string.Formatter().parse(template):
            filled += literal
            if field is None:
                continue
            if field not in values or conversion or not _FORMAT_SPEC.fullmatch(spec or ""):
                raise ValueError(f"the field {{{field}}} is not one of {', '.join(values)}")
            filled += format(values[field], spec or "")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {template!r} is not a path template ({error})") from error
    return filled


def next_file(chunk_index: int, file_index: int, files_per_chunk: int) -> tuple[int, int]:
    """The (chunk, file) after this one."""
    return (
        (chunk_index + 1, 0) if file_index + 1 >= files_per_chunk else (chunk_index, file_index + 1)
    )


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
