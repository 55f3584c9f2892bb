"""How the processes of a supervised run share its work.

A batch consists of parts (micro-batches). Each process computes its share of the parts, one after
the other, and the gradients are added up. A part is weighted by its number of real steps, so that
the result is that of the whole batch, and a part has a seed of its own, so that it is the same
whoever computes it. With the same number of parts, a run therefore gives the same result with any
number of processes (bit for bit with one or two; with more, additions happen in another order).

Weights are either whole on every process (DistributedDataParallel) or divided among them (FSDP2,
arXiv:2304.11277): then no process ever holds all of them, except while a block computes.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from rrf.algorithms.vla.behavior_cloning import BehaviorCloning
from rrf.data.dataset.sampling import mixed_seed
from rrf.data.schema import Batch
from rrf.runners import process_group
from rrf.runners.supervised.configs import ShardingCfg, SupervisedRunnerCfg


class Objective(nn.Module):
    """Maps a batch to its loss, a scalar with gradient, and metrics.

    Args:
        algorithm: What is to be minimised. Its policy's parameters are those of this module.
        device_type: Where it computes, "cpu" or "cuda".
        bf16: Compute in bfloat16 where torch's autocast thinks it safe.
    """

    def __init__(self, algorithm: BehaviorCloning, device_type: str, bf16: bool):
        super().__init__()
        self.policy = algorithm.policy
        self._algorithm, self._device_type, self._bf16 = algorithm, device_type, bf16

    def forward(
        self, batch: Batch, rng: np.random.Generator | None
    ) -> tuple[torch.Tensor, dict[str, float]]:
        with torch.autocast(self._device_type, torch.bfloat16, enabled=self._bf16):
            return self._algorithm.loss(batch, rng)


@dataclasses.dataclass
class Part:
    """A micro-batch."""

    frames: np.ndarray  # int64 [b]
    seed: int  # of torch's random numbers
    rng: np.random.Generator  # of the augmentation


def num_parts(cfg: SupervisedRunnerCfg) -> int:
    """The number of parts of a batch, over all processes.

    Raises:
        ValueError: If the processes cannot share them evenly.
    """
    processes = process_group.size()
    parts = cfg.num_microbatches or processes
    if parts % processes or cfg.batch_size < parts:
        raise ValueError(
            f"num_microbatches is {parts} and batch_size {cfg.batch_size}, allowed with "
            f"{processes} processes: a multiple of {processes}, and at least one frame in each"
        )
    return parts


def own_parts(cfg: SupervisedRunnerCfg, frames: np.ndarray, step: int) -> list[Part]:
    """The parts of batch `step` that this process computes."""
    count = num_parts(cfg)
    each = count // process_group.size()
    numbers = range(process_group.rank() * each, (process_group.rank() + 1) * each)
    pieces = np.array_split(frames, count)
    # A batch of a single part has the seeds that it had before there were parts.
    marks = [(step,) if count == 1 else (step, number) for number in numbers]
    return [
        Part(pieces[number], mixed_seed(cfg.seed, *mark), np.random.default_rng([cfg.seed, *mark]))
        for number, mark in zip(numbers, marks, strict=True)
    ]


def shares(batches: list[Batch]) -> list[float]:
    """The weight of each of this process's parts: its share of the real steps of the batch."""
    counts = [float((~batch.is_pad).sum()) for batch in batches]
    if process_group.size() == len(batches) == 1:
        return [1.0]
    total = summed({"steps": sum(counts)})["steps"]
    return [count / max(total, 1.0) for count in counts]


def summed(values: Mapping[str, float]) -> dict[str, float]:
    """Each value, added up over all processes. All processes must have the same names."""
    if process_group.size() == 1:
        return dict(values)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    numbers = torch.tensor(list(values.values()), dtype=torch.float64, device=device)
    dist.all_reduce(numbers)
    return dict(zip(values, numbers.tolist(), strict=True))


def replicate(objective: nn.Module) -> nn.Module:
    """The objective, with gradients averaged over all processes, if there are several."""
    if process_group.size() == 1:
        return objective
    # A critic, for instance, has no part in imitation.
    return nn.parallel.DistributedDataParallel(objective, find_unused_parameters=True)


@contextlib.contextmanager
def exchanging(objective: nn.Module, is_last: bool) -> Iterator[None]:
    """Whether the backward pass in this block exchanges gradients; only that of the last part
    must.
    """
    if isinstance(objective, nn.parallel.DistributedDataParallel) and not is_last:
        with objective.no_sync():
            yield
    else:
        yield


def shard(
    policy: nn.Module,
    blocks: list[nn.Module],
    cfg: ShardingCfg,
    bf16: bool,
    methods: Sequence[str] = ("loss",),
) -> None:
    """Divide a policy's weights among the processes, in place.

    Args:
        policy: The policy.
        blocks: Parts of it that are gathered one at a time; the rest is gathered as a whole.
        cfg: How.
        bf16: Whether blocks compute in bfloat16.
        methods: Where computations of the policy begin.

    Raises:
        ValueError: Without a group of processes, or if its size does not fit.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import (
        CPUOffloadPolicy,
        MixedPrecisionPolicy,
        OffloadPolicy,
        fully_shard,
        register_fsdp_forward_method,
    )

    size = process_group.size()
    if size == 1 or size % (cfg.shard_size or size):
        raise ValueError(
            f"sharding.shard_size is {cfg.shard_size or size} with {size} processes, allowed: a "
            "divisor of the number of processes, and several of them; start the run with "
            "torchrun --nproc_per_node=N -m rrf train ..."
        )
    kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
    inner = cfg.shard_size or size
    if inner == size:
        mesh = init_device_mesh(kind, (size,))
    else:
        names = ("replicate", "shard")
        mesh = init_device_mesh(kind, (size // inner, inner), mesh_dim_names=names)
    options = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16 if bf16 else None),
        "offload_policy": CPUOffloadPolicy() if cfg.offloads_to_cpu else OffloadPolicy(),
    }
    for block in blocks:
        fully_shard(block, **options)
    fully_shard(policy, **options)
    for method in methods:
        register_fsdp_forward_method(policy, method)
