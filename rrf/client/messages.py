"""Messages between robots and policy servers: msgpack with numpy arrays, as openpi's client speaks.

openpi (github.com/Physical-Intelligence/openpi, package openpi-client) writes an array as the map
{b"__ndarray__": true, b"data": bytes, b"dtype": "<f4", b"shape": [2, 4]} and a numpy scalar as
{b"__npgeneric__": true, b"data": number, b"dtype": "<f4"}. Ours are the same bytes.

What comes from the network is not trusted: `unpack` builds only plain data and arrays of numbers,
and refuses a message with more parts than an observation has before it builds them.
"""

import math
import typing

import msgpack
import numpy as np

RUNNING, FROZEN = "running_chunk", "num_frozen"
"""Keys of a request that continues a running chunk."""
SYSTEM, FEATURES, FEATURE_AGE = "system", "features", "feature_age_s"
"""Keys of a request to System 2 or 1 of a policy in two parts alone: 2 or 1; and what System 1
reads."""
ACTIONS, TIMING, REVOKED, GUARDS = "actions", "server_timing", "revoked", "guards"
"""Keys of an answer."""
EPISODE_BEGIN, EPISODE_END = "episode_begin", "episode_end"
"""Keys of the messages that announce an episode and its outcome (`rrf.serving.book`)."""
EPISODE, RECORDED = "episode", "recorded"
"""Keys of the answers to these."""
EPISODES = "episodes"
"""Key of the server's metadata: whether it takes such messages."""
SYSTEMS = "systems"
"""Key of the server's metadata: the inputs and outputs of the systems that may be asked alone."""
_ARRAY, _SCALAR = b"__ndarray__", b"__npgeneric__"
_DATA, _DTYPE, _SHAPE = b"data", b"dtype", b"shape"
_KINDS = "biuf"  # bool, signed, unsigned, float: the dtypes of numbers
_MAX_ELEMENTS = 16_384  # in one message, besides what arrays hold
_MAX_LIST, _MAX_MAP, _MAX_DIMS = 4_096, 256, 8


class MessageError(ValueError):
    """Bytes that are not a message."""


def pack(content: typing.Any) -> bytes:
    """The bytes of a message.

    Raises:
        ValueError: For a value that a message cannot carry.
    """
    try:
        packed = msgpack.packb(content, default=_packed)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"a message cannot carry this: {error}") from error
    assert packed is not None
    return packed


def unpack(data: bytes) -> typing.Any:
    """The content of a message. Arrays are views of `data` and cannot be written to.

    Raises:
        MessageError: If `data` is not a message of plain data and arrays of numbers.
    """
    count = _Count()
    try:
        return msgpack.unpackb(
            data,
            object_hook=count.checked_map,
            list_hook=count.checked_list,
            max_array_len=_MAX_LIST,
            max_map_len=_MAX_MAP,
            max_ext_len=0,
        )
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        why = str(error) or type(error).__name__
        raise MessageError(f"not a msgpack message of plain data and arrays: {why}") from error


class _Count:
    """Counts the parts of one message, so that a small message cannot become large objects."""

    def __init__(self):
        self.num_elements = 0

    def checked_list(self, values: list) -> list:
        self._add(len(values))
        return values

    def checked_map(self, values: dict) -> typing.Any:
        self._add(len(values))
        if _ARRAY in values:
            return _array(values)
        return _dtype(values[_DTYPE]).type(values[_DATA]) if _SCALAR in values else values

    def _add(self, number: int) -> None:
        self.num_elements += number
        if self.num_elements > _MAX_ELEMENTS:
            raise ValueError(f"more than {_MAX_ELEMENTS} parts; send numbers as numpy arrays")


def _packed(value: typing.Any) -> typing.Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in _KINDS:
        raise TypeError(f"numpy {value.dtype} (allowed are numbers and bool)")
    if isinstance(value, np.ndarray):
        return {
            _ARRAY: True,
            _DATA: value.tobytes(),
            _DTYPE: value.dtype.str,
            _SHAPE: list(value.shape),
        }
    if isinstance(value, np.generic):
        return {_SCALAR: True, _DATA: value.item(), _DTYPE: value.dtype.str}
    raise TypeError(f"a value of type {type(value).__name__}")


def _array(values: dict) -> np.ndarray:
    dtype, shape, data = _dtype(values[_DTYPE]), values[_SHAPE], values[_DATA]
    if len(shape) > _MAX_DIMS or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"an array of shape {shape}")
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array whose data are not {dtype}{shape}")
    return np.frombuffer(data, dtype).reshape(shape)


def _dtype(name: typing.Any) -> np.dtype:
    if not isinstance(name, str) or len(name) > 4:
        raise ValueError("an array without a dtype")
    dtype = np.dtype(name)
    if dtype.kind not in _KINDS:
        raise ValueError(f"an array of dtype {dtype}; allowed are numbers and bool")
    return dtype
