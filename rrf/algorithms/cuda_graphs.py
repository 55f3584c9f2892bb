"""Launch all kernels of a function on an NVIDIA GPU at once.

The networks of control are small, and their kernels take less time than launching them one by one.
"""

import copy
import dataclasses
import threading
import typing
from collections.abc import Callable

import torch

_NUM_LAUNCHED = 3  # calls before the recording: they allocate what later calls reuse
_recording = threading.Lock()  # a recording begins with a wait for the GPU, which ends another one

Outputs = typing.TypeVar("Outputs", tuple[torch.Tensor, ...], dict[str, torch.Tensor])


class Replayed(typing.Generic[Outputs]):
    """A function whose kernels are recorded in an early call and replayed by all later ones.

    On a CPU, the function itself is called. On a GPU, it must launch the same kernels in every
    call, must not wait for one, and must not draw random numbers. What it changes, it changes in
    place. Numbers that are no tensors keep the values that they had when they were recorded.
    """

    def __init__(self, function: Callable[..., Outputs]):
        """
        Args:
            function: Takes tensors, and dataclasses of tensors.
        """
        self._function = function
        self._num_calls = 0
        self._recorded: tuple[torch.cuda.CUDAGraph, list[torch.Tensor], Outputs] | None = None

    def __call__(self, *inputs: typing.Any) -> Outputs:
        if _tensors(inputs)[0].device.type != "cuda":
            return self._function(*inputs)
        self._num_calls += 1
        if self._num_calls <= _NUM_LAUNCHED:
            return self._function(*inputs)
        if self._recorded is None:
            recorded_inputs, graph = copy.deepcopy(inputs), torch.cuda.CUDAGraph()
            # Other threads may launch kernels and allocate memory meanwhile.
            with _recording, torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._recorded = graph, _tensors(recorded_inputs), self._function(*recorded_inputs)
        graph, own_inputs, outputs = self._recorded
        torch._foreach_copy_(own_inputs, _tensors(inputs))
        graph.replay()
        if isinstance(outputs, dict):
            return {name: value.clone() for name, value in outputs.items()}
        return tuple(value.clone() for value in outputs)


def _tensors(value: typing.Any) -> list[torch.Tensor]:
    """The tensors within tuples and dataclasses, in order."""
    if value is None:
        return []
    if isinstance(value, torch.Tensor):
        return [value]
    parts = vars(value).values() if dataclasses.is_dataclass(value) else value
    return [tensor for part in parts for tensor in _tensors(part)]
