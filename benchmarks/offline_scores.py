"""Learning from recordings, as D4RL scores: `python -m benchmarks.offline_scores DATASET ...
[--algorithms iql cql td3-bc bc] [--seeds 0 1 2] [--updates 100000] [--peers PYTHON]
[--source CHECKOUT]`.

Each algorithm is trained on each dataset; the last checkpoints play the episodes of a protocol of
`configs/protocols`. A score is 100 (R - R_min) / (R_max - R_min), arXiv:2004.07219. Printed are the
interquartile mean over seeds with bootstrap bounds of 95 % (arXiv:2108.13264), the mean return of
what was recorded, and what CORL publishes for D4RL's dataset of the same name, which holds other
recordings. With `--peers`, d3rlpy learns from the same files, and so does CORL's own code with
`--source`, a checkout of github.com/tinkoff-ai/CORL. Finished runs are reused.
"""

import argparse
import dataclasses
import json
import statistics
from pathlib import Path

import numpy as np

from benchmarks.rl_pace import Bench, corl_command, judged, measured_apart, protocol_of
from benchmarks.vla_experiments import train
from rrf import atomic, workspace
from rrf.data.transitions import read_transitions
from rrf.presets.offline import OFFLINE

NUM_EPISODES = 20
_OF_PEERS = ("iql", "cql")  # the algorithms that peers learn with


@dataclasses.dataclass(frozen=True)
class Task:
    """A task and the returns that are the scores 0 and 100."""

    id: str
    protocol: str
    lowest: float
    highest: float


TASKS = {
    "hopper": Task("Hopper-v5", "hopper", -20.272305, 3234.3),  # these three are D4RL's
    "halfcheetah": Task("HalfCheetah-v5", "halfcheetah", -280.178953, 12135.0),
    "walker2d": Task("Walker2d-v5", "walker2d", 1.629008, 4592.3),
    "pendulum": Task("Pendulum-v1", "pendulum", -1249.0, -145.0),  # of our random, our expert
}
CORL = {  # last scores, github.com/tinkoff-ai/CORL
    ("hopper-medium", "iql"): 67.5,
    ("hopper-medium-replay", "iql"): 97.4,
    ("hopper-medium-expert", "iql"): 107.4,
    ("hopper-medium", "cql"): 59.1,
    ("hopper-medium-replay", "cql"): 95.1,
    ("hopper-medium-expert", "cql"): 99.3,
    ("halfcheetah-medium", "iql"): 48.3,
    ("halfcheetah-medium-replay", "iql"): 44.5,
    ("halfcheetah-medium-expert", "iql"): 94.7,
    ("halfcheetah-medium", "cql"): 47.0,
    ("halfcheetah-medium-replay", "cql"): 45.0,
    ("halfcheetah-medium-expert", "cql"): 95.6,
    ("walker2d-medium", "iql"): 80.9,
    ("walker2d-medium-replay", "iql"): 82.2,
    ("walker2d-medium-expert", "iql"): 111.7,
    ("walker2d-medium", "cql"): 80.8,
    ("walker2d-medium-replay", "cql"): 73.1,
    ("walker2d-medium-expert", "cql"): 109.6,
}


def score(task: Task, episode_return: float) -> float:
    """The D4RL score of a return."""
    return 100 * (episode_return - task.lowest) / (task.highest - task.lowest)


def interquartile(scores: list[float], seed: int = 0) -> tuple[float, float, float]:
    """The interquartile mean, and its bootstrap bounds of 95 %."""
    draws = np.random.default_rng(seed).choice(scores, (2000, len(scores)))
    low, high = np.percentile([_middle(one) for one in draws], [2.5, 97.5])
    return _middle(np.array(scores)), float(low), float(high)


def _middle(scores: np.ndarray) -> float:
    """The mean without the lowest and the highest quarter."""
    cut = len(scores) // 4
    return float(np.sort(scores)[cut : len(scores) - cut].mean())


