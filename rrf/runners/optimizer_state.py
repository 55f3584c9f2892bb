"""What training needs beside the deployed weights, as named tensors that are saved without pickle:
optimizer state and, where an average of the weights is deployed, the weights being trained.
"""

from collections.abc import Mapping

import torch
from torch import nn

from rrf.runners.ema import EMA

_WEIGHTS = "weights/"


def pack(
    optimizer: torch.optim.Optimizer, module: nn.Module, ema: EMA | None
) -> dict[str, torch.Tensor]:
    """`{"exp_avg/head.output.weight": tensor, "weights/head.output.weight": tensor, ...}`. Every
    value the optimizer keeps must be a tensor."""
    packed = {}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            packed[f"{key}/{name}"] = value
    if ema:
        packed |= {_WEIGHTS + name: value for name, value in module.state_dict().items()}
    return packed


def restore(
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    ema: EMA | None,
    deployed: Mapping[str, torch.Tensor],
    packed: Mapping[str, torch.Tensor],
) -> None:
    """Put back the deployed weights and what `pack` took.

    A fused optimizer reads state and weights as flat memory, so each tensor gets the memory order
    of its parameter.
    """
    raw = {n.removeprefix(_WEIGHTS): packed[n] for n in packed if n.startswith(_WEIGHTS)}
    module.load_state_dict(raw if ema else deployed)
    if ema:
        ema.module.load_state_dict(deployed)
    parameters = dict(module.named_parameters())
    for path, value in packed.items():
        if path.startswith(_WEIGHTS):
            continue
        key, _, name = path.partition("/")
        parameter = parameters[name]
        like = parameter.detach() if value.shape == parameter.shape else value
        optimizer.state[parameter][key] = torch.empty_like(like).copy_(value)
