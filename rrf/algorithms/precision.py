"""The arithmetic of learning: 32-bit floats, or bfloat16 products with 32-bit weights."""

import contextlib
import typing

import torch

Precision = typing.Literal["fp32", "bf16", "auto"]


def autocast(precision: Precision, device: torch.device) -> typing.ContextManager:
    """Compute as `precision` says; auto is bf16 where the processor multiplies it itself."""
    if precision == "auto":
        precision = "bf16" if _multiplies_bf16(device) else "fp32"
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def _multiplies_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # torch says no more publicly than "AVX512", with which bf16 may be emulated, slowly.
    return device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()
