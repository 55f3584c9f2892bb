"""Speed of training policies that see images, and how exact one is: `python -m benchmarks.vla [ID
...]`, default all that this machine can measure.

The peer runs in the same process and in turns. `benchmarks.vla_gpu` measures the real sizes.
"""

import tempfile
import typing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks import harness
from benchmarks.clock import median_cpu_s
from benchmarks.harness import Bench, by_name
from benchmarks.peers import PEERS
from rrf.presets import resolve
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.runner import SupervisedRunner, build_runner

FAMILIES = (
    "compact-vla-pretrain",
    "qwen2vl-laptop",
    "qwen3vl-laptop",
    "pi0-laptop",
    "pi05-laptop",
    "groot-laptop",
    "openvla-laptop",
    "openvla-oft-laptop",
    "lerobot-act-laptop",
    "lerobot-diffusion-laptop",
)
_STEPS, _ROUNDS = 5, 5
_SEED = 0


def trainer_overhead_ratio(bench: Bench) -> list[dict]:
    """CPU time of a training step of ours beside that of a bare loop: the same model, batches,
    augmentation, clipping, AdamW and averaging, and nothing else. The median over rounds."""
    rows = []
    for preset, name in (
        ("compact-vla-pretrain", "trainer_overhead_ratio"),
        ("pi0-laptop", "trainer_overhead_ratio_pi0"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            runner = _runner(preset, folder)
            bare = _bare_step(_runner(preset, folder))
            ours_s, bare_s = _cpu_s(bench, runner._train_step, bare)
        rows.append(
            bench.number(
                name,
                ours_s / bare_s,
                f"times the CPU time of a bare loop, {preset}; {ours_s * 1000:.3g} ms per step",
                seeds=[_SEED],
            )
        )
    return rows


def feature_cache_speedup(bench: Bench) -> dict:
    """A step with kept features of a frozen backbone beside one that computes them."""
    frozen = [
        "policy.backbone.tuning=frozen",
        "algorithm.augmentation.shift_px=0",
        "policy.value_head=null",
    ]
    with tempfile.TemporaryDirectory() as folder:
        cache = [f"cache_dir={folder}/cache", "caches_features=true"]
        cached = _runner("qwen2vl-laptop", folder, frozen + cache)
        computed = _runner("qwen2vl-laptop", folder, frozen)
        cached_s, computed_s = _cpu_s(bench, cached._train_step, computed._train_step)
    return bench.number(
        "feature_cache_speedup",
        computed_s / cached_s,
        "times as many steps per CPU-s, qwen2vl-laptop, frozen backbone, pooled",
        seeds=[_SEED],
    )


def step_ms(bench: Bench) -> list[dict]:
    """The CPU time of a training step of every family at laptop size."""
    rows = []
    for preset in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            runner = _runner(preset, folder)
            (step_s,) = _cpu_s(bench, runner._train_step)
        rows.append(
            bench.number(
                f"step_ms_{preset}",
                step_s * 1000,
                f"CPU-ms per step of {runner.cfg.batch_size} frames",
                seeds=[_SEED],
            )
        )
    return rows


def loader_frames_per_cpu_s_224(bench: Bench) -> dict:
    """Batches of 32 frames of 224 px read from JPEG and decoded, nothing kept in memory; beside
    lerobot's reader. The frames are enlarged from 64 px, so they decode faster than photographs.
    What the families consume stands in `step_ms` and in the numbers of a GPU."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from rrf import workspace
    from rrf.data.conversion.convert import convert
    from rrf.data.conversion.dataset_cfg import load_dataset_cfg
    from rrf.data.dataset.opening import open_dataset

    rng, batch = np.random.default_rng(_SEED), 32
    with tempfile.TemporaryDirectory() as folder:
        cfg = load_dataset_cfg("metaworld-demo").replace(image_size=(224, 224))
        root = Path(folder, "converted")
        convert(cfg, workspace.home() / cfg.source.path, root)
        reader = open_dataset(root, chunk_length=1, cache_bytes=0)
        peer = LeRobotDataset("local/224", root=root)

        def read() -> None:
            reader.batch(rng.integers(0, reader.num_frames, batch))

        def read_with_peer() -> None:
            for index in rng.integers(0, reader.num_frames, batch).tolist():
                peer[index]

        ours_s, peer_s = _cpu_s(bench, read, read_with_peer)
    return bench.compare(
        "loader_frames_per_cpu_s_224",
        batch / ours_s,
        "frames/CPU-s",
        f"LeRobotDataset of {PEERS['lerobot'].name}",
        batch / peer_s,
        seeds=[_SEED],
    )


def oft_token_golden_error(bench: Bench) -> dict:
    """How far OpenVLA-OFT with tokens is from RLinf (both versions) and SimpleVLA-RL with the same
    small weights: the largest difference of tokens, actions, log-probabilities and entropies, and
    of a GRPO step, whose gradients are compared with the largest of their tensor."""
    from tests.policies.vla.oft_tokens_golden import errors

    with tempfile.TemporaryDirectory() as folder:
        found = errors(Path(folder))
    largest = max(error for comparison in found.values() for error in comparison.values())
    return bench.number(
        "oft_token_golden_error", largest, "at most, beside RLinf and SimpleVLA-RL", seeds=[_SEED]
    )


def _runner(preset: str, folder: str, overrides: typing.Sequence[str] = ()) -> SupervisedRunner:
    cfg = resolve(preset, [*overrides, f"seed={_SEED}"])
    assert isinstance(cfg, SupervisedRunnerCfg)
    return build_runner(cfg, folder)


def _bare_step(runner: SupervisedRunner) -> Callable[[], None]:
    """A training step written out, with the parts of a runner that only wait to be called."""
    cfg, steps = runner.cfg, iter(range(1_000_000))

    def step() -> None:
        index = next(steps)
        frames = runner.split.training
        batch = frames.batch(frames.draw(cfg.batch_size, cfg.seed, index))
        runner.optimizer.zero_grad()
        loss, _ = runner.algorithm.loss(batch, np.random.default_rng([cfg.seed, index]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(runner.policy.parameters(), cfg.max_grad_norm)
        runner.optimizer.step()
        if runner.ema:
            runner.ema.update(runner.policy)

    return step


def _cpu_s(bench: Bench, *steps: Callable[[], typing.Any]) -> list[float]:
    """CPU-seconds of one call of each, on one thread."""
    torch.set_num_threads(1)
    return median_cpu_s(*steps, repeats=bench.size(_ROUNDS, 1), times=bench.size(_STEPS, 1))


IDS = by_name(
    trainer_overhead_ratio,
    feature_cache_speedup,
    step_ms,
    loader_frames_per_cpu_s_224,
    oft_token_golden_error,
)


if __name__ == "__main__":
    harness.main("vla", __doc__, IDS)
