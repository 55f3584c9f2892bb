"""Out of memory in a training step: what to lower, and by how much."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from rrf.networks.vlm.configs import LoRACfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners import process_group
from rrf.runners.footprint import Footprint, Memory, Tuning
from rrf.runners.supervised.configs import SupervisedRunnerCfg

USABLE = 0.9
"""Share of a device's memory that is counted on; libraries and fragmentation take the rest."""
_CPU = "can't allocate memory"  # torch raises a plain RuntimeError then


@contextlib.contextmanager
def explained(policy: nn.Module, cfg: SupervisedRunnerCfg, device: torch.device) -> Iterator[None]:
    """Turn an out-of-memory error within the block into one that says what to lower.

    Raises:
        MemoryError: In the place of torch's error.
    """
    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if not isinstance(error, torch.OutOfMemoryError) and _CPU not in str(error):
            raise
        raise MemoryError(advice(policy, cfg, memory_of(device))) from error


def memory_of(device: torch.device) -> int | None:
    """Bytes of memory of a GPU; None for a CPU, which shares its memory with everything else."""
    if device.type != "cuda":
        return None
    return torch.cuda.get_device_properties(device).total_memory


def advice(policy: nn.Module, cfg: SupervisedRunnerCfg, available: int | None) -> str:
    """What the step needs by computation, and the settings that lower it, the cheapest first.

    Args:
        policy: The policy that is trained.
        cfg: The run.
        available: Bytes of the device, if known.
    """
    parts = cfg.num_microbatches or process_group.size()
    at_once = -(-cfg.batch_size // parts)
    tuning = tuning_of(cfg)
    needs = Footprint(policy, cfg)
    memory = needs.memory(tuning)
    settings = (
        f"batch_size {cfg.batch_size} in {parts} part(s), {at_once} samples at once, need about "
        f"{_gb(memory.total(at_once))} by computation ({_gb(memory.weights)} weights, "
        f"{_gb(memory.gradients)} gradients, {_gb(memory.optimizer)} optimizer, "
        f"{_gb(memory.activations * at_once)} activations)"
    )
    if available is not None:
        settings += f"; the device has {_gb(available)}"
    return f"{settings}. Lower, in this order: {'; '.join(_steps(needs, cfg, memory, available))}"


def tuning_of(cfg: SupervisedRunnerCfg) -> Tuning:
    """How the run trains its backbone."""
    if not isinstance(cfg.policy, VLMPolicyCfg) or cfg.policy.backbone.tuning == "full":
        return "full"
    return "lora" if isinstance(cfg.policy.backbone.tuning, LoRACfg) else "frozen"


def parts_that_fit(cfg: SupervisedRunnerCfg, memory: Memory, available: float | None) -> int | None:
    """The fewest micro-batches that fit, a multiple of the present ones; None if none do."""
    parts = cfg.num_microbatches or process_group.size()
    tried = parts * 2
    while tried <= cfg.batch_size:
        at_once = -(-cfg.batch_size // tried)
        if available is None or memory.total(at_once) <= USABLE * available:
            return tried
        tried *= 2
    return None


def _steps(
    needs: Footprint, cfg: SupervisedRunnerCfg, memory: Memory, available: int | None
) -> list[str]:
    steps = []
    tuning = tuning_of(cfg)
    if parts := parts_that_fit(cfg, memory, available):
        at_once = -(-cfg.batch_size // parts)
        steps.append(
            f"num_microbatches={parts} ({at_once} at once, about {_gb(memory.total(at_once))}, "
            "the same batch)"
        )
    backbone = cfg.policy.backbone if isinstance(cfg.policy, VLMPolicyCfg) else None
    if backbone is not None and not backbone.gradient_checkpointing and tuning != "frozen":
        saving = cfg.policy.replace(backbone=backbone.replace(gradient_checkpointing=True))
        less = Footprint(needs.policy, cfg.replace(policy=saving)).memory(tuning)
        steps.append(
            "policy.backbone.gradient_checkpointing=true (about "
            f"{_gb(less.activations)} per sample instead of {_gb(memory.activations)})"
        )
    if not cfg.optimizer.is_8bit:
        steps.append(f"optimizer.is_8bit=true (less than the {_gb(memory.optimizer)} of now)")
    if backbone is not None and tuning == "full":
        frozen = needs.memory("frozen")
        steps.append(
            "policy.backbone.tuning='{type: rrf.networks.vlm.configs:LoRACfg}' (about "
            f"{_gb(frozen.fixed)} and adapters before any sample, instead of {_gb(memory.fixed)})"
        )
    if process_group.size() == 1:
        steps.append(
            f"sharding={{}} with torchrun on N GPUs (about {_gb(memory.fixed)} / N each); with one "
            "GPU sharding.offloads_to_cpu=true needs torchrun, too"
        )
    elif cfg.sharding is None:
        each = memory.fixed / process_group.size()
        steps.append(f"sharding={{}} (about {_gb(each)} instead of {_gb(memory.fixed)} each)")
    if cfg.batch_size > 1:
        steps.append(f"batch_size={cfg.batch_size // 2} (another result)")
    return steps


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.3g} GB"
