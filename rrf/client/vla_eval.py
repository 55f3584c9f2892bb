"""The messages of vla-eval (0.8, protocol version 1), and a client of its model servers.

Binary websocket frames, each a msgpack map {type, payload, seq, timestamp}. Arrays are
{"__ndarray__": true, data, dtype, shape}, images {"__image__": true, format: raw | png | jpeg,
data, shape}. What comes from the network is not trusted: only plain data, arrays of numbers and
pictures of limited size are built; a picture is refused by its header before it is decoded.

    client  hello            server  hello {harness_version, protocol_version: 1}
    client  episode_start    (no answer)
    client  observation      server  action {"actions": (A,) or (T, A)}, with its seq
    client  episode_end      (no answer)
"""

import io
import math
import struct
import time
import typing
import zlib
from collections.abc import Mapping

import msgpack
import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from rrf.client.messages import MessageError

VERSION, HARNESS = 1, "0.8.0"
SCHEME = "vla-eval://"
HELLO, START, END = "hello", "episode_start", "episode_end"
OBSERVATION, ACTION, ERROR = "observation", "action", "error"
TYPES = (HELLO, START, END, OBSERVATION, ACTION, ERROR)
_ARRAY, _IMAGE = "__ndarray__", "__image__"
_KINDS = "biuf"
_MOST_PARTS, _MOST_LIST, _MOST_MAP, _MOST_DIMS = 16_384, 4_096, 256, 8
_MOST_PIXELS = 4_096 * 4_096
_MOST_BYTES = 64_000_000
_MOST_ACTIONS, _MOST_DIMENSIONS = 1_024, 1_024


class Frame(typing.NamedTuple):
    """A message."""

    type: str
    payload: Mapping[str, typing.Any]
    seq: int


def pack(frame: Frame) -> bytes:
    """The bytes of a message; arrays go uncompressed."""
    content = {
        "type": frame.type,
        "payload": frame.payload,
        "seq": frame.seq,
        "timestamp": time.time(),
    }
    packed = msgpack.packb(content, default=_packed, use_bin_type=True)
    assert packed is not None
    return packed


def unpack(data: bytes | str) -> Frame:
    """The message in a frame.

    Raises:
        MessageError: If it is none, or has more or larger parts than a message has.
    """
    if isinstance(data, str):
        raise MessageError("a text; messages are binary")
    parts = _Parts()
    try:
        content = msgpack.unpackb(
            data,
            object_hook=parts.map,
            list_hook=parts.list,
            raw=False,
            max_array_len=_MOST_LIST,
            max_map_len=_MOST_MAP,
            max_ext_len=0,
        )
    except (ValueError, TypeError, KeyError, OSError, msgpack.UnpackException) as error:
        why = str(error) or type(error).__name__
        raise MessageError(f"not a message of vla-eval: {why}") from error
    if not isinstance(content, dict) or content.get("type") not in TYPES:
        raise MessageError("not a message of vla-eval: it has no known type")
    payload, seq = content.get("payload"), content.get("seq")
    if not isinstance(payload, dict) or type(seq) is not int:
        raise MessageError("not a message of vla-eval: it has no payload or no seq")
    return Frame(content["type"], payload, seq)


class _Parts:
    """Builds what a message holds, and counts it."""

    def __init__(self):
        self._count, self._pixels = 0, 0

    def list(self, values: list) -> list:
        self._add(len(values))
        return values

    def map(self, values: dict) -> typing.Any:
        self._add(len(values))
        if _IMAGE in values:
            return self._image(values)
        return _array(values) if _ARRAY in values else values

    def _image(self, values: dict) -> np.ndarray:
        from PIL import Image

        shape = _shape(values["shape"])
        if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
            raise ValueError(f"a picture of shape {shape}")
        self._pixels += math.prod(shape[:2])
        if self._pixels > _MOST_PIXELS:
            raise ValueError(f"pictures of more than {_MOST_PIXELS} pixels in one message")
        if values["format"] == "raw":
            return _array({**values, "dtype": values.get("dtype", "|u1")})
        if values["format"] not in ("png", "jpeg"):
            raise ValueError(
                f"a picture of format {values['format']!r:.20}; allowed: raw, png, jpeg"
            )
        if not isinstance(values["data"], bytes):
            raise ValueError("a picture without data")
        bomb = Image.DecompressionBombError
        broken = (OSError, SyntaxError, EOFError, struct.error, zlib.error, bomb)
        try:
            kinds = [values["format"].upper()]
            with Image.open(io.BytesIO(values["data"]), formats=kinds) as opened:
                if opened.size != (shape[1], shape[0]):
                    raise ValueError(f"a picture of {opened.size} pixels, told to be {shape}")
                pixels = np.array(opened)
        except broken as error:
            raise ValueError(f"a picture that cannot be read: {error}") from error
        if pixels.dtype != np.uint8 or pixels.size != math.prod(shape):
            raise ValueError(f"a picture of {pixels.dtype}{list(pixels.shape)}, not {shape}")
        return pixels.reshape(shape)

    def _add(self, number: int) -> None:
        self._count += number
        if self._count > _MOST_PARTS:
            raise ValueError(f"more than {_MOST_PARTS} parts; send numbers as arrays")


