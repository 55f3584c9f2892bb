"""Tensors that are divided among processes (FSDP2), and whole ones.

Only a group of processes divides tensors, so torch's code for that, which takes more than a second
to import, is loaded only there.
"""

from collections.abc import Mapping

import torch
import torch.distributed as dist


def is_divided(tensor: torch.Tensor) -> bool:
    """Whether this process holds only a part of a tensor."""
    if not dist.is_initialized():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this process holds."""
    return tensor.to_local() if is_divided(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors that may be divided among the processes, whole. All processes must call it."""
    return {
        name: value.full_tensor() if is_divided(value) else value  # type: ignore[attr-defined]
        for name, value in tensors.items()
    }


def spread(
    tensors: Mapping[str, torch.Tensor], like: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Whole tensors, divided like those of the same name, if these are divided."""
    return {name: _like(value, like.get(name)) for name, value in tensors.items()}


def _like(value: torch.Tensor, model: torch.Tensor | None) -> torch.Tensor:
    if model is None or not is_divided(model) or value.shape != model.shape:
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(model, DTensor)
    return distribute_tensor(
        value.to(model.device), model.device_mesh, model.placements, src_data_rank=None
    )
