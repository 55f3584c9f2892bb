"""Reads maps of a LeRobot v3.0 dataset: our columns of numbers, and lerobot's depth maps.

Legend: N frames, H height, W width.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from rrf.data.dataset import layout, parquet
from rrf.data.dataset.depth import CODE_FORMAT, decode_depth, metres
from rrf.data.dataset.layout import fill, is_depth, path_inside
from rrf.data.dataset.maps import from_column
from rrf.data.files import RemotePath
from rrf.data.memory import check_fits
from rrf.data.schema import PixelMap
from rrf.data.video import VideoReader


def read_map(
    root: Path | RemotePath, info: dict, rows: Sequence[Mapping], key: str, kind: PixelMap
) -> np.ndarray:
    """A map of whole episodes, [N, H, W] of its dtype.

    Args:
        root: The dataset's directory.
        info: Its info.json.
        rows: The episodes' rows of the episode table, ascending.
        key: The map's feature.
        kind: What it holds.

    Raises:
        ValueError: Naming the file and what is wrong, or if memory cannot hold the map.
    """
    num_frames = sum(row["length"] for row in rows)
    dtype = np.dtype(kind.dtype)
    check_fits((num_frames, *kind.size), dtype.itemsize, f"{root}: {key} {dtype}")
    if info["features"][key]["dtype"] == "video":
        return np.concatenate([read_depth_video(root, info, row, key) for row in rows])
    bounds = [(row["dataset_from_index"], row["dataset_to_index"]) for row in rows]
    rows_n = np.concatenate([np.arange(*pair) for pair in bounds])
    return parquet.read_selected(root, key, rows_n, lambda column: map_of(column, info, key, kind))


def map_of(column: pa.ChunkedArray, info: dict, key: str, kind: PixelMap) -> np.ndarray:
    """What a column of a data file holds of a map.

    Raises ValueError naming the frame that is damaged.
    """
    if not is_depth(info["features"][key]):
        return from_column(column, kind)
    blobs = [value["bytes"] or b"" for value in column.to_pylist()]
    return decode_depth(blobs, kind, key)


def read_depth_video(
    root: Path | RemotePath,
    info: dict,
    row: Mapping,
    key: str,
    first: int = 0,
    stop: int | None = None,
) -> np.ndarray:
    """Frames `first` to `stop` of an episode of a depth video, float32 metres [N, H, W].

    Raises ValueError as `VideoReader` does.
    """
    values = {
        "video_key": key,
        "chunk_index": int(row[f"videos/{key}/chunk_index"]),
        "file_index": int(row[f"videos/{key}/file_index"]),
    }
    where = f"{root / layout.INFO}: video_path"
    template = info.get("video_path") or layout.VIDEO_PATH
    path = path_inside(root, fill(template, where, values), where)
    start = round(row[f"videos/{key}/from_timestamp"] * info["fps"])
    reader = VideoReader(path, info["fps"], CODE_FORMAT)
    try:
        codes = reader.read(start + np.arange(first, row["length"] if stop is None else stop))
    finally:
        reader.close()
    return metres(codes, info["features"][key])
