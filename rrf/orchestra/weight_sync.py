"""Sends weights to roles elsewhere: only what changed since the version that they have.

A tensor that did not change is left out, so that of a policy with adapters only the adapters are
sent. Of a tensor in which few elements changed, those are sent with their places.

A message is plain data: version, base (the version that it changes; -1 for none), and for every
tensor that is in it the raw bytes of its values, and of the places if they are not all.
"""

import dataclasses
import typing
from collections.abc import Mapping

import numpy as np
import torch

Message = dict[str, typing.Any]
_SPARSE_SHARE = 0.25  # a place costs as much as a value, or twice as much


class WeightSender:
    """Makes messages, each for receivers that have the one before."""

    def __init__(self):
        self._sent: dict[str, torch.Tensor] = {}
        self._version = -1

    def message(self, weights: Mapping[str, torch.Tensor], version: int) -> Message:
        """What changed since the last message."""
        tensors: dict[str, dict[str, np.ndarray]] = {}
        for name, values in weights.items():
            current = values.detach().cpu()
            before = self._sent.get(name)
            if before is None:
                tensors[name] = {"values": _bytes(current)}
            elif not torch.equal(_bits(before), _bits(current)):
                tensors[name] = _difference(before, current)
            if name in tensors:
                self._sent[name] = current.clone()
        message = {"version": version, "base": self._version, "tensors": tensors}
        self._version = version
        return message

    def everything(self) -> Message:
        """A message with all weights of the last version, for a new receiver."""
        tensors = {name: {"values": _bytes(values)} for name, values in self._sent.items()}
        return {"version": self._version, "base": -1, "tensors": tensors}


def num_bytes(message: Message) -> int:
    """Size of the arrays in a message."""
    return sum(array.nbytes for parts in message["tensors"].values() for array in parts.values())


@dataclasses.dataclass
class WeightReceiver:
    """Weights that follow a sender's messages."""

    weights: dict[str, torch.Tensor]  # changed in place
    version: int = -1

    def apply(self, message: Message) -> None:
        """Take over a message.

        Raises:
            ValueError: If it changes another version than the present one.
        """
        if message["base"] not in (-1, self.version):
            raise ValueError(
                f"weights of version {message['version']} change version {message['base']}, but "
                f"version {self.version} is here"
            )
        for name, parts in message["tensors"].items():
            flat = self.weights[name].view(-1)
            values = torch.from_numpy(parts["values"].copy()).view(flat.dtype)
            if "places" in parts:
                places = torch.from_numpy(parts["places"].astype(np.int64))
                flat[places.to(flat.device)] = values.to(flat.device)
            else:
                flat.copy_(values)
        self.version = message["version"]


def _difference(before: torch.Tensor, current: torch.Tensor) -> dict[str, np.ndarray]:
    places = (_bits(before) != _bits(current)).nonzero().flatten()
    if len(places) > _SPARSE_SHARE * current.numel():
        return {"values": _bytes(current)}
    dtype = np.int32 if current.numel() <= np.iinfo(np.int32).max else np.int64
    return {"values": _bytes(current.flatten()[places]), "places": places.numpy().astype(dtype)}


def _bits(values: torch.Tensor) -> torch.Tensor:
    """The elements as integers of the same size, in one dimension; 0 and -0 differ."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.contiguous().view(-1).view(integers[values.element_size()])


def _bytes(values: torch.Tensor) -> np.ndarray:
    return values.contiguous().view(-1).view(torch.uint8).numpy().copy()