def _shape(shape: typing.Any) -> list[int]:
    is_shape = isinstance(shape, list) and len(shape) <= _MOST_DIMS
    if not is_shape or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"an array of shape {shape!r:.60}")
    return shape


def _array(values: dict) -> np.ndarray:
    name, shape, data = values["dtype"], _shape(values["shape"]), values["data"]
    if not isinstance(name, str) or len(name) > 4 or np.dtype(name).kind not in _KINDS:
        raise ValueError(f"an array of dtype {name!r:.20}; allowed are numbers and bool")
    dtype = np.dtype(name)
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array whose data are not {dtype}{shape}")
    return np.frombuffer(data, dtype).reshape(shape)


def _packed(value: typing.Any) -> typing.Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        return {
            _ARRAY: True,
            "data": value.tobytes(),
            "dtype": value.dtype.str,
            "shape": list(value.shape),
        }
    if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
        return value.item()
    raise TypeError(f"a message cannot carry a {type(value).__name__}")


class ModelClient:
    """One connection to a model server that speaks vla-eval's protocol. One episode at a time.

    Args:
        url: vla-eval://HOST:PORT, or ws:// and wss://.
        timeout_s: The longest time that an answer may take; a first one may compile.

    Raises:
        OSError: If no such server answers.
        ValueError: For a url that is none, or a server of another version of the protocol.
    """

    def __init__(self, url: str, timeout_s: float = 120.0):
        self.url, self._timeout_s, self._seq = url, timeout_s, 0
        address = f"ws://{url.removeprefix(SCHEME)}" if url.startswith(SCHEME) else url
        try:
            self._connection: ClientConnection = connect(
                address, open_timeout=timeout_s, compression=None, max_size=_MOST_BYTES, proxy=None
            )
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise OSError(
                f"no model server answers at {url}: {error}; start one by vla-eval serve, or "
                "rrf serve NAME@champion --protocol vla-eval"
            ) from error
        except (InvalidURI, ValueError) as error:
            raise ValueError(f"{url} is no address; expected {SCHEME}HOST:PORT") from error
        hello = {"harness_version": HARNESS, "protocol_version": VERSION}
        self.server: Mapping[str, typing.Any] = self._ask(HELLO, hello, HELLO)
        """What the server says about itself."""
        if (version := self.server.get("protocol_version", VERSION)) != VERSION:
            self.close()
            raise ValueError(
                f"{url} speaks version {version!r} of the protocol, known is {VERSION}"
            )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def start(self, task: Mapping[str, typing.Any]) -> None:
        """An episode begins."""
        self._send(START, {"task": dict(task)})

    def act(self, observation: Mapping[str, typing.Any]) -> np.ndarray:
        """The next actions, float32 [T, A].

        Raises:
            OSError: If the server is gone or does not answer in time.
            ValueError: If it refuses the observation, or its answer is none.
        """
        payload = self._ask(OBSERVATION, observation, ACTION)
        actions = payload.get("actions")
        if isinstance(actions, list):
            actions = np.asarray(actions, dtype=np.float64) if actions else None
        if not isinstance(actions, np.ndarray) or actions.dtype.kind not in "iuf":
            raise ValueError(f"{self.url} answered without 'actions'")
        if actions.ndim not in (1, 2) or actions.size == 0:
            raise ValueError(f"{self.url} answered with actions of shape {list(actions.shape)}")
        actions = np.atleast_2d(actions).astype(np.float32)
        if len(actions) > _MOST_ACTIONS or actions.shape[1] > _MOST_DIMENSIONS:
            raise ValueError(f"{self.url} answered with actions of shape {list(actions.shape)}")
        if not np.isfinite(actions).all():
            raise ValueError(f"{self.url} answered with actions that are not finite numbers")
        return actions

    def end(self, result: Mapping[str, typing.Any]) -> None:
        """The episode has ended."""
        self._send(END, result)

    def _send(self, type: str, payload: Mapping[str, typing.Any]) -> int:
        self._seq += 1
        try:
            self._connection.send(pack(Frame(type, payload, self._seq)))
        except ConnectionClosed as error:
            raise OSError(f"{self.url} has closed the connection: {error}") from error
        return self._seq

    def _ask(self, type: str, payload: Mapping, expected: str) -> Mapping[str, typing.Any]:
        seq = self._send(type, payload)
        try:
            frame = unpack(self._connection.recv(timeout=self._timeout_s))
        except TimeoutError as error:
            self.close()  # a late answer must not be taken for the next one
            raise OSError(f"{self.url} did not answer within {self._timeout_s:g} s") from error
        except ConnectionClosed as error:
            raise OSError(f"{self.url} has closed the connection: {error}") from error
        if frame.type == ERROR:
            raise ValueError(f"{self.url} refused: {str(frame.payload.get('error'))[:500]}")
        if frame.type != expected or frame.seq != seq:
            raise ValueError(
                f"{self.url} answered {type} {seq} with {frame.type} {frame.seq}, not {expected}"
            )
        return frame.payload
