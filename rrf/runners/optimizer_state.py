"""Optimizer state as named tensors, which can be saved without pickle."""

from collections.abc import Mapping

import torch
from torch import nn


def pack(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, torch.Tensor]:
    """`{"exp_avg/head.output.weight": tensor, ...}`. Every value the optimizer keeps must be a
    tensor."""
    packed = {}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            packed[f"{key}/{name}"] = value
    return packed


def restore(
    optimizer: torch.optim.Optimizer, module: nn.Module, packed: Mapping[str, torch.Tensor]
) -> None:
    """Put back what `pack` took.

    A fused optimizer reads state and weights as flat memory, so each tensor gets the memory order
    of its parameter.
    """
    parameters = dict(module.named_parameters())
    for path, value in packed.items():
        key, _, name = path.partition("/")
        parameter = parameters[name]
        like = parameter.detach() if value.shape == parameter.shape else value
        optimizer.state[parameter][key] = torch.empty_like(like).copy_(value)
