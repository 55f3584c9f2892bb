"""AMP beside PPO on Go1: `python -m benchmarks.rl_amp [WORD ...] [--seeds 0 1 2]`.

PPO trains a walker. From its checkpoint, PPO and AMP go on for the same number of steps. All are
trained with the same words, e.g. env.physics=fast, and evaluated with exact physics under the
protocol go1-flat-motion: tracking errors, falls, and the distance to the clip. It prints a table,
and the means over seeds, and draws the style reward of AMP's training. A run that was stopped is
resumed; a finished one is used again.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.rl_curve_chart import chart
from benchmarks.rl_family_curves import FOLDER, line
from benchmarks.rl_runs import called, judged, preset, protocol_of, trained
from rrf import atomic

COLUMNS = ("tracking_error_xy", "tracking_error_yaw", "fall", "motion_distance", "power")


def row(name: str, seed: int, result: dict) -> dict[str, float]:
    """Print a row of the table; returns its means over all episodes."""
    report = judged(Path(result["checkpoint"]), protocol_of("go1-flat-motion"))
    metrics = report.mean_metrics()
    numbers = [*(metrics[column] for column in COLUMNS), result["num_steps"], result["cpu_s"]]
    print(f"| {name} | {seed} |", " | ".join(f"{x:.4g}" for x in numbers), "|", flush=True)
    return metrics


def style_rewards(run_dir: Path) -> list[float]:
    """The mean style reward of each iteration of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sizes = {"scalars": 0}  # keep all of them
    events = EventAccumulator(str(run_dir / "tensorboard"), sizes).Reload()
    return [event.value for event in events.Scalars("amp/style_reward")]


def draw(curves: list[list[float]]) -> Path:
    """Draw the style rewards of several seeds; returns the picture's path."""
    lines = {"go1-flat-amp": line(enumerate(rewards, 1) for rewards in curves)}
    path = FOLDER / "amp.svg"
    title = f"Go1, style reward of a frame: {len(curves)} {'seed' if len(curves) == 1 else 'seeds'}"
    drawn = chart(title, lines, of_steps="iterations", decimals=2)
    atomic.write_text(path, drawn)
    return path


def main(seeds: Sequence[int], words: Sequence[str]) -> None:
    print("| run | seed |", " | ".join((*COLUMNS, "steps", "cpu_s")), "|")
    print("|---" * (len(COLUMNS) + 4) + "|")
    rows: dict[str, list[dict[str, float]]] = {"go1-flat-ppo continued": [], "go1-flat-amp": []}
    further = preset("go1-flat-amp", words).max_iterations
    styles = []
    for seed in seeds:
        walker = trained("go1-flat-ppo", seed, words)
        row("go1-flat-ppo", seed, walker)
        for name in rows:
            start = f"init_from={walker['checkpoint']}"
            result = trained(name, seed, [*words, f"max_iterations={further}"], start)
            rows[name].append(row(name, seed, result))
            if name == "go1-flat-amp":
                styles.append(style_rewards(Path(result["checkpoint"]).parent))
    for column in COLUMNS:
        ppo, amp = (statistics.mean(metrics[column] for metrics in rows[name]) for name in rows)
        print(f"{column}: PPO {ppo:.4g}, AMP {amp:.4g}")
    print(draw(styles))


if __name__ == "__main__":
    called(main, __doc__)
