"""Builds optimizers, with learning rates of their own for parts of a policy."""

from collections.abc import Mapping

import torch
from torch import nn

from rrf.config import did_you_mean
from rrf.runners.configs import AdamWCfg
from rrf.runners.sharded_tensors import is_divided

LR_FACTOR = "lr_factor"  # key in a parameter group


def build_adamw(
    module: nn.Module, cfg: AdamWCfg, lr_factors: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters of a module.

    Args:
        module: Whose parameters.
        cfg: Its config.
        lr_factors: Beginning of parameter names -> factor on the learning rate, which becomes
            "lr_factor" of a parameter group. The longest beginning counts; 1 where none fits.

    Raises:
        ValueError: If nothing is trained, or without the package or the GPU that 8-bit states need.
    """
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            groups.setdefault(_factor(name, lr_factors or {}), []).append(parameter)
    if not groups:
        raise ValueError("no parameter is trained; set tuning or lr_factors so that some are")
    rows = [{"params": group, LR_FACTOR: factor} for factor, group in groups.items()]
    options = {"lr": cfg.lr, "betas": cfg.betas, "eps": cfg.eps, "weight_decay": cfg.weight_decay}
    if cfg.is_8bit:
        return _eight_bit()(rows, **options)
    is_sharded = any(map(is_divided, module.parameters()))
    return torch.optim.AdamW(rows, **options, fused=not is_sharded, foreach=is_sharded or None)


def freeze(module: nn.Module, lr_factors: Mapping[str, float]) -> None:
    """Stop the training of parameters whose factor is 0.

    Raises:
        ValueError: If no parameter begins with one of the names.
    """
    names = [name for name, _ in module.named_parameters()]
    for start in lr_factors:
        if not any(_begins(name, start) for name in names):
            parts = sorted({name.split(".")[0] for name in names})
            raise ValueError(
                f"lr_factors names '{start}', but no parameter begins so"
                f"{did_you_mean(start, parts)}; there are: {', '.join(parts)}"
            )
    for name, parameter in module.named_parameters():
        if _factor(name, lr_factors) == 0:
            parameter.requires_grad_(False)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group to `lr` times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group[LR_FACTOR]


def _factor(name: str, factors: Mapping[str, float]) -> float:
    fitting = [start for start in factors if _begins(name, start)]
    return factors[max(fitting, key=len)] if fitting else 1.0


def _begins(name: str, start: str) -> bool:
    return name == start or name.startswith(f"{start}.")


def _eight_bit() -> type[torch.optim.Optimizer]:
    if not torch.cuda.is_available():
        raise ValueError("optimizer.is_8bit needs a GPU; leave it out on a CPU")
    try:
        import bitsandbytes  # type: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError(
            "optimizer.is_8bit needs the package bitsandbytes; type: pip install bitsandbytes"
        ) from error
    return bitsandbytes.optim.AdamW8bit
