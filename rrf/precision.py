"""The precision of training: 32-bit floats, or bfloat16 products with 32-bit weights."""

import contextlib
import functools
import typing
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import torch

Precision = typing.Literal["fp32", "bf16", "auto"]
Products = typing.Literal["fp32", "bf16"]
"""What the factors of a product are rounded to in compiled code."""

_products: ContextVar[Products | None] = ContextVar("products", default=None)


def autocast(
    precision: Precision, device: torch.device, keeps_weights: bool = False
) -> typing.ContextManager:
    """A context that computes in `precision`; "auto" is bf16 where the device is faster with it.

    Args:
        keeps_weights: Cast each weight only once within the context, for passes that use a network
            several times. Only for algorithms that learn in a single thread: torch keeps one cache
            of cast weights for all threads, and the first that leaves the context empties it.
    """
    if not is_bf16(precision, device):
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=keeps_weights)


@contextlib.contextmanager
def fast_pass(precision: Precision, device: torch.device) -> Iterator[None]:
    """`autocast`, in which perceptrons may compute in compiled code (`rrf.compiled.perceptron`).

    Only for passes that are differentiated at most once.
    """
    with allowing_compiled(products(precision, device)), autocast(precision, device):
        yield


@contextlib.contextmanager
def allowing_compiled(products: Products) -> Iterator[None]:
    """Within this context perceptrons that compiled code knows are computed by it.

    Args:
        products: The precision of the factors in hidden layers. "bf16" is float32 on processors
            that do not multiply it.
    """
    token = _products.set(products)
    try:
        yield
    finally:
        _products.reset(token)


def compiled_products() -> Products | None:
    """The innermost `allowing_compiled`; None outside of one."""
    return _products.get()


def products(precision: Precision, device: torch.device) -> Products:
    """The factors that `precision` means for compiled code, which does not use AMX."""
    is_half = precision == "bf16" or (precision == "auto" and _avx512_multiplies_bf16(device))
    return "bf16" if is_half else "fp32"


def is_bf16(precision: Precision, device: torch.device) -> bool:
    """Whether `precision` means bfloat16 products on this device."""
    return precision == "bf16" or (precision == "auto" and _multiplies_bf16(device))


def _multiplies_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    has_amx = device.type == "cpu" and torch.cpu._is_amx_tile_supported()
    return has_amx or _avx512_multiplies_bf16(device)


def _avx512_multiplies_bf16(device: torch.device) -> bool:
    # torch's public function only tells "AVX512", with which bf16 may be emulated, slowly.
    # With the instructions, bf16 is twice as fast as fp32 on AMD's Zen 4, and half as fast on an
    # Intel Xeon.
    return device.type == "cpu" and torch.cpu._is_avx512_bf16_supported() and _is_amd()


@functools.cache
def _is_amd() -> bool:
    cpu_info = Path("/proc/cpuinfo")  # exists on Linux only
    return cpu_info.is_file() and "AuthenticAMD" in cpu_info.read_text()
