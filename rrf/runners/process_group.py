"""The group of processes that train together, started by torchrun or `accelerate launch`; a single
process is a group."""

import os

import torch
import torch.distributed as dist

_OF_ACCELERATE = {
    "ACCELERATE_MIXED_PRECISION": "precision=bf16",
    "ACCELERATE_USE_FSDP": "sharding={}",
    "ACCELERATE_USE_DEEPSPEED": "sharding={}",
    "ACCELERATE_USE_MEGATRON_LM": "sharding={}",
}
"""What `accelerate launch` asks a program to do -> our setting for it."""


def join(device: str) -> torch.device:
    """Join the group that the launcher's environment variables describe, if there is one.

    Returns:
        The device of this process.

    Raises:
        ValueError: If torch does not know the device, or does not see a GPU, or if `accelerate
            launch` was told more than how many processes to start.
    """
    for name, setting in _OF_ACCELERATE.items():
        if (value := os.environ.get(name, "no").lower()) not in ("no", "false", ""):
            raise ValueError(
                f"accelerate launch asks for {name}={value}, which rrf takes from its own config: "
                f"{setting}; set it there, and leave it out of accelerate's"
            )
    of_process = known_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return of_process
    if of_process.type == "cuda":
        of_process = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(of_process)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if of_process.type == "cuda" else "gloo")
    return of_process


def known_device(device: str) -> torch.device:
    """The device of that name.

    Raises:
        ValueError: If torch does not know the device, or does not see a GPU.
    """
    try:
        known = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device is '{device}', allowed: cpu, cuda, cuda:1, ...") from error
    if known.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is '{device}', but torch sees no GPU; use device=cpu")
    if known.type == "cuda" and (known.index or 0) >= (count := torch.cuda.device_count()):
        there = "one GPU, cuda:0" if count == 1 else f"{count} GPUs, cuda:0 to cuda:{count - 1}"
        raise ValueError(
            f"device is '{device}', but torch sees {there}; a flow shows each training one card, "
            "which is device=cuda there"
        )
    return known


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def agree(number: int | None) -> int | None:
    """The highest number among the processes of the group; None if no process has one above 0.

    If one process receives a signal, all processes thereby react to it in the same iteration.
    """
    if not dist.is_initialized():
        return number
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    highest = torch.tensor(number or 0, device=device)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    return int(highest.item()) or None


def wait() -> None:
    """Wait until every process of the group has called this function."""
    if dist.is_initialized():
        dist.barrier()


def leave() -> None:
    """Dissolve the group when all work is done."""
    if dist.is_initialized():
        dist.destroy_process_group()
