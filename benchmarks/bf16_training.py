"""Is bf16 worth it for the compact policy on this processor? `python -m benchmarks.bf16_training`

Measures samples per CPU-second and the final validation loss for the same steps of pretraining,
from the same weights and batches, in fp32 and in bf16 autocast. On a processor without bf16
instructions (AMX, AVX-512 BF16) the conversions cost more than the narrower arithmetic saves.
"""

import json
import sys
import tempfile

import numpy as np

from benchmarks import record
from rrf import workspace

COMMAND = "python -m benchmarks.bf16_training"
STEPS = 100
SEED = 0


def run(precision: str, steps: int = STEPS, dataset: str | None = None) -> tuple[float, float]:
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


def measure(steps: int = STEPS, dataset: str | None = None) -> list[dict]:
    """Both numbers for bf16, each beside the number for fp32 in the same run."""
    speed, loss = run("bf16", steps, dataset)
    reference_speed, reference_loss = run("fp32", steps, dataset)
    command = f"{COMMAND}  # {steps} steps"
    return [
        record.number(
            "bf16_samples_per_cpu_s",
            speed,
            "samples/CPU-s",
            peer="fp32",
            peer_value=reference_speed,
            ratio=speed / reference_speed,
            command=command,
            seeds=[SEED],
        ),
        record.number(
            "bf16_validation_loss",
            loss,
            "smooth L1",
            peer="fp32",
            peer_value=reference_loss,
            ratio=reference_loss / loss,
            command=command,
            seeds=[SEED],
        ),
    ]


if __name__ == "__main__":
    workspace.settle_environment()
    numbers = measure(dataset=sys.argv[1] if len(sys.argv) > 1 else None)
    record.save("bf16_training", numbers)
    print(json.dumps(numbers, indent=2))
