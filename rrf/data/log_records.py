"""Records of a log: length and CRC-32 (two little-endian uint32), then msgpack of plain data.

RGB images are in a record as PNG, other arrays as {dtype, shape, data}. Nothing is unpickled, and
what is read may come from anybody.
"""

import dataclasses
import struct
import typing
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgpack
import numpy as np

from rrf.data.images import encode_png

MAX_RECORD_BYTES = 64 << 20
_HEAD = struct.Struct("<II")


def pack_record(record: Mapping[str, typing.Any]) -> bytes:
    """The bytes of a record. Raises ValueError for what it cannot carry."""
    try:
        payload = msgpack.packb(record, default=_packed)
    except (TypeError, OverflowError, ValueError) as error:
        raise ValueError(f"an episode's log cannot carry this: {error}") from error
    assert payload is not None
    if len(payload) > MAX_RECORD_BYTES:
        raise ValueError(f"a step has {len(payload)} bytes, allowed: {MAX_RECORD_BYTES}")
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def records_in(file: Path) -> Iterator[tuple[dict, int]]:
    """The whole records of a file, each with the position behind it; ends before a damaged one."""
    with file.open("rb") as stream:
        position = 0
        while len(head := stream.read(_HEAD.size)) == _HEAD.size:
            length, crc = _HEAD.unpack(head)
            payload = stream.read(length) if length <= MAX_RECORD_BYTES else b""
            if len(payload) != length or zlib.crc32(payload) != crc:
                return
            try:
                record = msgpack.unpackb(payload, object_hook=_unpacked)
            except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
                raise ValueError(f"{file} at byte {position} holds no record: {error}") from error
            if not isinstance(record, dict):
                raise ValueError(f"{file} at byte {position} holds no record")
            position += _HEAD.size + length
            yield record, position


@dataclasses.dataclass(frozen=True)
class Png:
    """An image as it is in a record."""

    blob: bytes

    @property
    def shape(self) -> tuple[int, int, int]:
        """[H, W, 3], by its header. Raises ValueError if there is none."""
        if not isinstance(self.blob, bytes) or len(self.blob) < 24 or self.blob[12:16] != b"IHDR":
            raise ValueError("an image that is no PNG")
        width, height = struct.unpack(">II", self.blob[16:24])
        return height, width, 3


def _packed(value: typing.Any) -> typing.Any:
    if isinstance(value, Png):
        return {"png": value.blob}
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufU":
        what = getattr(value, "dtype", type(value).__name__)
        raise TypeError(f"a value of type {what}")
    if value.dtype.kind == "U":
        return value.tolist()
    if value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3 and value.size:
        return {"png": encode_png(value[None])[0]}
    return {"dtype": value.dtype.str, "shape": list(value.shape), "data": value.tobytes()}


def _unpacked(value: dict) -> typing.Any:
    if value.keys() == {"png"}:
        return Png(value["png"])
    if value.keys() != {"dtype", "shape", "data"}:
        return value
    dtype = np.dtype(value["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(value["data"], dtype).reshape(value["shape"])
