"""Several processes that train together, started by torchrun; one process is a group of one."""

import os

import torch
import torch.distributed as dist


def join(device: str) -> torch.device:
    """Join the group that torchrun's variables describe, if any; this process's own device.

    Raises:
        ValueError: For a device that torch does not know, or a GPU it does not see.
    """
    try:
        own = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device is '{device}', allowed: cpu, cuda, cuda:1, ...") from error
    if own.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is '{device}', but torch sees no GPU; use device=cpu")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return own
    if own.type == "cuda":
        own = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(own)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if own.type == "cuda" else "gloo")
    return own


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def agree(number: int | None) -> int | None:
    """The highest number that any process of the group has, None if none has one above 0: what one
    has met (a signal, an error), all act upon in the same iteration.
    """
    if not dist.is_initialized():
        return number
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    highest = torch.tensor(number or 0, device=device)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    return int(highest.item()) or None


def wait() -> None:
    """Until every process of the group is here."""
    if dist.is_initialized():
        dist.barrier()


def leave() -> None:
    """Dissolve the group, when all work is done."""
    if dist.is_initialized():
        dist.destroy_process_group()
