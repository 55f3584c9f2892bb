"""The state that training needs besides the deployed weights, as named tensors (no pickle).

This is the optimizer state and, if averaged weights are deployed, the weights being trained.
"""

from collections.abc import Mapping

import torch
from torch import nn

from rrf.algorithms.optimizer_tensors import optimizer_tensors, restore_optimizer
from rrf.runners.ema import EMA
from rrf.runners.sharded_tensors import spread, whole

_WEIGHTS = "weights/"


def pack(
    optimizer: torch.optim.Optimizer, module: nn.Module, ema: EMA | None
) -> dict[str, torch.Tensor]:
    """`{"exp_avg/head.output.weight": tensor, "weights/head.output.weight": tensor, ...}`.

    Weights and state that are divided among processes are returned whole; all processes must call
    this.
    """
    packed = optimizer_tensors(optimizer, module)
    if ema:
        packed |= {_WEIGHTS + name: value for name, value in module.state_dict().items()}
    return whole(packed)


def restore(
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    ema: EMA | None,
    deployed: Mapping[str, torch.Tensor],
    packed: Mapping[str, torch.Tensor],
) -> None:
    """Restore the deployed weights and what `pack` returned."""
    raw = {n.removeprefix(_WEIGHTS): packed[n] for n in packed if n.startswith(_WEIGHTS)}
    state_dict = module.state_dict()
    module.load_state_dict(spread(raw if ema else deployed, state_dict))
    if ema:
        ema.module.load_state_dict(spread(deployed, ema.module.state_dict()))
    state = {name: value for name, value in packed.items() if not name.startswith(_WEIGHTS)}
    like = {path: state_dict[path.partition("/")[2]] for path in state}
    restore_optimizer(optimizer, module, spread(state, like))
