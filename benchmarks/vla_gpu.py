"""Training speed of policies of real size on a GPU: `python -m benchmarks.vla_gpu [ID ...]`.

Random weights, two images of 224 px, 30 tokens of prompt, bfloat16; loss, backward pass, clipping
and fused AdamW. It needs torch, transformers and numpy, and no data. Model FLOP utilisation is
that of the operations which `rrf doctor` estimates, of the peak named in `_PEAK_FLOPS`. `--tiny`
runs the presets of laptop size on any device, to try the script; nothing is then written.
"""

import argparse
import dataclasses
import time
import typing
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.record import number, save
from rrf.config import did_you_mean
from rrf.data.schema import ACTION, STATE, Batch, Observation
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from rrf.runners.footprint import Footprint
from rrf.runners.optimizers import build_adamw
from rrf.runners.supervised.configs import SupervisedRunnerCfg

COMMAND = "python -m benchmarks.vla_gpu"
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


def measure(name: str, device: str, is_tiny: bool) -> dict:
    """The samples per second of the largest batch that fits."""
    if torch.device(device).type == "cuda":
        torch.cuda.set_per_process_memory_fraction(0.95)  # the rest is for cuBLAS's own buffers
    case = CASES[name]
    name_of = case.tiny if is_tiny else case.preset
    cfg = config_of(
        name_of, is_tiny, _STATE_DIM, _ACTION_DIM, "frozen" if case.is_frozen else "full"
    )
    with torch.device(device):
        policy = cfg.policy.build({STATE: stats_of(_STATE_DIM), ACTION: stats_of(_ACTION_DIM)})
    policy.train()
    optimizer = build_adamw(policy, cfg.optimizer)
    for size in [4] if is_tiny else case.batches:
        try:
            seconds = _step_s(policy, optimizer, _batch(cfg, size), device)
        except torch.cuda.OutOfMemoryError:
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            continue
        return _number(name, Footprint(policy, cfg), case.is_frozen, size, seconds, device)
    raise SystemExit(f"{name}: not even {case.batches[-1]} samples fit into the memory of {device}")


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


def _batch(cfg: SupervisedRunnerCfg, size: int) -> Batch:
    rng, chunk = np.random.default_rng(0), cfg.policy.chunk_length
    shape = (size, *cfg.policy.image_size, 3)
    images = {name: rng.integers(0, 256, shape, np.uint8) for name in cfg.policy.cameras}
    state = rng.uniform(-1, 1, (size, _STATE_DIM)).astype(np.float32)
    action = rng.uniform(-1, 1, (size, chunk, _ACTION_DIM)).astype(np.float32)
    observation = Observation(images, state, [" ".join(WORDS)] * size)
    return Batch(observation, action, np.zeros((size, chunk), bool))


def _step_s(policy, optimizer: torch.optim.Optimizer, batch: Batch, device: str) -> float:
    """Seconds of one training step."""
    begin = 0.0
    for step in range(_WARM_UP + _STEPS):
        if step == _WARM_UP:
            wait(device)
            begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            loss, _ = policy.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    wait(device)
    return (time.perf_counter() - begin) / _STEPS


def wait(device: str) -> None:
    """Wait until the GPU has done all its work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def _number(
    name: str, needs: Footprint, is_frozen: bool, size: int, seconds: float, device: str
) -> dict:
    facts, what = [f"batch {size}"], "CPU"
    if torch.device(device).type == "cuda":
        what = torch.cuda.get_device_name()
        facts.append(f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB at most")
        peak = next((rate for key, rate in _PEAK_FLOPS.items() if key in what), None)
        if peak and not is_frozen:
            facts.append(f"{needs.flops(training=True) * size / seconds / peak:.0%} of its peak")
    unit = f"samples/s on {what}; {', '.join(facts)}"
    return number(name, size / seconds, unit, command=f"{COMMAND} {name}")


def main() -> None:
    """Measure the numbers named on the command line, and write docs/benchmarks/vla_gpu.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ids", nargs="*", help=f"of: {', '.join(CASES)}")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="laptop size, writes nothing")
    args = parser.parse_args()
    for name in args.ids or CASES:
        if name not in CASES:
            raise SystemExit(f"no benchmark '{name}'{did_you_mean(name, CASES)}")
        row = measure(name, args.device, args.tiny)
        print(f"{row['id']}: {row['value']:g} {row['unit']}", flush=True)
        if not args.tiny:
            save("vla_gpu", [row])


if __name__ == "__main__":
    main()
