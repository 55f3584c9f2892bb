"""AMP beside PPO on Go1: `python -m benchmarks.rl_amp [--seeds 0 1 2] [WORD ...]`.

Both presets are trained from scratch with the same words, e.g. env.physics=fast max_iterations=200,
and evaluated with exact physics under the protocol go1-flat-motion: tracking errors, falls, and the
distance to the clip. It prints a table and the mean ratio of the distances. A run that was stopped
is resumed; a finished one is used again.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.rl_pace import judged, protocol_of
from benchmarks.vla_experiments import train
from rrf import workspace

PRESETS = ("go1-flat-ppo", "go1-flat-amp")
COLUMNS = ("tracking_error_xy", "tracking_error_yaw", "fall", "motion_distance", "power")


def measured(preset: str, seed: int, words: Sequence[str]) -> dict[str, float]:
    """Train with one seed; means over all episodes, and the training's steps and CPU seconds."""
    name = "-".join([preset, str(seed), *(word.replace("/", "_") for word in words)])
    run_dir = workspace.state() / "benchmarks" / name
    trained = train(preset, run_dir, [f"seed={seed}", *words])
    found = judged(Path(trained["checkpoint"]), protocol_of("go1-flat-motion")).mean_metrics()
    return {column: found[column] for column in COLUMNS} | {
        "steps": float(trained["num_steps"]),
        "cpu_s": float(trained["cpu_s"]),
    }


def main(seeds: Sequence[int], words: Sequence[str]) -> None:
    print("| preset | seed |", " | ".join((*COLUMNS, "steps", "cpu_s")), "|")
    print("|---" * (len(COLUMNS) + 4) + "|")
    distances: dict[str, list[float]] = {preset: [] for preset in PRESETS}
    for seed in seeds:
        for preset in PRESETS:
            row = measured(preset, seed, words)
            distances[preset].append(row["motion_distance"])
            print(f"| {preset} | {seed} |", " | ".join(f"{x:.4g}" for x in row.values()), "|")
    ppo, amp = (statistics.mean(distances[preset]) for preset in PRESETS)
    print(f"\nmotion distance of AMP / PPO: {amp / ppo:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("words", nargs="*", help="overrides for both presets")
    given = parser.parse_args()
    main(given.seeds, given.words)
