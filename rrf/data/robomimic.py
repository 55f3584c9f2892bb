"""robomimic HDF5: our raw recording format, one file per task.

    /data            attrs: total, env_args (JSON), instruction, fps
    /data/demo_<i>   attrs: num_samples, and what the recorder adds (seed, index, success)
        actions f32[T, A]   rewards f32[T]   dones u8[T]   success u8[T]
        states f64[T, S]    obs/<key> [T, ...]

Layout: https://robomimic.github.io/docs/datasets/overview.html; `instruction`, `fps` and `success`
are our additions. Images are gzip-compressed in chunks of all frames x 16 rows: successive frames
of the same rows then lie within deflate's 32 KiB window, which makes a fixed camera half the size
of a chunk per frame (23 against 45 kB for 14 frames of 64x64). Level 6: level 9 saves 2 % and takes
twice as long.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from rrf import atomic
from rrf.config import did_you_mean
from rrf.data.dataset_cfg import DatasetCfg
from rrf.data.schema import IMAGE_PREFIX, Episode

_ROWS_PER_CHUNK = 16
_GZIP_LEVEL = 6
_LIBVER = ("v110", "v110")  # a fifth smaller than the oldest format; HDF5 1.10 (2016) reads it
_SMALLEST_COMPRESSED = 4096  # bytes; a chunk index alone costs 2 kB


def write_robomimic(
    path: str | Path, demos: Sequence[Mapping], env_args: Mapping, instruction: str, fps: int
) -> None:
    """Write one file, atomically; the same demos give the same bytes.

    Args:
        path: The file.
        demos: Each {"actions", "rewards", "dones", "states", "success", "obs": {key: array},
            "attrs": {...}}.
        env_args: How to rebuild the environment (plain data).
        instruction: The language instruction of all demos.
        fps: Frames per second.
    """
    if not demos:
        raise ValueError(f"{path}: no demonstrations to write")
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=_LIBVER) as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(len(demo["actions"]) for demo in demos)
        data.attrs["env_args"] = json.dumps(env_args, sort_keys=True)
        data.attrs["instruction"] = instruction
        data.attrs["fps"] = fps
        for index, demo in enumerate(demos):
            group = data.create_group(f"demo_{index}")
            group.attrs["num_samples"] = len(demo["actions"])
            for name, value in demo.get("attrs", {}).items():
                group.attrs[name] = value
            for name, values in demo.items():
                if name not in ("obs", "attrs"):
                    _write_array(group, name, values)
            for name, values in demo["obs"].items():
                _write_array(group, f"obs/{name}", values)
    atomic.write_bytes(path, buffer.getvalue())


def read_robomimic(path: str | Path, cfg: DatasetCfg) -> Iterator[Episode]:
    """The demos of one file as episodes, in the order of their numbers.

    Raises:
        ValueError: Naming file, demo, key and frame, for a file that is damaged, holds no demos or
            lacks a key, for arrays of different lengths or a wrong shape, and for a NaN or Inf.
    """
    path = Path(path)
    with _open(path) as file:
        data = _data_group(file, path)
        fps = int(str(_attribute(data, "fps", path)))
        if fps != cfg.fps:
            raise ValueError(
                f"{path} was recorded at {fps} frames/s, but the config says fps: {cfg.fps}"
            )
        for name in _demo_names(data, path):
            yield _read_demo(data, name, path, cfg)


def count_demos(path: str | Path) -> int:
    """How many demos a file holds. Raises ValueError as `read_robomimic` does."""
    with _open(Path(path)) as file:
        return len(_demo_names(_data_group(file, Path(path)), Path(path)))


def _write_array(group: h5py.Group, name: str, values: np.ndarray) -> None:
    values = np.asarray(values)
    if values.nbytes < _SMALLEST_COMPRESSED:
        group.create_dataset(name, data=values)
        return
    chunks = values.shape
    if values.ndim == 4:
        chunks = (values.shape[0], min(_ROWS_PER_CHUNK, values.shape[1]), *values.shape[2:])
    group.create_dataset(
        name, data=values, chunks=chunks, compression="gzip", compression_opts=_GZIP_LEVEL
    )


def _open(path: Path) -> h5py.File:
    if not path.is_file():
        raise ValueError(f"no recording at {path}; run: dvc pull, or record it: rrf data collect")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(
            f"{path} is truncated or not HDF5 ({error}); run: dvc pull --force"
        ) from error


def _data_group(file: h5py.File, path: Path) -> h5py.Group:
    data = file.get("data")
    if not isinstance(data, h5py.Group):
        raise ValueError(
            f"{path} has no group /data, so it is not a robomimic file; found: {list(file)}"
        )
    return data


def _demo_names(data: h5py.Group, path: Path) -> list[str]:
    numbers = {}
    for name in data:
        prefix, _, number = str(name).rpartition("_")
        if prefix == "demo" and number.isdigit():
            numbers[name] = int(number)
    if not numbers:
        raise ValueError(
            f"{path} holds no demonstrations (/data/demo_0, ...); record it: rrf data collect"
        )
    return sorted(numbers, key=numbers.__getitem__)


def _attribute(group: h5py.Group, name: str, path: Path):
    if name not in group.attrs:
        raise ValueError(
            f"{path}: {group.name} lacks the attribute '{name}'; found: {list(group.attrs)}"
        )
    return group.attrs[name]


def _read_demo(data: h5py.Group, name: str, path: Path, cfg: DatasetCfg) -> Episode:
    group, where = data[name], f"{path}:{name}"
    assert isinstance(group, h5py.Group)
    if "instruction" in group.attrs:
        instruction = group.attrs["instruction"]
    else:
        instruction = _attribute(data, "instruction", path)
    schema = cfg.schema()
    action = _read_vector(group, cfg.action.keys, len(schema.action.names), where)
    length = len(action)
    return Episode(
        images={
            camera: _read_images(
                group, key, (length, *schema.image_size, 3), f"{where}: {key}", camera
            )
            for camera, key in cfg.cameras.items()
        },
        state=_read_vector(group, cfg.state.keys, len(schema.state.names), where, length),
        action=action,
        instruction=str(instruction),
        source=where,
        reward=_read_column(group, cfg.reward, length, where).astype(np.float32)
        if cfg.reward
        else None,
        success=_read_column(group, cfg.success, length, where) > 0 if cfg.success else None,
    )


def _read(group: h5py.Group, key: str, where: str) -> np.ndarray:
    item = group.get(key)
    if not isinstance(item, h5py.Dataset):
        known: list[str] = []
        group.visititems(
            lambda name, node: known.append(name) if isinstance(node, h5py.Dataset) else None
        )
        raise ValueError(f"{where} has no key '{key}'{did_you_mean(key, known)}")
    try:
        return item[()]
    except OSError as error:
        raise ValueError(f"{where}: {key} is damaged ({error}); run: dvc pull --force") from error


def _read_images(
    group: h5py.Group, key: str, shape: tuple[int, ...], where: str, camera: str
) -> np.ndarray:
    images = _read(group, key, where.partition(": ")[0])
    if images.dtype != np.uint8 or images.shape != shape:
        raise ValueError(
            f"{where} ({IMAGE_PREFIX}{camera}) is {images.dtype}{list(images.shape)}, "
            f"expected uint8{list(shape)}"
        )
    return images


def _read_vector(
    group: h5py.Group, keys: Sequence[str], dimension: int, where: str, length: int | None = None
) -> np.ndarray:
    parts = []
    for key in keys:
        values = _read(group, key, where)
        if values.ndim == 1:
            values = values[:, None]
        length = len(values) if length is None else length
        if values.ndim != 2 or len(values) != length:
            raise ValueError(
                f"{where}: {key} has shape {list(values.shape)}, expected [{length}, D]"
            )
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            frame, column = bad[0].tolist()
            raise ValueError(
                f"{where}: {key} at frame {frame}, dimension {column} is {values[frame, column]}; "
                "NaN and Inf are not allowed"
            )
        parts.append(values.astype(np.float32))
    vector = np.concatenate(parts, axis=1)
    if vector.shape[1] != dimension:
        raise ValueError(
            f"{where}: {' + '.join(keys)} has {vector.shape[1]} dimensions, "
            f"the config names {dimension}"
        )
    return vector


def _read_column(group: h5py.Group, key: str, length: int, where: str) -> np.ndarray:
    values = _read(group, key, where)
    if values.shape not in ((length,), (length, 1)):
        raise ValueError(f"{where}: {key} has shape {list(values.shape)}, expected [{length}]")
    return values.reshape(length)
