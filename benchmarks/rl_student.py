"""A blind Go1 beside its teacher: `python -m benchmarks.rl_student [WORD ...] [--seeds 0 1 2]`.

The teacher, go1-rough-teacher, goes on from a walker of go1-flat-ppo and has a height scan of the
ground; the student, go1-rough-student, has none. All are trained with the same words, e.g.
env.physics=fast, and evaluated with exact physics under the protocol go1-rough. Mean returns are
printed beside that of a robot that only stands, because standing is rewarded too. A run that was
stopped is resumed; a finished one is used again.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.rl_runs import called, judged, protocol_of, trained
from rrf.evaluation.control.evaluate import evaluate_control
from rrf.evaluation.results import Evaluation
from rrf.runners.checkpoints.control import load_control_policy

COLUMNS = ("tracking_error_xy", "tracking_error_yaw", "fall")
_PROTOCOL = "go1-rough"


def standing(checkpoint: Path) -> Evaluation:
    """Evaluate a robot whose actions are always zero."""
    policy, interface = load_control_policy(checkpoint)
    act = policy.act
    policy.act = lambda *args, **kwargs: torch.zeros_like(act(*args, **kwargs))
    return evaluate_control(policy, interface, protocol_of(_PROTOCOL))


def row(name: str, report: Evaluation, result: dict | None = None) -> float:
    """Print a row of the table; returns the mean return of all episodes."""
    mean_return = statistics.mean(episode.episode_return for episode in report.episodes)
    metrics = report.mean_metrics()
    numbers = [mean_return, *(metrics[column] for column in COLUMNS)]
    numbers += [] if result is None else [result["num_steps"], result["cpu_s"]]
    print(f"| {name} |", " | ".join(f"{x:.4g}" for x in numbers), "|", flush=True)
    return mean_return


def main(seeds: Sequence[int], words: Sequence[str]) -> None:
    print("| run | return |", " | ".join((*COLUMNS, "steps", "cpu_s")), "|")
    print("|---" * (len(COLUMNS) + 4) + "|")
    ratios, gains = [], []
    for seed in seeds:
        walker = trained("go1-flat-ppo", seed, words)
        teacher = trained("go1-rough-teacher", seed, words, f"init_from={walker['checkpoint']}")
        path = Path(teacher["checkpoint"])
        student = trained("go1-rough-student", seed, words, f"teacher={path}")
        protocol = protocol_of(_PROTOCOL)
        base = row(f"standing, as seed {seed}", standing(path))
        best = row(f"teacher, seed {seed}", judged(path, protocol), teacher)
        report = judged(Path(student["checkpoint"]), protocol)
        learned = row(f"student, seed {seed}", report, student)
        ratios.append(learned / best)
        gains.append((learned - base) / (best - base))
    print(f"\nreturn of student / teacher: {statistics.mean(ratios):.3f}")
    print(f"(student - standing) / (teacher - standing): {statistics.mean(gains):.3f}")


if __name__ == "__main__":
    called(main, __doc__)
