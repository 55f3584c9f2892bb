"""Perceptrons in compiled code: all layers in one call.

`fused_mlp.c` is compiled once per machine, by its own C compiler. Within `fused(...)`, networks that
the code knows use it: float32 weights on the CPU, ReLU between the layers, nothing else. All other
networks compute with torch, and so does everything on machines without a compiler.

The code runs on up to two cores, and results do not depend on their number. They cannot be
differentiated twice.

Legend: K copies of a network, B batch, I input width, O output width, L layers.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import subprocess
import tempfile
import typing
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

import torch
from torch import nn
from torch.autograd.function import once_differentiable

Products = typing.Literal["fp32", "bf16"]

_SOURCE = Path(__file__).with_suffix(".c")
_FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
_FLAGS += ["-fopenmp", "-shared", "-fPIC"]
_MOST_THREADS = 2  # "PARTS" of the code
_products: ContextVar[Products | None] = ContextVar("products", default=None)


@contextlib.contextmanager
def fused(products: Products) -> Iterator[None]:
    """Use the compiled code within this context.

    Args:
        products: The precision of the factors in hidden layers. "bf16" is float32 on processors
            that do not multiply it.
    """
    token = _products.set(products)
    try:
        yield
    finally:
        _products.reset(token)


def is_wanted(layers: nn.Sequential, x: torch.Tensor) -> bool:
    """Whether to compute with `perceptron`, here and now.

    Args:
        layers: Linear ones with ReLU between them.
        x: The inputs.
    """
    if _products.get() is None or x.numel() == 0:
        return False
    weight = parameters(layers)[0]
    is_usual = weight.device.type == "cpu" and weight.dtype == torch.float32
    return is_usual and library() is not None


def perceptron(layers: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """Outputs of linear layers with ReLU between them.

    Args:
        layers: Of type nn.Linear; or BatchedLinear, for copies of a network.
        x: [B, I]; or [K, B, I], for copies of a network.

    Returns:
        float32 [B, O], or [K, B, O] for copies of a network.
    """
    return typing.cast(torch.Tensor, _Perceptron.apply(x, *parameters(layers)))


def parameters(layers: nn.Sequential) -> list[nn.Parameter]:
    """Those of `layers.parameters()`, found in a tenth of the time."""
    every = (layer._parameters.values() for layer in layers._modules.values() if layer)
    return [one for some in every for one in some if one is not None]


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *parameters):  # pyright: ignore[reportIncompatibleMethodOverride]
        call = _Call(x.float().contiguous(), parameters)
        outputs = call.forward()
        ctx.call = call
        ctx.save_for_backward(call.x, *parameters)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.saved_tensors  # raises an error if one of them was changed meanwhile
        needs_x, needs_weights = ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:])
        return ctx.call.backward(gradient.contiguous(), needs_x, needs_weights)


class _Call:
    """The arguments of the compiled code for one pass. It holds the tensors to which they point."""

    def __init__(self, x: torch.Tensor, parameters: Sequence[torch.Tensor]):
        self.x, self.parameters = x, parameters
        weights = parameters[::2]
        self.are_copies = weights[0].dim() == 3
        ins, outs = (1, 2) if self.are_copies else (1, 0)
        widths = [weights[0].shape[ins], *(weight.shape[outs] for weight in weights)]
        self.copies = weights[0].shape[0] if self.are_copies else 1
        rows = x.shape[-2]
        self.outputs = [torch.empty(self.copies, rows, width) for width in widths[1:]]
        self.network = _Network(
            copies=self.copies,
            rows=rows,
            layers=len(weights),
            widths=_longs(widths),
            x=x.data_ptr(),
            x_stride=rows * widths[0] if x.dim() == 3 else 0,
            weights=_addresses(weights),
            in_strides=_longs([weight.stride(ins) for weight in weights]),
            out_strides=_longs([weight.stride(outs) for weight in weights]),
            biases=_addresses(parameters[1::2]),
            outputs=_addresses(self.outputs),
            half=_products.get() == "bf16" and library().multiplies_half(),
            threads=num_threads(),
        )

    def forward(self) -> torch.Tensor:
        """Compute and return the outputs."""
        library().forward(ctypes.byref(self.network))
        *self.outputs, found = self.outputs
        return found if self.are_copies else found[0]

    def backward(
        self, gradient: torch.Tensor, needs_x: bool, needs_weights: bool
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of x and of the parameters, from that of the outputs."""
        rows, width = self.x.shape[-2:]
        of_x = torch.empty(self.copies, rows, width) if needs_x else None
        found = [torch.empty_like(one) for one in self.parameters] if needs_weights else []
        scratch = torch.empty(sum(one.numel() for one in found))
        gradients = _Gradients(
            outputs=gradient.data_ptr(),
            x=of_x.data_ptr() if of_x is not None else None,
            weights=_addresses(found[::2]) if found else None,
            biases=_addresses(found[1::2]) if found else None,
            scratch=scratch.data_ptr(),
        )
        library().backward(ctypes.byref(self.network), ctypes.byref(gradients))
        if of_x is not None and self.x.dim() == 2:
            of_x = of_x.sum(0) if self.copies > 1 else of_x[0]
        return of_x, *(found or [None] * len(self.parameters))


