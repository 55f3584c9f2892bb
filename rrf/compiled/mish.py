"""Mish (arXiv:1908.08681), several times faster on a CPU than torch's own.

    mish(x) = x t,  t = tanh(softplus(x)) = n / (n + 2),  n = e^x (e^x + 2)

The derivative is t + x (1 - t^2) sigmoid(x). Everything is computed in float32, by `mish.c` where
there is a C compiler.
"""

import ctypes
import functools
import typing
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from rrf.compiled import compiler

_IN_C = {torch.float32, torch.bfloat16}


class Mish(nn.Module):
    """x tanh(softplus(x)), elementwise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return mish(x)


class NormedMish(nn.LayerNorm):
    """Layer normalisation, then Mish."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        both = normed_mish(input, self.weight, self.bias, self.eps)
        return mish(super().forward(input)) if both is None else both


def mish(x: torch.Tensor) -> torch.Tensor:
    """x tanh(softplus(x)), elementwise."""
    if not _is_usable(x):
        return functional.mish(x)
    if torch.is_grad_enabled() and x.requires_grad:
        return typing.cast(torch.Tensor, _Mish.apply(x))
    value, _ = _computed(x, needs_slope=False)
    return value.to(x.dtype)


def normed_mish(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor | None:
    """Mish of a layer normalisation, in one pass.

    Args:
        x: [..., D], or [K, B, D] with different scales for each of K copies.
        weight: The scale, [D] or [K, 1, D].
        bias: The shift, of the same shape.
        eps: Added to the variance.

    Returns:
        The shape and type of `x`; float32 under autocast. None if a gradient is needed, and where
        the code cannot run.
    """
    needs_gradient = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if needs_gradient or not _is_usable(x) or not {x.dtype, weight.dtype} <= _IN_C:
        return None
    dtype = torch.float32 if torch.is_autocast_enabled("cpu") else x.dtype
    x, value = x.contiguous(), torch.empty(x.shape, dtype=dtype)
    copies, width = (len(weight) if weight.dim() == 3 else 1), x.shape[-1]
    sizes = (copies, x.numel() // (copies * width), width)
    halves = [tensor.dtype == torch.bfloat16 for tensor in (x, weight, value)]
    addresses = [tensor.data_ptr() for tensor in (x, weight, bias, value)]
    library().normed_mish(*addresses, *sizes, eps, *halves)
    return value


@functools.cache
def library() -> typing.Any:
    """The compiled code; None where it cannot be compiled."""
    code = compiler.library(Path(__file__).with_suffix(".c"))
    if code is not None:
        code.mish.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_long]
        of_sizes = [ctypes.c_long] * 3
        code.normed_mish.argtypes = [*[ctypes.c_void_p] * 4, *of_sizes, ctypes.c_float, *of_sizes]
    return code


def _is_usable(x: torch.Tensor) -> bool:
    """Whether the compiled code can be called; graphs of operators cannot contain it."""
    is_graph = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return x.device.type == "cpu" and not is_graph and library() is not None


class _Mish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # pyright: ignore[reportIncompatibleMethodOverride]
        value, slope = _computed(x, needs_slope=True)
        ctx.save_for_backward(slope)
        return value.to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        (slope,) = ctx.saved_tensors
        return gradient * slope


def _computed(x: torch.Tensor, needs_slope: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    full = x.detach().float().contiguous()
    value = torch.empty_like(full)
    slope = torch.empty_like(full) if needs_slope else None
    to_slope = None if slope is None else slope.data_ptr()
    library().mish(full.data_ptr(), value.data_ptr(), to_slope, full.numel())
    return value, slope
