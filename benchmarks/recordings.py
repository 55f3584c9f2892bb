"""Fine-tuning on recordings of robots: `python -m benchmarks.recordings [PRESET ...] [--seed N]`.

Trains the presets of `rrf/presets/recordings.py` and, of humanoids, those of policies in two parts
(`rrf/presets/psi0.py`, with each head), and predicts the episodes that were held out. The
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
from rrf.evaluation.open_loop.errors import OLDEST

RESULTS = record.RESULTS / "recordings.json"
DATASETS = {
    "bridge-sft-laptop": "bridge",
    "gr1-sft-laptop": "gr1",
    "g1-sft-laptop": "g1-segments",
    "psi0-gr1-laptop": "gr1",
    "psi0-g1-laptop": "g1-segments",
}
_HEADS = {
    "regression": "{type: 'rrf.policies.vla.configs:RegressionHeadCfg'}",
    "diffusion": "{type: 'rrf.policies.vla.heads.diffusion_configs:DiffusionHeadCfg', "
    "hidden_features: [1024, 1024], num_noise_draws: 4}",
}
"""Other heads of the policies in two parts: name -> override. Their own one is flow matching."""


def measure(preset: str, head: str | None, bench: Bench) -> dict:
    """Train a preset and evaluate it on the episodes that it held out."""
    seed, name = bench.options.seed, f"{preset}-{head}" if head else preset
    folder = workspace.state() / "recordings" / f"{name}-seed{seed}"
    overrides = [f"policy.head={_HEADS[head]}"] if head else []
    trained = train(preset, folder / "sft", [f"seed={seed}", *overrides])
    words = ["--held-out", DATASETS[preset], "--out", str(folder / "held-out")]
    run_rrf("eval", trained["checkpoint"], *words)
    result = json.loads((folder / "held-out" / "open_loop.json").read_text())
    errors = result["error_in_std"]
    row = bench.compare(
        f"{name.replace('-', '_')}_error",
        errors["policy"],
        "std of the action",
        "mean action",
        errors["mean action"],
        is_cost=True,
        seeds=[seed],
    )
    oldest = errors.get(OLDEST)
    return row | {
        "hold_previous": round(errors["hold previous"], 4),
        "oldest_features": None if oldest is None else round(oldest, 4),
        "frames": result["num_frames"],
        "steps": trained["steps"],
        "cpu_s": round(trained["cpu_s"]),
    }


def table(rows: list[dict]) -> str:
    """A row per preset: what it cost, its error, and those of the baselines."""
    columns = ("preset", "steps", "CPU-s", "held-out frames", "error in std", "oldest features")
    fields = ("steps", "cpu_s", "frames", "value", "oldest_features", "peer_value", "hold_previous")
    cells = [
        (f"`{row['command'].split()[-1]}`", *("" if v is None else v for v in map(row.get, fields)))
        for row in rows
    ]
    return markdown.table((*columns, "mean action", "hold previous"), cells)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0)


IDS = {preset: functools.partial(measure, preset, None) for preset in DATASETS} | {
    f"{preset}-{head}": functools.partial(measure, preset, head)
    for preset in DATASETS
    if preset.startswith("psi0")
    for head in _HEADS
}


if __name__ == "__main__":
    harness.main("recordings", __doc__, IDS, add_options=add_options)
