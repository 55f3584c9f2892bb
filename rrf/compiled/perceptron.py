"""Perceptrons in compiled code: all layers in one call.

The code knows linear layers with ReLU, tanh or ELU between them, of exactly these types, with
float32 weights on the CPU. Networks ask it within `rrf.precision.allowing_compiled`; what it does
not know they compute with torch.

The code runs on up to two cores, and results do not depend on their number. They cannot be
differentiated twice.

Legend: K copies of a network, B batch, I input width, O output width, L layers.
"""

import ctypes
import functools
import os
import typing
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from rrf.compiled import compiler
from rrf.precision import Products

Activation = typing.Literal["ReLU", "Tanh", "ELU"]

PARTS = 2  # as in perceptron.c; the most threads
_ACTIVATIONS: dict[Activation, int] = {"ReLU": 2, "Tanh": 3, "ELU": 4}  # as in perceptron.c


def known_activation(layers: nn.Sequential, linear: type[nn.Module]) -> Activation | None:
    """The activation between the layers of a network that the code knows; None if it does not.

    Only the very types count: a subclass, a parametrisation or a hook may compute something else.

    Args:
        linear: The type of the linear layers: nn.Linear, or BatchedLinear for copies of a network.
    """
    every = list(layers._modules.values())
    between = every[1::2]
    kind = type(between[0]) if between else nn.ReLU  # a single layer has any of them
    is_known = (
        len(every) % 2 == 1
        and kind in (nn.ReLU, nn.Tanh, nn.ELU)
        and all(type(layer) is linear for layer in every[::2])
        and all(type(layer) is kind and getattr(layer, "alpha", 1.0) == 1.0 for layer in between)
        and not any(layer._forward_hooks or layer._forward_pre_hooks for layer in (layers, *every))
    )
    return typing.cast(Activation, kind.__name__) if is_known else None


def is_usable(layers: nn.Sequential, x: torch.Tensor) -> bool:
    """Whether `perceptron` can be called with layers of a `known_activation` and inputs, here."""
    if x.numel() == 0:
        return False
    weight = parameters(layers)[0]
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and library() is not None


def perceptron(
    layers: nn.Sequential, x: torch.Tensor, activation: Activation, products: Products
) -> torch.Tensor:
    """Outputs of linear layers with an activation between them.

    Args:
        layers: Of type nn.Linear; or BatchedLinear, for copies of a network.
        x: [B, I]; or [K, B, I], for copies of a network.
        activation: See `known_activation`.
        products: The precision of the factors in hidden layers.

    Returns:
        float32 [B, O], or [K, B, O] for copies of a network.
    """
    return typing.cast(
        torch.Tensor, _Perceptron.apply(x, activation, products, *parameters(layers))
    )


def parameters(layers: nn.Sequential) -> list[nn.Parameter]:
    """Those of `layers.parameters()`, found in a tenth of the time."""
    tables = (layer._parameters.values() for layer in layers._modules.values() if layer)
    return [tensor for table in tables for tensor in table if tensor is not None]


@functools.cache
def library() -> typing.Any:
    """The compiled code; None where it cannot be compiled."""
    return compiler.library(Path(__file__).with_suffix(".c"))


@functools.cache
def num_threads() -> int:
    """Threads of the compiled code, the calling one included."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(PARTS, cores)


class NetworkStruct(ctypes.Structure):
    """`Network` of perceptron.c."""

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
        ("activation", ctypes.c_long),
        ("threads", ctypes.c_long),
    ]


class GradientsStruct(ctypes.Structure):
    """`Gradients` of perceptron.c."""

    _fields_: typing.ClassVar = [
        ("outputs", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("weights", ctypes.POINTER(ctypes.c_void_p)),
        ("biases", ctypes.POINTER(ctypes.c_void_p)),
        ("scratch", ctypes.c_void_p),
    ]


class Pass:
    """The arguments of a pass through a network, and the tensors to which they point."""

    def __init__(
        self,
        x: torch.Tensor,
        parameters: Sequence[torch.Tensor],
        activation: Activation,
        products: Products,
    ):
        """
        Args:
            x: float32, contiguous; see `perceptron`.
            parameters: Weight and bias of each layer.
        """
        self.x, self.parameters = x, parameters
        weights = parameters[::2]
        self.are_copies = weights[0].dim() == 3
        ins, outs = (1, 2) if self.are_copies else (1, 0)
        widths = [weights[0].shape[ins], *(weight.shape[outs] for weight in weights)]
        self.copies = weights[0].shape[0] if self.are_copies else 1
        rows = x.shape[-2]
        self.outputs = [torch.empty(self.copies, rows, width) for width in widths[1:]]
        self.struct = NetworkStruct(
            copies=self.copies,
            rows=rows,
            layers=len(weights),
            widths=_long_array(widths),
            x=x.data_ptr(),
            x_stride=rows * widths[0] if x.dim() == 3 else 0,
            weights=_addresses(weights),
            in_strides=_long_array([weight.stride(ins) for weight in weights]),
            out_strides=_long_array([weight.stride(outs) for weight in weights]),
            biases=_addresses(parameters[1::2]),
            outputs=_addresses(self.outputs),
            half=products == "bf16" and library().multiplies_half(),
            activation=_ACTIVATIONS[activation],
            threads=num_threads(),
        )


class PassGradients:
    """The gradients that the code computes for a pass, not yet computed."""

    def __init__(self, of: Pass, outputs: torch.Tensor, needs_x: bool, needs_weights: bool):
        """
        Args:
            outputs: The gradient of the outputs, contiguous.
        """
        self.outputs = outputs
        self.x = torch.empty(of.copies, *of.x.shape[-2:]) if needs_x else None
        self.parameters = [torch.empty_like(weight) for weight in of.parameters if needs_weights]
        self.scratch = torch.empty(sum(gradient.numel() for gradient in self.parameters))
        self.struct = GradientsStruct(
            outputs=outputs.data_ptr(),
            x=None if self.x is None else self.x.data_ptr(),
            weights=_addresses(self.parameters[::2]) if needs_weights else None,
            biases=_addresses(self.parameters[1::2]) if needs_weights else None,
            scratch=self.scratch.data_ptr(),
        )


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, activation, products, *parameters):  # pyright: ignore[reportIncompatibleMethodOverride]
        call = Pass(x.float().contiguous(), parameters, activation, products)
        library().forward(ctypes.byref(call.struct))
        ctx.save_for_backward(call.x, *parameters)
        ctx.call = call
        *call.outputs, outputs = call.outputs  # what autograd returns must not be kept here as well
        return outputs if call.are_copies else outputs[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        _ = ctx.saved_tensors  # raises an error if one of them was changed meanwhile
        call, (needs_x, _, _, *needs_weights) = ctx.call, ctx.needs_input_grad
        gradients = PassGradients(call, gradient.contiguous(), needs_x, any(needs_weights))
        library().backward(ctypes.byref(call.struct), ctypes.byref(gradients.struct))
        of_x = gradients.x
        if of_x is not None and call.x.dim() == 2:  # one input for all copies
            of_x = of_x.sum(0) if call.copies > 1 else of_x[0]
        return of_x, None, None, *(gradients.parameters or [None] * len(needs_weights))


def _long_array(numbers: Sequence[int]) -> ctypes.Array:
    return (ctypes.c_long * len(numbers))(*numbers)


def _addresses(tensors: Sequence[torch.Tensor]) -> ctypes.Array:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
