"""Training speed of policies of real size on a GPU: `python -m benchmarks.vla_gpu [ID ...]`.

Random weights, two images of 224 px, 30 tokens of prompt, bfloat16; loss, backward pass, clipping
and fused AdamW. It needs torch, transformers and numpy, and no data. Model FLOP utilisation is
that of the operations which `rrf doctor` estimates, of the peak named in `_PEAK_FLOPS`. `--small`
runs the presets of laptop size, to try the script, with `--device cpu` anywhere.
"""

import argparse
import dataclasses
import functools
import typing
from collections.abc import Callable, Sequence

import numpy as np
import torch

from benchmarks import harness
from benchmarks.clock import Stopwatch
from benchmarks.harness import Bench
from benchmarks.peers import NotMeasuredError
from rrf.data.schema import ACTION, STATE, Batch, Observation
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from rrf.runners.footprint import Footprint
from rrf.runners.optimizers import build_adamw
from rrf.runners.supervised.configs import SupervisedRunnerCfg

_PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""Dense bfloat16 operations per second, from NVIDIA's data sheets."""
_STATE_DIM, _ACTION_DIM = 8, 7
_WARM_UP, _STEPS = 3, 10
WORDS = [f"w{index}" for index in range(30)]


@dataclasses.dataclass(frozen=True)
class Case:
    """One number: a preset, what of it is trained, and the same at laptop size."""

    preset: str
    tiny: str
    is_frozen: bool = False
    batches: Sequence[int] = (64, 32, 16, 8)


CASES = {
    "qwen2vl_2b_full_samples_per_s": Case("qwen2vl-2b-pretrain", "qwen2vl-laptop"),
    "qwen2vl_2b_frozen_samples_per_s": Case(
        "qwen2vl-2b-pretrain", "qwen2vl-laptop", is_frozen=True, batches=(256, 128, 64)
    ),
    "pi05_samples_per_s": Case("pi05-sft", "pi05-laptop"),
    "groot_n17_samples_per_s": Case("groot-n17-sft", "groot-laptop"),
}


def measure(name: str, bench: Bench) -> dict:
    """The samples per second of the largest batch that fits."""
    device = bench.options.device
    if torch.device(device).type == "cuda":
        torch.cuda.set_per_process_memory_fraction(0.95)  # the rest is for cuBLAS's own buffers
    case = CASES[name]
    preset, tuning = bench.size(case.preset, case.tiny), "frozen" if case.is_frozen else "full"
    cfg = config_of(preset, bench.is_small, _STATE_DIM, _ACTION_DIM, tuning)
    with torch.device(device):
        policy = cfg.policy.build({STATE: stats_of(_STATE_DIM), ACTION: stats_of(_ACTION_DIM)})
    policy.train()
    optimizer = build_adamw(policy, cfg.optimizer)
    for size in bench.size(case.batches, [4]):
        try:
            batch = batch_of(cfg.policy, np.random.default_rng(0), size)
            seconds = _step_s(policy, optimizer, batch, device)
        except torch.cuda.OutOfMemoryError:
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            continue
        unit = _unit(Footprint(policy, cfg), case.is_frozen, size, seconds, device)
        return bench.number(name, size / seconds, unit)
    raise NotMeasuredError(f"not even {case.batches[-1]} samples fit into the memory of {device}")


def config_of(
    preset: str,
    is_tiny: bool,
    state_dim: int,
    action_dim: int,
    tuning: typing.Any,
    cameras: Sequence[str] = ("front", "wrist"),
) -> SupervisedRunnerCfg:
    """A preset with random weights, two cameras and these dimensions."""
    cfg = resolve(preset)
    assert isinstance(cfg, SupervisedRunnerCfg)
    policy = cfg.policy
    assert isinstance(policy, VLMPolicyCfg)
    changes = {} if is_tiny else {"weights": None, "tokenizer": TokenizerCfg(words=WORDS)}
    changes |= {"tuning": tuning, "gradient_checkpointing": False}
    if hasattr(policy.head, "max_dims") and is_tiny:
        policy = policy.replace(head=policy.head.replace(max_dims=max(state_dim, action_dim)))
    side = 64 if is_tiny else 224
    policy = policy.replace(
        backbone=policy.backbone.replace(**changes),
        cameras=list(cameras),
        image_size=(side, side),
        state_dim=state_dim,
        action_dim=action_dim,
    )
    return cfg.replace(policy=policy)


def stats_of(dims: int) -> dict[str, list[float]]:
    """Statistics of a state or action within [-1, 1]."""
    values = {"mean": 0.0, "std": 1.0, "min": -1.0, "max": 1.0, "q01": -1.0, "q99": 1.0}
    return {key: [value] * dims for key, value in values.items()}


def batch_of(cfg: PolicyCfg, rng: np.random.Generator, size: int) -> Batch:
    """A random batch for a policy."""
    observation, shape = observation_of(cfg, rng, size), (size, cfg.chunk_length)
    action = rng.uniform(-1, 1, (*shape, cfg.action_dim)).astype(np.float32)
    return Batch(observation, action, np.zeros(shape, bool))


def observation_of(cfg: PolicyCfg, rng: np.random.Generator, size: int) -> Observation:
    """Random observations for a policy, with thirty words."""
    shape = (size, *cfg.image_size, 3)
    images = {name: rng.integers(0, 256, shape, np.uint8) for name in cfg.cameras}
    state = rng.uniform(-1, 1, (size, cfg.state_dim)).astype(np.float32)
    return Observation(images, state, [" ".join(WORDS)] * size)


def _step_s(policy, optimizer: torch.optim.Optimizer, batch: Batch, device: str) -> float:
    """Seconds of one training step."""

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            loss, _ = policy.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()

    return wall_s(step, device, _STEPS, _WARM_UP)


def wall_s(call: Callable[[], object], device: str, repeats: int, warm_up: int = 1) -> float:
    """Wall seconds of a call, the mean after calls that do not count; the GPU's work is awaited."""
    for _ in range(warm_up):
        call()
    _wait(device)
    with Stopwatch() as watch:
        for _ in range(repeats):
            call()
        _wait(device)
    return watch.wall_s / repeats


def _wait(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def _unit(needs: Footprint, is_frozen: bool, size: int, seconds: float, device: str) -> str:
    facts, what = [f"batch {size}"], "CPU"
    if torch.device(device).type == "cuda":
        what = torch.cuda.get_device_name()
        facts.append(f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB at most")
        peak = next((rate for key, rate in _PEAK_FLOPS.items() if key in what), None)
        if peak and not is_frozen:
            facts.append(f"{needs.flops(training=True) * size / seconds / peak:.0%} of its peak")
    return f"samples/s on {what}; {', '.join(facts)}"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda")


IDS = {name: functools.partial(measure, name) for name in CASES}


if __name__ == "__main__":
    harness.main("vla_gpu", __doc__, IDS, add_options=add_options)
