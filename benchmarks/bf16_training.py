"""Is bf16 worth it for the compact policy on this processor? `python -m benchmarks.bf16_training
[--dataset DATASET]`

Measures samples per CPU-second and the final validation loss for the same steps of pretraining,
from the same weights and batches, in fp32 and in bf16 autocast. On a processor without bf16
instructions (AMX, AVX-512 BF16) the conversions cost more than the narrower arithmetic saves.
"""

import argparse
import tempfile

import numpy as np

from benchmarks import harness
from benchmarks.harness import Bench

STEPS = 100
SEED = 0


def run(precision: str, steps: int, dataset: str | None) -> tuple[float, float]:
    """Train and return the samples per CPU-second and the validation loss after `steps`."""
    from rrf.presets import resolve
    from rrf.runners import SupervisedRunnerCfg
    from rrf.runners.supervised.frames import split_of
    from rrf.runners.supervised.runner import SupervisedRunner

    cfg = resolve(
        "compact-vla-pretrain",
        {
            "seed": SEED,
            "precision": precision,
            "max_steps": steps,
            "validation_interval": steps,
            "save_interval": steps,
        },
    )
    assert isinstance(cfg, SupervisedRunnerCfg)
    split = split_of(cfg.replace(dataset=dataset) if dataset else cfg)
    split.training.batch(
        np.arange(split.training.num_frames)
    )  # decode once, outside the measurement
    with tempfile.TemporaryDirectory() as run_dir:
        result = SupervisedRunner(cfg, split, run_dir).run()
    return steps * cfg.batch_size / result["cpu_s"], result["metrics"]["validation/total"]


def measure(bench: Bench) -> list[dict]:
    """Both numbers for bf16, each beside the number for fp32 in the same run."""
    steps, dataset = bench.size(STEPS, 2), bench.options.dataset
    speed, loss = run("bf16", steps, dataset)
    fp32_speed, fp32_loss = run("fp32", steps, dataset)
    unit, seeds = f"smooth L1 after {steps} steps", [SEED]
    return [
        bench.compare(
            "bf16_samples_per_cpu_s", speed, "samples/CPU-s", "fp32", fp32_speed, seeds=seeds
        ),
        bench.compare(
            "bf16_validation_loss", loss, unit, "fp32", fp32_loss, is_cost=True, seeds=seeds
        ),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dataset")


IDS = {"bf16_samples_per_cpu_s": measure, "bf16_validation_loss": measure}


if __name__ == "__main__":
    harness.main("bf16_training", __doc__, IDS, add_options=add_options)
