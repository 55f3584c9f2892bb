"""Images that are not RGB: one number per pixel, such as depth, a mask or infrared.

They are stored without loss, as lists of numbers in the parquet files, which lerobot reads as they
are, too. Parquet's encodings for such numbers make them about as small as PNG does. (lerobot's own
depth maps are in `rrf.data.dataset.depth`.)

Legend: T frames, H height, W width.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from rrf.data import language
from rrf.data.dataset.stats import STATISTICS, VectorStats
from rrf.data.schema import MAP_PREFIX, EncodedImages, PixelMap

DTYPES = ("bool", "uint8", "uint16", "int16", "int32", "float32", "float64")
_ENCODINGS = {
    "uint16": "DELTA_BINARY_PACKED",
    "int16": "DELTA_BINARY_PACKED",
    "int32": "DELTA_BINARY_PACKED",
    "float32": "BYTE_STREAM_SPLIT",
    "float64": "BYTE_STREAM_SPLIT",
}  # of the others, a dictionary is smaller
_NOTHING = np.zeros(1)


def decode_map(images: EncodedImages, where: str) -> np.ndarray:
    """Grey images, [T, H, W] of uint8 or uint16, exactly as they were stored.

    Raises ValueError naming the frame of an image that is damaged or not grey.
    """
    import cv2

    frames = []
    for frame, blob in enumerate(images.blobs):
        try:
            image = cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_UNCHANGED)
        except cv2.error:  # no bytes at all, or far too many pixels
            image = None
        if image is None:
            raise ValueError(f"{where} at frame {frame}: {len(blob)} bytes of a damaged image")
        if image.ndim != 2:
            raise ValueError(
                f"{where} at frame {frame} has {image.shape[2]} channels; name it under cameras"
            )
        if frames and (image.shape, image.dtype) != (frames[0].shape, frames[0].dtype):
            raise ValueError(
                f"{where} at frame {frame} is {image.dtype}{list(image.shape)}, at frame 0 "
                f"{frames[0].dtype}{list(frames[0].shape)}"
            )
        frames.append(image)
    return np.stack(frames)


def as_column(values_thw: np.ndarray) -> pa.Array:
    """The column of a data file."""
    _, height, width = values_thw.shape
    flat = pa.array(np.ascontiguousarray(values_thw).ravel())
    return pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(flat, width), height)


def column_type(kind: PixelMap) -> pa.DataType:
    """What `as_column` gives."""
    height, width = kind.size
    return pa.list_(pa.list_(pa.from_numpy_dtype(np.dtype(kind.dtype)), width), height)


def from_column(column: pa.ChunkedArray, kind: PixelMap) -> np.ndarray:
    """The inverse of `as_column`: [T, H, W].

    Raises ValueError if the column holds another number of pixels.
    """
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    values = array.flatten().flatten().to_numpy(zero_copy_only=False)
    height, width = kind.size
    if len(values) != len(column) * height * width:
        raise ValueError(
            f"{MAP_PREFIX}{kind.name} has {len(values)} pixels in {len(column)} frames, not "
            f"{height}x{width} each"
        )
    return values.reshape(-1, height, width).astype(kind.dtype, copy=False)


def parquet_options(schema: pa.Schema) -> dict:
    """How a data file with these columns is compressed."""
    leaves, encodings, has_maps = [], {}, False
    for field in schema:
        leaf, path = field.type, field.name
        if pa.types.is_struct(leaf):
            leaves += [f"{path}.{part.name}" for part in leaf]
            continue
        if field.name in language.TYPES:
            leaves += [f"{path}.list.element.{part.name}" for part in leaf.value_type]
            continue
        while pa.types.is_fixed_size_list(leaf):
            leaf, path = leaf.value_type, f"{path}.list.element"
        is_map = field.name.startswith(MAP_PREFIX)
        has_maps = has_maps or is_map
        encoding = _ENCODINGS.get(str(np.dtype(leaf.to_pandas_dtype()))) if is_map else None
        if encoding is None:
            leaves.append(path)
        else:
            encodings[path] = encoding
    if not has_maps:
        return {"compression": "snappy"}
    return {"compression": "zstd", "use_dictionary": leaves, "column_encoding": encodings or None}


class MapStats:
    """Statistics of a map over all pixels that are finite, each of shape [1, 1]; `count` counts
    frames. All are 0 where no pixel is finite.

    Args:
        folder: Where pixels wait for the quantiles; see `rrf.data.dataset.stats.VectorStats`.
    """

    def __init__(self, folder: Path | None = None):
        self._frames = 0
        self._pixels = VectorStats(folder=folder)

    def update(self, values_thw: np.ndarray) -> None:
        """Add [T, H, W]."""
        self._frames += len(values_thw)
        for values_hw in values_thw:  # a frame at a time: as float64 they are large
            self._pixels.update(values_hw[np.isfinite(values_hw)].astype(np.float64)[:, None])

    def result(self) -> Mapping[str, np.ndarray]:
        """The statistics so far."""
        stats = self._pixels.result() if self._pixels.count else dict.fromkeys(STATISTICS, _NOTHING)
        shaped = {name: value.reshape(1, 1) for name, value in stats.items() if name != "count"}
        return shaped | {"count": np.array([self._frames])}
