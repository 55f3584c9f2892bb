"""Fine-tuning on recordings of robots: `python -m benchmarks.recordings [PRESET ...] [--seed N]`.

Trains the presets of `rrf/presets/recordings.py` and predicts the episodes that were held out. The
error of a policy is that of all steps of all chunks, in standard deviations of each action
dimension; dimensions that never move are left out. The peer is the mean action of the training
episodes. The datasets are those of `dvc --cd infra/recordings repro`.
"""

import argparse
import functools
import json

from benchmarks import harness, markdown, record
from benchmarks.harness import Bench, run_rrf, train
from rrf import workspace

RESULTS = record.RESULTS / "recordings.json"
DATASETS = {"bridge-sft-laptop": "bridge", "gr1-sft-laptop": "gr1", "g1-sft-laptop": "g1-segments"}


def measure(preset: str, bench: Bench) -> dict:
    """Train a preset and evaluate it on the episodes that it held out."""
    seed = bench.options.seed
    folder = workspace.state() / "recordings" / f"{preset}-seed{seed}"
    trained = train(preset, folder / "sft", [f"seed={seed}"])
    words = ["--held-out", DATASETS[preset], "--out", str(folder / "held-out")]
    run_rrf("eval", trained["checkpoint"], *words)
    result = json.loads((folder / "held-out" / "open_loop.json").read_text())
    errors = result["error_in_std"]
    row = bench.compare(
        f"{preset.replace('-', '_')}_error",
        errors["policy"],
        "std of the action",
        "mean action",
        errors["mean action"],
        is_cost=True,
        seeds=[seed],
    )
    return row | {
        "hold_previous": round(errors["hold previous"], 4),
        "frames": result["num_frames"],
        "steps": trained["steps"],
        "cpu_s": round(trained["cpu_s"]),
    }


def table(rows: list[dict]) -> str:
    """A row per preset: what it cost, its error, and those of the baselines."""
    columns = ("preset", "steps", "CPU-s", "held-out frames", "error in std", "mean action")
    fields = ("steps", "cpu_s", "frames", "value", "peer_value", "hold_previous")
    cells = [(f"`{row['command'].split()[-1]}`", *map(row.get, fields)) for row in rows]
    return markdown.table((*columns, "hold previous"), cells)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0)


IDS = {preset: functools.partial(measure, preset) for preset in DATASETS}


if __name__ == "__main__":
    harness.main("recordings", __doc__, IDS, add_options=add_options)