@functools.cache
def num_threads() -> int:
    """Threads of the compiled code, the calling one included."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(_MOST_THREADS, cores)


class _Network(ctypes.Structure):
    """As in fused_mlp.c."""

    _fields_: typing.ClassVar = [
        ("copies", ctypes.c_long),
        ("rows", ctypes.c_long),
        ("layers", ctypes.c_long),
        ("widths", ctypes.POINTER(ctypes.c_long)),
        ("x", ctypes.c_void_p),
        ("x_stride", ctypes.c_long),
        ("weights", ctypes.POINTER(ctypes.c_void_p)),
        ("in_strides", ctypes.POINTER(ctypes.c_long)),
        ("out_strides", ctypes.POINTER(ctypes.c_long)),
        ("biases", ctypes.POINTER(ctypes.c_void_p)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("half", ctypes.c_long),
        ("threads", ctypes.c_long),
    ]


class _Gradients(ctypes.Structure):
    """As in fused_mlp.c."""

    _fields_: typing.ClassVar = [
        ("outputs", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("weights", ctypes.POINTER(ctypes.c_void_p)),
        ("biases", ctypes.POINTER(ctypes.c_void_p)),
        ("scratch", ctypes.c_void_p),
    ]


def _longs(numbers: Sequence[int]) -> ctypes.Array:
    return (ctypes.c_long * len(numbers))(*numbers)


def _addresses(tensors: Sequence[torch.Tensor]) -> ctypes.Array:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


# ------------------------------------------------------------------------------- compilation


@functools.cache
def library() -> typing.Any:
    """The compiled code; None where it cannot be compiled."""
    try:
        return ctypes.CDLL(str(_compiled()))
    except (OSError, subprocess.SubprocessError):
        return None


def _compiled() -> Path:
    """The path of the compiled code. It is compiled anew if the code or the machine is another."""
    compiler = os.environ.get("CC", "cc")
    facts = [compiler, *_FLAGS, _SOURCE.read_text(), platform.machine(), _processor()]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    kept = _own_folder() / f"fused_mlp-{digest}.so"
    if not kept.is_file():
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            made = Path(scratch) / kept.name
            words = [compiler, *_FLAGS, str(_SOURCE), "-o", str(made)]
            subprocess.run(words, check=True, capture_output=True, timeout=120)
            made.replace(kept)
    return kept


def _processor() -> str:
    """What the processor can do; the code is compiled for exactly this one."""
    cpu_info = Path("/proc/cpuinfo")  # exists on Linux only
    if not cpu_info.is_file():
        return platform.processor()
    lines = cpu_info.read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _own_folder() -> Path:
    """The user's cache. What is loaded from it runs, so nobody else may write there.

    Raises:
        OSError: If somebody else may, or if there is no such folder and none can be made.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "rrf"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"others may write to {folder}")
    return folder
