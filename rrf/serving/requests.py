"""From a client's message to the checked inputs of one row of a batch.

The inputs of a policy are those of its signature, e.g. observation.images.front, observation.state
and instruction. A request may name them so, or as openpi's clients do:

| key of the request                     | stands for                                        |
|----------------------------------------|---------------------------------------------------|
| prompt                                 | instruction                                       |
| observation/state, state               | observation.state                                 |
| observation/image                      | the first camera                                  |
| observation/NAME, images: {NAME: ...}  | the camera of this name                           |

Keys that the policy does not read are ignored, as openpi's server ignores them. A request that
continues a running chunk (real-time chunking) also has `running_chunk` and `num_frozen`.

Legend: K remaining steps of the running chunk, A action dimension, H W height and width.
"""

import typing
from collections.abc import Mapping

import numpy as np

from rrf.client.messages import FROZEN, RUNNING
from rrf.config import did_you_mean
from rrf.data.schema import IMAGE_PREFIX, STATE
from rrf.runners.checkpoints.deployed import Signature, Tensor
from rrf.serving.batching import Row

_INSTRUCTION = "instruction"
_MAX_TEXT = 4_096
_SHOWN_KEYS = 12
_OPENPI = {"prompt": _INSTRUCTION, "observation/state": STATE, "state": STATE}


class RequestReader:
    """Turns messages into rows.

    Args:
        signature: The inputs and the output of the policy.
        rename: Further keys of requests, and the inputs that they stand for.
        instruction: The instruction of requests without one; None to refuse them.

    Raises:
        ValueError: If `rename` names an input that the policy does not have.
    """

    def __init__(
        self,
        signature: Signature,
        rename: Mapping[str, str] | None = None,
        instruction: str | None = None,
    ):
        self._inputs = {str(tensor.name): tensor for tensor in signature.inputs}
        self._chunk_shape = signature.output.shape[1:]
        self._instruction = instruction
        cameras = [name for name in self._inputs if name.startswith(IMAGE_PREFIX)]
        names = {"observation/image": cameras[0]} if cameras else {}
        names |= {f"observation/{name.removeprefix(IMAGE_PREFIX)}": name for name in cameras}
        names |= {key: name for key, name in _OPENPI.items() if name in self._inputs}
        for name in (rename or {}).values():
            if name not in self._inputs:
                raise ValueError(
                    f"rename: the policy has no input '{name}'{did_you_mean(name, self._inputs)}; "
                    f"it has: {', '.join(self._inputs)}"
                )
        self._names = {**names, **(rename or {})}

    def row(self, message: typing.Any) -> Row:
        """The row of a message.

        Raises:
            ValueError: For an input that is missing or has a wrong type, shape or value.
        """
        if not isinstance(message, Mapping):
            raise ValueError(f"a request is a map of inputs, not a {type(message).__name__}")
        given = self._inputs_by_name(message)
        inputs = {}
        for name, tensor in self._inputs.items():
            if name not in given:
                have = ", ".join(sorted(str(key) for key in message)[:_SHOWN_KEYS])
                raise ValueError(
                    f"the input '{name}' is missing ({_shape(tensor)}); the request has: "
                    f"{have or 'nothing':.500}"
                )
            inputs[name] = _checked(name, given[name], tensor)
        return Row(inputs, *self._running(message))

    def examples(self, num_rows: int) -> list[Row]:
        """Rows of zeros with a text that has words, to warm up with."""
        zeros = {
            name: np.array(self._instruction or "warm up")
            if tensor.dtype == "str"
            else np.zeros([abs(n) for n in tensor.shape[1:]], tensor.dtype)
            for name, tensor in self._inputs.items()
        }
        return [Row(zeros)] * num_rows

    def _inputs_by_name(self, message: Mapping) -> dict[str, typing.Any]:
        """The inputs by the policy's names; a name of the policy itself comes first."""
        given = {_INSTRUCTION: self._instruction} if self._instruction else {}
        images = message.get("images")
        for name, image in images.items() if isinstance(images, Mapping) else ():
            given[f"{IMAGE_PREFIX}{name}"] = image
        for key, name in self._names.items():
            if key in message:
                given[name] = message[key]
        return given | {name: message[name] for name in self._inputs if name in message}

    def _running(self, message: Mapping) -> tuple[np.ndarray | None, int]:
        running, num_frozen = message.get(RUNNING), message.get(FROZEN, 0)
        if running is None:
            return None, 0
        if len(self._chunk_shape) != 2:
            raise ValueError(f"'{RUNNING}' is only for policies that answer with chunks")
        length, width = self._chunk_shape
        if (
            not isinstance(running, np.ndarray)
            or running.dtype.kind != "f"
            or running.ndim != 2
            or running.shape[1] != width
            or not 1 <= len(running) <= length
        ):
            raise ValueError(
                f"'{RUNNING}' is {_kind_of(running)}, expected float32[K, {width}] with K from 1 "
                f"to {length}"
            )
        if type(num_frozen) is not int or not 0 <= num_frozen <= len(running):
            raise ValueError(
                f"'{FROZEN}' is {num_frozen!r:.40}, allowed: 0 to {len(running)}, the number of "
                f"steps in '{RUNNING}'"
            )
        with np.errstate(over="ignore"):
            return _finite(RUNNING, running.astype(np.float32)), num_frozen


def _checked(name: str, value: typing.Any, tensor: Tensor) -> np.ndarray:
    if tensor.dtype == "str":
        if not isinstance(value, str) or not value.strip() or len(value) > _MAX_TEXT:
            raise ValueError(f"'{name}' must be a text of 1 to {_MAX_TEXT} characters")
        return np.array(value)
    if isinstance(value, list | float | int):
        value = np.asarray(value)  # a short vector may come as a list of numbers
    shape = tensor.shape[1:]
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        raise ValueError(f"'{name}' is {_kind_of(value)}, expected {_shape(tensor)}")
    if name.startswith(IMAGE_PREFIX) and value.shape == (shape[2], *shape[:2]) != shape:
        value = value.transpose(1, 2, 0)  # openpi's ALOHA clients send [3, H, W]
    is_number = value.dtype.kind in "iuf" and np.dtype(tensor.dtype).kind == "f"
    if value.shape != shape or not (is_number or value.dtype == tensor.dtype):
        raise ValueError(f"'{name}' is {_kind_of(value)}, expected {_shape(tensor)}")
    with np.errstate(over="ignore"):  # too large a number is found below
        return _finite(name, value.astype(tensor.dtype, copy=False))


def _finite(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        place = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"'{name}' at {place.tolist()} is {values[tuple(place)]}, which is not a finite number "
            f"of {values.dtype}"
        )
    return values


def _shape(tensor: Tensor) -> str:
    return tensor.dtype if tensor.dtype == "str" else f"{tensor.dtype}{list(tensor.shape[1:])}"


def _kind_of(value: typing.Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"a {type(value).__name__}"
