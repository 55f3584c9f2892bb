"""The state that training needs besides the deployed weights, as named tensors (no pickle).

This is the optimizer state and, if averaged weights are deployed, the weights being trained.
"""

from collections.abc import Mapping

import torch
from torch import nn

from rrf.algorithms.optimizer_tensors import optimizer_tensors, restore_optimizer
from rrf.runners.ema import EMA

_WEIGHTS = "weights/"


def pack(
    optimizer: torch.optim.Optimizer, module: nn.Module, ema: EMA | None
) -> dict[str, torch.Tensor]:
    """`{"exp_avg/head.output.weight": tensor, "weights/head.output.weight": tensor, ...}`.

    Every value that the optimizer keeps must be a tensor.
    """
    packed = optimizer_tensors(optimizer, module)
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
    """Restore the deployed weights and what `pack` returned."""
    raw = {n.removeprefix(_WEIGHTS): packed[n] for n in packed if n.startswith(_WEIGHTS)}
    module.load_state_dict(raw if ema else deployed)
    if ema:
        ema.module.load_state_dict(deployed)
    state = {name: value for name, value in packed.items() if not name.startswith(_WEIGHTS)}
    restore_optimizer(optimizer, module, state)
