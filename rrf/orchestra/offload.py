"""Lets the tensors of a role leave its device while other roles use it.

What is on a GPU goes to the host's memory, and what is in the host's memory to a file. The tensors
stay the objects that they are, so that modules and optimizers know them; only their content is
elsewhere.
"""

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn


class Offload:
    """The tensors of a role, here or away."""

    def __init__(self, tensors: Callable[[], Iterable[torch.Tensor]]):
        """
        Args:
            tensors: All of the role, asked whenever they leave.
        """
        self._tensors = tensors
        self._offloaded: list[tuple[torch.Tensor, torch.device, torch.Tensor | None]] = []
        self._folder: tempfile.TemporaryDirectory | None = None
        self.num_bytes = 0  # that left the last time
        self.seconds = 0.0  # spent for leaving and coming back, since somebody set it to 0

    def leave(self) -> None:
        """Move the content away; nothing happens if it is away."""
        if self._offloaded:
            return
        begin = time.perf_counter()
        tensors = list({id(tensor): tensor for tensor in self._tensors()}.values())
        files = {str(n): t.data for n, t in enumerate(tensors) if t.device.type == "cpu"}
        if files:
            self._folder = tempfile.TemporaryDirectory(prefix="rrf-offload-")
            save_file({name: values.contiguous() for name, values in files.items()}, self._file)
        self.num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        for number, tensor in enumerate(tensors):
            kept = None if str(number) in files else tensor.data.to("cpu")
            self._offloaded.append((tensor, tensor.device, kept))
            tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        if any(device.type == "cuda" for _, device, _ in self._offloaded):
            torch.cuda.empty_cache()
        self.seconds += time.perf_counter() - begin

    def back(self) -> None:
        """Bring the content back; nothing happens if it is here."""
        begin = time.perf_counter()
        files = load_file(self._file) if self._folder else {}
        for number, (tensor, device, kept) in enumerate(self._offloaded):
            tensor.data = files[str(number)] if kept is None else kept.to(device)
        self._offloaded = []
        if self._folder:
            self._folder.cleanup()
            self._folder = None
        self.seconds += time.perf_counter() - begin

    @property
    def _file(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "tensors.safetensors"


def tensors_of(*owners: nn.Module | torch.optim.Optimizer | None) -> Iterable[torch.Tensor]:
    """Parameters and buffers of modules, and the state of optimizers."""
    for owner in owners:
        if isinstance(owner, nn.Module):
            yield from owner.parameters()
            yield from owner.buffers()
        elif owner is not None:
            for state in owner.state.values():
                yield from (value for value in state.values() if isinstance(value, torch.Tensor))
