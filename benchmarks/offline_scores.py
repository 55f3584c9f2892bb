"""Learning from recordings, as D4RL scores: `python -m benchmarks.offline_scores DATASET ...
[--algorithms iql cql td3-bc bc] [--seeds 0 1 2] [--updates 100000] [--peers PYTHON]
[--source CHECKOUT] [--device cpu] [--jobs 1]`.

Each algorithm is trained on each dataset; the last checkpoints play the episodes of a protocol of
`configs/protocols`. A score is 100 (R - R_min) / (R_max - R_min), arXiv:2004.07219. Printed are the
interquartile mean over seeds with bootstrap bounds of 95 % (arXiv:2108.13264), the mean return of
what was recorded, and what CORL publishes for D4RL's dataset of the same name, which holds other
recordings. With `--peers`, d3rlpy learns from the same files, and so does CORL's own code with
`--source`, a checkout of it. Finished runs are reused, each a file of
`.rrf/benchmarks/offline_scores`.
"""

import dataclasses
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness import Bench, add_peer_options, parser_of, train
from benchmarks.peers import PEERS, NotMeasuredError
from benchmarks.rl_curve_chart import interquartile
from benchmarks.rl_runs import judged, protocol_of
from rrf import atomic, workspace
from rrf.data.dataset.transitions import read_transitions
from rrf.presets.offline import OFFLINE

NUM_EPISODES = 20
_OF_PEERS = ("iql", "cql")  # the algorithms that peers learn with
_AS_PEERS = [  # CQL with two hidden layers, as d3rlpy; CORL's critics get as many
    f"policy.{network}.backbone_cfg.{words}"
    for network in ("actor_cfg", "critic_cfg")
    for words in ("hidden_features=[256, 256]", "activations=[[[ReLU, {}]], [[ReLU, {}]], []]")
]


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


@dataclasses.dataclass(frozen=True)
class Run:
    """One training, and the episodes after it."""

    who: str  # "rrf", "d3rlpy" or "corl"
    dataset: str
    algorithm: str
    seed: int
    updates: int
    device: str

    @property
    def task(self) -> Task:
        """The task of its dataset."""
        return TASKS[self.dataset.partition("-")[0]]

    def score(self, bench: Bench) -> float:
        """The D4RL score of its episodes' mean return, which is kept for later calls."""
        kept = workspace.state() / "benchmarks" / "offline_scores"
        name = f"{self.who}-{self.dataset}-{self.algorithm}-{self.updates}-seed{self.seed}"
        path = kept / f"{name}.json"
        if not path.is_file():
            result = self._ours(kept / name) if self.who == "rrf" else self._of_peer(bench)
            atomic.write_json(path, result | dataclasses.asdict(self))
        return score(self.task, json.loads(path.read_text())["return"])

    def _ours(self, run_dir: Path) -> dict:
        words = [f"--algorithm={self.algorithm}", f"dataset={self.dataset}"]
        words += [f"max_iterations={self.updates // 1000}", f"seed={self.seed}"]
        words += [f"device={self.device}"]
        if self.algorithm == "iql":
            words.append(f"algorithm.actor_decay_updates={self.updates}")
        if self.algorithm == "cql":
            words += _AS_PEERS
        result = train(f"--task={self.task.id}", run_dir, words)
        report = judged(Path(result["checkpoint"]), protocol_of(self.task.protocol))
        return {"return": report.mean_metrics()["return"]}

    def _of_peer(self, bench: Bench) -> dict:
        words = ("--task", self.task.id, "--seed", self.seed, "--updates", self.updates)
        words += ("--episodes", NUM_EPISODES, "--device", self.device)
        words += ("--data", *_files(self.dataset))
        return bench.peer(f"{self.who}-{self.algorithm}", *words)


def _files(dataset: str) -> list[str]:
    """The recorded files of a dataset."""
    levels = dataset.removesuffix("-medium-expert")
    names = [dataset] if levels == dataset else [f"{levels}-medium", f"{levels}-expert"]
    raw = workspace.home() / "datasets" / "raw"
    return [str(file) for name in names for file in sorted((raw / name).glob("*.hdf5"))]


def main() -> None:
    """Train, evaluate and print a line for each dataset and algorithm."""
    parser = parser_of(__doc__, seeds=(0, 1, 2))
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--algorithms", nargs="*", default=OFFLINE, choices=OFFLINE)
    parser.add_argument("--updates", type=int, default=100_000)
    add_peer_options(parser)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    words = parser.parse_args()
    if words.updates < 1000 or words.updates % 1000:
        parser.error(f"--updates is {words.updates}, allowed: a multiple of 1000")
    bench = Bench(words.peers, sources=words.source)
    if words.source and not bench.has_source("corl"):
        file = PEERS["corl"].file
        parser.error(f"{words.source[0]} is no checkout of CORL: it has no {file}")
    for dataset in words.datasets:
        if dataset.partition("-")[0] not in TASKS:
            parser.error(f"{dataset} is of no known task; known: {', '.join(TASKS)}")
    peers = {"d3rlpy": bool(words.peers), "corl": bool(words.source)}

    def runs(who: str, dataset: str, algorithm: str) -> list[Run]:
        if not (who == "rrf" or (peers[who] and algorithm in _OF_PEERS)):
            return []
        options = (words.updates, words.device)
        return [Run(who, dataset, algorithm, seed, *options) for seed in words.seeds]

    rows = list(itertools.product(words.datasets, words.algorithms))
    with ThreadPoolExecutor(words.jobs) as pool:
        scores = {
            run: pool.submit(run.score, bench)
            for row in rows
            for who in ("rrf", *peers)
            for run in runs(who, *row)
        }
        print(
            "| dataset | algorithm | score | recorded | d3rlpy | CORL | CORL, D4RL's |\n"
            "|---|---|---|---|---|---|---|",
            flush=True,
        )
        for dataset, algorithm in rows:
            try:
                columns = [
                    [scores[run].result() for run in runs(who, dataset, algorithm)]
                    for who in ("rrf", *peers)
                ]
            except NotMeasuredError as error:
                pool.shutdown(cancel_futures=True)
                parser.exit(1, f"{error}\n")
            recorded = read_transitions(workspace.dataset(dataset)).returns.mean()
            task = TASKS[dataset.partition("-")[0]]
            cells = [dataset, algorithm, _cell(columns[0]), f"{score(task, recorded):.1f}"]
            cells += [*map(_cell, columns[1:]), str(CORL.get((dataset, algorithm), ""))]
            print(f"| {' | '.join(cells)} |", flush=True)


def _cell(scores: list[float]) -> str:
    if not scores:
        return ""
    middle, low, high = interquartile(scores)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    workspace.settle_environment()
    main()
