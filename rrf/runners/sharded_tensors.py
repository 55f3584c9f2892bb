"""Tensors that are divided among processes (FSDP2), and whole ones."""

from collections.abc import Mapping

import torch
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors that may be divided among the processes, whole. All processes must call it."""
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in tensors.items()
    }


def spread(
    tensors: Mapping[str, torch.Tensor], like: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Whole tensors, divided like those of the same name, if these are divided."""
    divided = {}
    for name, value in tensors.items():
        model = like.get(name)
        if isinstance(model, DTensor) and value.shape == model.shape:
            value = distribute_tensor(
                value.to(model.device), model.device_mesh, model.placements, src_data_rank=None
            )
        divided[name] = value
    return divided
