"""Means over all processes of a distributed run (torchrun); otherwise over this process alone."""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from rrf.envs.failure import EnvError, NotFiniteError


@contextlib.contextmanager
def together(device: torch.device) -> Iterator[None]:
    """Raise NotFiniteError or EnvError in all processes if one of them raises it within the block.

    Otherwise the other processes would later wait for that process forever.
    """
    error = None
    try:
        yield
    except (NotFiniteError, EnvError) as met:
        error = met
    if error is None and not dist.is_initialized():
        return  # nothing here waits for a device
    met = torch.tensor([isinstance(error, EnvError), error is not None], device=device)
    num_failed, num_met = total(met.float()).tolist()
    if num_failed:
        raise error or EnvError("an environment of another process failed")
    if num_met:
        raise error or NotFiniteError("another process met a number that is not finite")


def mean(value: torch.Tensor) -> torch.Tensor:
    """The mean of a scalar over the processes; each has the same number of samples."""
    if not dist.is_initialized():
        return value
    value = value.clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def total(values: torch.Tensor) -> torch.Tensor:
    """The sum over the processes."""
    if not dist.is_initialized():
        return values
    values = values.clone()
    dist.all_reduce(values)
    return values


def once(values: torch.Tensor) -> torch.Tensor:
    """`values` in the first process and zeros in the others, so that `total` counts them once."""
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    return values if is_first else torch.zeros_like(values)


def from_first(values: torch.Tensor) -> torch.Tensor:
    """The first process's `values`, in every process."""
    if not dist.is_initialized():
        return values
    values = values.clone()
    dist.broadcast(values, src=0)
    return values


def normalized(values: torch.Tensor, eps: float = 1e-8) -> torch.Tensor:
    """(x - mean) / (std + eps), with the mean and the unbiased std over all processes."""
    if not dist.is_initialized():
        return (values - values.mean()) / (values.std() + eps)
    count = values.numel() * dist.get_world_size()
    center = mean(values.mean())
    squares = (values - center).square().sum()
    dist.all_reduce(squares)
    return (values - center) / ((squares / (count - 1)).sqrt() + eps)


def average_gradients(module: nn.Module) -> None:
    """Replace every gradient by its mean over the processes, with one all-reduce."""
    if not dist.is_initialized():
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, part in zip(gradients, flat.split(sizes), strict=True):
        gradient.copy_(part.view_as(gradient))
