"""The messages between rrf and a process of another interpreter: a name and a value.

The value is JSON in which arrays may stand. Nothing is pickled, and nothing that a message says is
imported or called by reading it. A message is these bytes:

| bytes | what                                                                                     |
|-------|------------------------------------------------------------------------------------------|
| 4     | `RRF1`                                                                                   |
| 4     | length of the header, unsigned, little-endian, at most `MAX_HEADER`                      |
| 8     | length of the body, likewise, at most `MAX_BODY`                                         |
| …     | header: JSON in UTF-8, `{"name": …, "value": …, "arrays": [[dtype, shape], …]}`          |
| …     | body: the arrays one after another, in C order                                           |

In the value, `{"__array__": 2}` stands for the third array. A dtype is one of `DTYPES`, little-
endian. NaN and Inf are allowed in arrays only. Images do not travel in messages (`episodes`).
"""

from __future__ import annotations

import json
import multiprocessing.connection
import socket
import struct
import typing

import numpy as np

MAGIC = b"RRF1"
MAX_HEADER = 1 << 20
MAX_BODY = 1 << 28
DTYPES = (  # bool, unsigned, signed, float
    *("|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"),
)
_START = struct.Struct("<4sIQ")
_ARRAY = "__array__"
_MAX_DIMENSIONS = 32  # of NumPy before 2.0


class MessageError(Exception):
    """What came is not a message, or ended in the middle of one."""


def encoded(name: str, value: typing.Any) -> bytes:
    """The bytes of a message.

    Raises:
        TypeError: For a value that is neither JSON nor an array of `DTYPES`.
        ValueError: For NaN or Inf outside an array, or a message that is too long.
    """
    arrays: list[np.ndarray] = []
    plain = _without_arrays(value, arrays)
    described = [[array.dtype.str, list(array.shape)] for array in arrays]
    message = {"name": name, "value": plain, "arrays": described}
    header = json.dumps(message, allow_nan=False).encode()
    body = b"".join(array.tobytes() for array in arrays)
    if len(header) > MAX_HEADER or len(body) > MAX_BODY:
        raise ValueError(
            f"message '{name}' has a header of {len(header)} and a body of {len(body)} bytes; at "
            f"most {MAX_HEADER} and {MAX_BODY} are allowed"
        )
    return _START.pack(MAGIC, len(header), len(body)) + header + body


def decoded(header: bytes, body: bytes) -> tuple[str, typing.Any]:
    """Name and value of a message.

    Raises:
        MessageError: For anything that `encoded` does not write.
    """
    try:
        message = json.loads(header.decode(), parse_constant=_refuse_constant)
        name, value, described = message["name"], message["value"], message["arrays"]
        arrays, offset = [], 0
        for dtype, shape in described:
            array = _array(dtype, shape, body, offset)
            offset += array.nbytes
            arrays.append(array)
        if not isinstance(name, str) or offset != len(body):
            raise MessageError(f"{offset} of the body's {len(body)} bytes are arrays")
        return name, _with_arrays(value, arrays)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise MessageError(f"the header is damaged: {type(error).__name__}: {error}") from error


class Connection:
    """Messages over a connected socket, with the methods of `multiprocessing`'s connections."""

    def __init__(self, sock: socket.socket, timeout_s: float | None = None):
        """`timeout_s` is how long a message that has begun may stand still."""
        sock.settimeout(timeout_s)
        self._socket = sock

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def poll(self, timeout_s: float) -> bool:
        """Whether something comes within the time."""
        return bool(multiprocessing.connection.wait([self._socket], timeout_s))

    def send(self, message: tuple[str, typing.Any]) -> None:
        """Send (name, value). Raises as `encoded` does, or OSError if the other end is gone."""
        self._socket.sendall(encoded(*message))

    def recv(self) -> tuple[str, typing.Any]:
        """The next (name, value).

        Raises:
            EOFError: If the other end closed the connection between two messages.
            MessageError: For anything that is not a message. The connection cannot be used
                afterwards.
        """
        start = self._read(_START.size, may_end=True)
        magic, header_length, body_length = _START.unpack(start)
        if magic != MAGIC:
            raise MessageError(f"it begins with {bytes(start[:4])!r} instead of {MAGIC!r}")
        if header_length > MAX_HEADER or body_length > MAX_BODY:
            raise MessageError(
                f"it announces a header of {header_length} and a body of {body_length} bytes; at "
                f"most {MAX_HEADER} and {MAX_BODY} are allowed"
            )
        header = self._read(header_length)
        return decoded(bytes(header), bytes(self._read(body_length)))

    def _read(self, length: int, may_end: bool = False) -> bytearray:
        read = bytearray()
        while len(read) < length:
            part = self._socket.recv(min(length - len(read), 1 << 20))
            if not part and may_end and not read:
                raise EOFError("the connection is closed")
            if not part:
                raise MessageError(f"it ended after {len(read)} of {length} bytes")
            read += part
        return read


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} outside an array")


def _array(dtype: str, shape: list[int], body: bytes, offset: int) -> np.ndarray:
    if dtype not in DTYPES:
        raise MessageError(f"an array has dtype {dtype!r}; allowed: {', '.join(DTYPES)}")
    is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or len(shape) > _MAX_DIMENSIONS:
        raise MessageError(f"an array has shape {shape!r}")
    count = 1
    for length in shape:
        count *= length
    if offset + count * np.dtype(dtype).itemsize > len(body):
        raise MessageError(f"an array of shape {shape} does not fit into {len(body)} bytes")
    return np.frombuffer(body, dtype, count, offset).reshape(shape).copy()


def _without_arrays(value: typing.Any, arrays: list[np.ndarray]) -> typing.Any:
    """The value with its arrays put into a list."""
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value).reshape(value.shape)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if array.dtype.str not in DTYPES:
            raise TypeError(f"an array of dtype {value.dtype} cannot be sent")
        arrays.append(array)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, dict):
        if _ARRAY in value or not all(isinstance(key, str) for key in value):
            raise TypeError(f"a dict with the keys {list(value)} cannot be sent")
        return {key: _without_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(item, arrays) for item in value]
    return value


def _with_arrays(value: typing.Any, arrays: list[np.ndarray]) -> typing.Any:
    """The inverse of `_without_arrays`."""
    if isinstance(value, dict):
        if _ARRAY not in value:
            return {key: _with_arrays(item, arrays) for key, item in value.items()}
        number = value[_ARRAY]
        if len(value) != 1 or type(number) is not int or not 0 <= number < len(arrays):
            raise MessageError(f"{value!r} stands for no array")
        return arrays[number]
    if isinstance(value, list):
        return [_with_arrays(item, arrays) for item in value]
    return value
