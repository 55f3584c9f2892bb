"""Every algorithm on a task of minutes: `python -m benchmarks.rl_algorithms [KEY ...]`.

Each command of the table in `docs/locomotion.md` is run with three seeds (two runs side by side).
The last checkpoints are evaluated under a protocol of `configs/protocols`, and the means go to
`docs/benchmarks/rl.json`. Finished runs of the same commit are reused.
"""

import dataclasses
import functools
import shutil
import statistics
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import Bench, train
from benchmarks.markdown import table
from benchmarks.record import commit
from benchmarks.rl_runs import judged, protocol_of
from rrf import workspace

SEEDS = (0, 1, 2)


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A row of the table, and how it is measured."""

    name: str
    paper: str
    file: str
    words: str
    """The arguments of `rrf train`: a preset and overrides. "…" stands for the checkpoint of
    `teacher`, with the same seed."""
    protocol: str
    task: str
    beside: str | None = None
    """Key of the algorithm that it is compared with."""
    is_smoother: bool = False
    """Whether to compare the smoothness of actions too."""
    teacher: str | None = None
    """Key of the algorithm whose policy is the teacher."""


def _arxiv(number: str) -> str:
    return f"[{number}](https://arxiv.org/abs/{number})"


_UPRIGHT = ("pendulum", "Pendulum")
_HIDDEN = ("pendulum-hidden", "Pendulum without its velocity")
_GOALS = ("two-goals", "two goals")
_RECORDED = ("pendulum", "Pendulum, from recordings of a half-trained policy")
_EXPERT = ("pendulum", "Pendulum, from recordings of an expert")
_BLIND = ("pendulum", "Pendulum, from a teacher that sees its velocity")
_SLOW = ("pendulum-slow", "Pendulum, its velocity every 10 steps")
_LIPS = "[ICML 2023](https://proceedings.mlr.press/v202/song23b.html)"
_MIRRORS = "algorithm.symmetry_cfg.mirrors=rrf.algorithms.mirrors:pendulum"

ALGORITHMS = {
    "ppo": Algorithm("PPO", _arxiv("1707.06347"), "on_policy/ppo.py", "pendulum-ppo", *_UPRIGHT),
    "caps": Algorithm(
        "CAPS", _arxiv("2012.06644"), "smooth/caps.py", "pendulum-caps", *_UPRIGHT, "ppo", True,
    ),
    "l2c2": Algorithm(
        "L2C2", _arxiv("2202.07152"), "smooth/l2c2.py", "pendulum-l2c2", *_UPRIGHT, "ppo", True,
    ),
    "lips": Algorithm(
        "Lips (Jacobian penalty)", "", "smooth/lips.py", "pendulum-lips", *_UPRIGHT, "ppo", True,
    ),
    "lcp": Algorithm(
        "LCP", _arxiv("2410.11825"), "smooth/lips.py", "pendulum-lcp", *_UPRIGHT, "ppo", True,
    ),
    "lipsnet": Algorithm(
        "LipsNet", _LIPS, "smooth/lips.py", "pendulum-lipsnet", *_UPRIGHT, "ppo", True,
    ),
    "ppo-short": Algorithm(
        "PPO, a fifth of the steps", _arxiv("1707.06347"), "on_policy/ppo.py",
        "pendulum-ppo max_iterations=20", *_UPRIGHT,
    ),
    "symmetry": Algorithm(
        "Symmetry", _arxiv("2403.04359"), "on_policy/symmetry.py",
        f"pendulum-ppo max_iterations=20 {_MIRRORS}", *_UPRIGHT, "ppo-short",
    ),
    "two-goals-ppo": Algorithm(
        "PPO", _arxiv("1707.06347"), "on_policy/ppo.py", "two-goals-ppo", *_GOALS,
    ),
    "rnd": Algorithm(
        "RND", _arxiv("1810.12894"), "on_policy/rnd.py",
        "two-goals-ppo algorithm.rnd_cfg.weight=0.5", *_GOALS, "two-goals-ppo",
    ),
    "sapg": Algorithm(
        "SAPG", _arxiv("2407.20230"), "on_policy/sapg.py", "two-goals-sapg", *_GOALS,
        "two-goals-ppo",
    ),
    "epo": Algorithm(
        "EPO", _arxiv("2503.19037"), "on_policy/epo.py", "two-goals-epo", *_GOALS, "two-goals-ppo",
    ),
    "sac": Algorithm("SAC", _arxiv("1812.05905"), "off_policy/sac.py", "pendulum-sac", *_UPRIGHT),
    "dsac": Algorithm(
        "DSAC", _arxiv("2001.02811"), "off_policy/dsac.py", "pendulum-dsac", *_UPRIGHT, "sac",
    ),
    "dsact": Algorithm(
        "DSAC-T", _arxiv("2310.05858"), "off_policy/dsac.py", "pendulum-dsact", *_UPRIGHT, "sac",
    ),
    "hidden-sac": Algorithm(
        "SAC", _arxiv("1812.05905"), "off_policy/sac.py", "pendulum-hidden-sac", *_HIDDEN,
    ),
    "sac-seq": Algorithm(
        "SAC-Seq (recurrent)", "[R2D2](https://openreview.net/forum?id=r1lyTjAqYX)",
        "off_policy/sac_seq.py", "pendulum-hidden-sac-seq", *_HIDDEN, "hidden-sac",
    ),
    "sac-trans": Algorithm(
        "SAC-Trans (transformer)",
        "",
        "off_policy/sac_seq.py",
        "pendulum-hidden-sac-trans",
        *_HIDDEN,
        "hidden-sac",
    ),
    "hold": Algorithm("SAC", _arxiv("1812.05905"), "off_policy/sac.py", "pendulum-hold", *_SLOW),
    "belief-flow": Algorithm(
        "Belief Flow", "", "off_policy/sac_belief.py", "pendulum-belief-flow", *_SLOW, "hold",
    ),
    "gru-d": Algorithm(
        "GRU-D", _arxiv("1606.01865"), "off_policy/sac_belief.py", "pendulum-gru-d", *_SLOW, "hold",
    ),
    "discrete-sac": Algorithm(
        "SAC for discrete actions", _arxiv("1910.07207"), "off_policy/discrete_sac.py",
        "cartpole-sac", *("cartpole", "CartPole"),
    ),
    "mbpo": Algorithm(
        "MBPO, 3,000 steps", _arxiv("1906.08253"), "model_based/mbpo.py", "pendulum-mbpo",
        *_UPRIGHT, "sac",
    ),
    "mbpo-balance": Algorithm(
        "MBPO, 5,000 steps", _arxiv("1906.08253"), "model_based/mbpo.py", "inverted-pendulum-mbpo",
        *("inverted-pendulum", "InvertedPendulum"),
    ),
    "model-ppo": Algorithm(
        "PPO with imagined rollouts", "", "model_based/model_ppo.py", "pendulum-model-ppo",
        *_UPRIGHT, "ppo",
    ),
    "tdmpc2": Algorithm(
        "TD-MPC2, 10,000 steps", _arxiv("2310.16828"), "planning/tdmpc2.py", "pendulum-tdmpc2",
        *_UPRIGHT, "sac",
    ),
    "tdmpc": Algorithm(
        "TD-MPC, 10,000 steps", _arxiv("2203.04955"), "planning/tdmpc.py", "pendulum-tdmpc",
        *_UPRIGHT, "sac",
    ),
    "bc": Algorithm("Behaviour cloning", "", "offline/cloning.py", "pendulum-bc", *_RECORDED),
    "td3-bc": Algorithm(
        "TD3+BC", _arxiv("2106.06860"), "offline/td3_bc.py", "pendulum-td3-bc", *_RECORDED, "bc",
    ),
    "iql": Algorithm(
        "IQL", _arxiv("2110.06169"), "offline/iql.py", "pendulum-iql", *_RECORDED, "bc",
    ),
    "cql": Algorithm(
        "CQL", _arxiv("2006.04779"), "offline/cql.py", "pendulum-cql", *_RECORDED, "bc",
    ),
    "gail": Algorithm(
        "GAIL", _arxiv("1606.03476"), "imitation/gail.py", "pendulum-gail", *_EXPERT, "bc-expert",
    ),
    "bc-expert": Algorithm(
        "Behaviour cloning", "", "offline/cloning.py", "pendulum-bc dataset=pendulum-expert",
        *_EXPERT,
    ),
    "distillation": Algorithm(
        "Distillation", "", "distillation/distillation.py", "pendulum-hidden-distill teacher=…",
        *_BLIND, "sac", teacher="sac",
    ),
    "dagger": Algorithm(
        "DAgger", _arxiv("1011.0686"), "distillation/dagger.py", "pendulum-hidden-dagger teacher=…",
        *_BLIND, "sac", teacher="sac",
    ),
    "moe": Algorithm(
        "PPO, mixture of experts", "", "on_policy/auxiliary.py", "pendulum-moe", *_UPRIGHT, "ppo",
    ),
    "vae": Algorithm(
        "PPO, variational autoencoder", "", "on_policy/auxiliary.py", "pendulum-vae", *_UPRIGHT,
        "ppo",
    ),
    "fft": Algorithm(
        "PPO, causal FFT filter", "", "on_policy/ppo.py", "pendulum-fft", *_UPRIGHT, "ppo",
        is_smoother=True,
    ),
}  # fmt: skip


def overview(numbers: Iterable[dict]) -> str:
    """The table of `docs/locomotion.md`; an algorithm that was not measured has no row."""
    by_id, rows = {row["id"]: row for row in numbers}, []
    for key, algorithm in ALGORITHMS.items():
        if row := by_id.get(_id(key)):
            file, command = f"`rrf/algorithms/{algorithm.file}`", f"`rrf train {algorithm.words}`"
            measured = _measured(algorithm, row)
            rows.append((algorithm.name, algorithm.paper, file, command, measured))
    return table(("algorithm", "paper", "file", "command", "measured"), rows)


def _measured(algorithm: Algorithm, row: dict) -> str:
    text = f"{algorithm.task}: return {row['value']:g} ({row['train_cpu_s']:.0f} CPU-s)"
    if algorithm.beside:
        beside = ALGORITHMS[algorithm.beside].name
        text += f"; {beside}: {row['peer_value']:g}"
        if algorithm.is_smoother:
            change = 100 * (row["smoothness"] / row["peer_smoothness"] - 1)
            text += f". Sm {change:+.0f} %"
    return text


def _id(key: str) -> str:
    return f"algorithm_{key}"


@dataclasses.dataclass(frozen=True)
class Result:
    """The results of an algorithm: a return per seed; the other numbers are means over seeds."""

    returns: list[float]
    smoothness: float | None
    cpu_s: float


def measure(key: str, bench: Bench) -> dict:
    """Train and evaluate an algorithm and the one it is compared with; returns its row."""
    algorithm, result = ALGORITHMS[key], _result(key)
    beside = algorithm.beside
    peer = _result(beside) if beside else None
    row = bench.number(
        _id(key),
        statistics.fmean(result.returns),
        f"return, {algorithm.task}",
        peer=ALGORITHMS[beside].name if beside else None,
        peer_value=statistics.fmean(peer.returns) if peer else None,
        seeds=SEEDS,
    )
    row["by_seed"] = [round(value, 2) for value in result.returns]
    row["train_cpu_s"] = round(result.cpu_s, 1)
    if algorithm.is_smoother and peer and result.smoothness and peer.smoothness:
        row["smoothness"] = float(f"{result.smoothness:.3g}")
        row["peer_smoothness"] = float(f"{peer.smoothness:.3g}")
    return row


def _result(key: str) -> Result:
    with ThreadPoolExecutor(2) as pool:
        trained = list(pool.map(lambda seed: _trained(key, seed), SEEDS))
    protocol = protocol_of(ALGORITHMS[key].protocol)
    metrics = [judged(Path(run["checkpoint"]), protocol).mean_metrics() for run in trained]
    smoothness = [means["smoothness"] for means in metrics if "smoothness" in means]
    return Result(
        returns=[means["return"] for means in metrics],
        smoothness=statistics.fmean(smoothness) if smoothness else None,
        cpu_s=statistics.fmean(run["cpu_s"] for run in trained),
    )


def _trained(key: str, seed: int) -> dict:
    words, teacher = ALGORITHMS[key].words, ALGORITHMS[key].teacher
    if teacher:
        words = words.replace("…", _trained(teacher, seed)["checkpoint"])
    preset, *overrides = words.split()
    measured = commit()
    run_dir = workspace.state() / "benchmarks" / "algorithms" / f"{measured}-{key}-seed{seed}"
    if measured.endswith("+"):  # uncommitted changes: an earlier run may be of other code
        shutil.rmtree(run_dir, ignore_errors=True)
    return train(preset, run_dir, [*overrides, f"seed={seed}", "device=cpu"])


IDS = {key: functools.partial(measure, key) for key in ALGORITHMS}


if __name__ == "__main__":
    harness.main("rl_algorithms", __doc__, IDS, results="rl")
