"""An optimizer's state as named tensors, which can be saved without pickle."""

from collections.abc import Mapping

import torch
from torch import nn


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, module: nn.Module
) -> dict[str, torch.Tensor]:
    """The optimizer's state as `{"exp_avg/head.output.weight": tensor, ...}`.

    Every value that the optimizer keeps must be a tensor or a whole number.
    """
    return {
        f"{key}/{name}": value if isinstance(value, torch.Tensor) else torch.tensor(value)
        for name, parameter in module.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, module: nn.Module, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Replace the optimizer's state with what `optimizer_tensors` returned.

    A fused optimizer reads state and weights as flat memory. Therefore each tensor is stored in
    the memory order of its parameter.
    """
    parameters = dict(module.named_parameters())
    for parameter in parameters.values():
        optimizer.state.pop(parameter, None)
    for path, value in tensors.items():
        key, _, name = path.partition("/")
        parameter = parameters[name]
        if value.ndim == 0 and value.dtype == torch.int64:  # a whole number, as bitsandbytes counts
            optimizer.state[parameter][key] = int(value)
            continue
        is_like = value.shape == parameter.shape
        like = parameter.detach() if is_like else value.to(parameter.device)
        optimizer.state[parameter][key] = torch.empty_like(like).copy_(value)


def beneath(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The entries whose names begin with `prefix`; the prefix is removed from the names."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