def ours(dataset: str, algorithm: str, seed: int, updates: int) -> float:
    """The return of a policy that learned from a dataset."""
    task = TASKS[dataset.partition("-")[0]]
    name = f"{dataset}-{algorithm}-{updates}-seed{seed}"
    run_dir = workspace.state() / "benchmarks" / "offline_scores" / name
    words = [f"--task={task.id}", f"--algorithm={algorithm}", f"dataset={dataset}"]
    words += [f"max_iterations={updates // 1000}", f"seed={seed}"]
    if algorithm == "iql":
        words.append(f"algorithm.actor_decay_updates={updates}")
    result = train(words[0], run_dir, words[1:])
    found = judged(Path(result["checkpoint"]), protocol_of(task.protocol))
    return found.mean_metrics()["return"]


def theirs(bench: Bench, peer: str, dataset: str, algorithm: str, seed: int, updates: int) -> float:
    """The same of "d3rlpy" or "corl", on the recorded files themselves; kept for later calls."""
    task = TASKS[dataset.partition("-")[0]]
    kept = workspace.state() / "benchmarks" / "offline_scores"
    path = kept / f"{peer}-{dataset}-{algorithm}-{updates}-seed{seed}.json"
    if not path.is_file():
        words = ("--task", task.id, "--seed", seed, "--updates", updates)
        words = (*words, "--episodes", NUM_EPISODES, "--data", *_files(dataset))
        if peer == "corl":
            found = measured_apart(peer, corl_command(bench, algorithm, *words))
        else:
            found = bench.peer(f"{peer}-{algorithm}", *words)
        atomic.write_json(path, found)
    return json.loads(path.read_text())["return"]


def _files(dataset: str) -> list[str]:
    """The recorded files of a dataset."""
    levels = dataset.removesuffix("-medium-expert")
    names = [dataset] if levels == dataset else [f"{levels}-medium", f"{levels}-expert"]
    raw = workspace.home() / "datasets" / "raw"
    return [str(file) for name in names for file in sorted((raw / name).glob("*.hdf5"))]


def main() -> None:
    """Train, evaluate and print a line for each dataset and algorithm."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--algorithms", nargs="*", default=OFFLINE, choices=OFFLINE)
    parser.add_argument("--seeds", nargs="*", type=int, default=(0, 1, 2))
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--source", type=Path, metavar="CHECKOUT")
    words = parser.parse_args()
    bench = Bench(words.peers or "", sources=[words.source] if words.source else [])
    if words.source and not corl_command(bench, "iql"):
        parser.error(f"{words.source} is no checkout of CORL: it has no algorithms/offline/iql.py")
    peers = {"d3rlpy": bool(words.peers), "corl": words.source is not None}
    print(
        "| dataset | algorithm | score | 95 % | return | recorded | d3rlpy | CORL | CORL, D4RL's |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for dataset in words.datasets:
        task = TASKS.get(dataset.partition("-")[0])
        if task is None:
            parser.error(f"{dataset} is of no known task; known: {', '.join(TASKS)}")
        recorded = read_transitions(workspace.dataset(dataset)).returns.mean()
        for algorithm in words.algorithms:
            returns = [ours(dataset, algorithm, seed, words.updates) for seed in words.seeds]
            middle, low, high = interquartile([score(task, one) for one in returns])
            beside = []
            for peer, is_given in peers.items():
                scores = [
                    score(task, theirs(bench, peer, dataset, algorithm, seed, words.updates))
                    for seed in (words.seeds if is_given and algorithm in _OF_PEERS else ())
                ]
                beside.append(f"{interquartile(scores)[0]:.1f}" if scores else "")
            print(
                f"| {dataset} | {algorithm} | {middle:.1f} | {low:.1f} to {high:.1f} "
                f"| {statistics.fmean(returns):.0f} | {score(task, recorded):.1f} "
                f"| {' | '.join(beside)} | {CORL.get((dataset, algorithm), '')} |",
                flush=True,
            )


if __name__ == "__main__":
    workspace.settle_environment()
    main()
