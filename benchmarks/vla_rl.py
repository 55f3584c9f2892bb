"""Reinforcement learning of the compact policy: `python -m benchmarks.vla_rl ID [--seeds 0 1]`.

`metaworld_rl_episodes_per_s` and its shares take five minutes.

`headline` measures `metaworld_success_before`, `metaworld_success_after` and `metaworld_rl_wall_s`.
From one demonstration per task, it runs fine-tuning, evaluation, GRPO, and evaluation on held-out
initial states, which takes a quarter of an hour per seed.

`mt50_success` measures `mt50_success` and `mt50_wall_h`: all 50 tasks, five demonstrations of each,
which are repeated in other initial states, then imitation and GRPO. It takes hours; `--resume`
continues it.

`hierarchy` measures `hierarchy_success`, `hierarchy_success_corrected`,
`hierarchy_success_after_rl` and `hierarchy_falls`: a G1 at its table, 150 demonstrations of each of
six instructions through the System 0 that comes with rrf, imitation of Systems 2 and 1, DAgger of
two of them, and GRPO through it; an hour and a half.

`drawn --tasks-seed 0 1 2` measures `drawn_success_before`, `drawn_success_imitated` and
`drawn_success_after`: six tasks that each of these seeds draws, one demonstration of each, which is
repeated in other initial states, then imitation and GRPO; half an hour per draw. With `--alone`
GRPO also starts from the imitated demonstration itself, without its repetitions. `--tasks-seed 77`
measures the draw that nobody had used, under `fresh_success_...`.

`tried --tasks-seed 0 1 2` measures `one_demo_rl_success`, and the stages before it: the same
tasks without a look at where object and goal are. How the demonstration must be bent in other
initial states is found by trial and error.

`pipeline_ratio`, `plan_error`, and `ray_over_inline_ratio` with `weight_sync_s`, are explained in
`benchmarks.vla_rl_roles`; they take minutes.

The other ids are those of `benchmarks.vla_experiments`; they appear only in the tables. Results
of seeds that were measured before are kept.
"""

import argparse
import functools
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness, headline_page, metaworld_peers, vla_rl_roles
from benchmarks import vla_experiments as experiments
from benchmarks.clock import peak_kb
from benchmarks.harness import Bench, Measure, train
from benchmarks.peers import NotMeasuredError
from rrf import workspace

_ROUNDS = 4
_RATE = "metaworld_rl_episodes_per_s"
_ALIASES = {
    "metaworld-grpo-compact": "headline",
    "metaworld-grpo-mt50-two-views": "mt50_success",
    "psi0-g1-table-grpo": "hierarchy",
}
_IDS = {  # experiment -> field of its results -> id under which it is published
    "metaworld-grpo-compact": {
        "before": "metaworld_success_before",
        "after": "metaworld_success_after",
        "wall_s": "metaworld_rl_wall_s",
    },
    "metaworld-grpo-mt50-two-views": {"after": "mt50_success", "wall_s": "mt50_wall_h"},
    "psi0-g1-table-grpo": {
        "before": "hierarchy_success",
        "corrected": "hierarchy_success_corrected",
        "after": "hierarchy_success_after_rl",
        "falls_after": "hierarchy_falls",
    },
}
_SEEDS = {"metaworld-grpo-compact": (0, 1, 2)}  # of others: 0
_UNITS = {"_s": ("s", 1), "_h": ("h", 3600)}  # by the end of an id: its name, and seconds


def metaworld_rl_episodes_per_s(bench: Bench) -> list[dict]:
    """Episodes per wall second of rollout and update together, with the shares of the CPU time.

    They are measured for the policy that training starts from, whose episodes are long. If the
    headline experiment was run here, they are also measured for the policy that it ends with. A
    row of its own stops hopeless episodes and has smaller batches. The peer is a simple loop
    without this package (`benchmarks.metaworld_peers`); rows also have the rate of lerobot's
    wrapper.
    """
    with tempfile.TemporaryDirectory() as scratch:
        start = Path(train("compact-vla-one-demo", Path(scratch, "sft"))["checkpoint"])
        numbers = [
            _rate(bench, _RATE, start, Path(scratch, "rl")),
            _rate(
                bench,
                f"{_RATE}_early_stop",
                start,
                Path(scratch, "stopping"),
                experiments.EARLY_STOP,
            ),
        ]
        end = workspace.state() / "headline" / "metaworld-grpo-compact-seed0" / "rl" / "result.json"
        if end.is_file():
            # Only the name is used, because the folder may have been moved.
            trained = end.parent / Path(json.loads(end.read_text())["checkpoint"]).name
            numbers.append(_rate(bench, f"{_RATE}_trained", trained, Path(scratch, "trained")))
    return numbers


def _rate(bench: Bench, name: str, parent: Path, run_dir: Path, words: Sequence[str] = ()) -> dict:
    """Measure rounds that start from the policy in `parent`, with these overrides; the first, which
    loads tasks, does not count.
    """
    import torch

    from rrf.presets import resolve
    from rrf.runners.vla_rl.configs import VLARLRunnerCfg

    torch.set_num_threads(1)
    cfg = resolve("metaworld-grpo-compact", [f"init_from={parent}", *words])
    assert isinstance(cfg, VLARLRunnerCfg)
    runner = cfg.replace(validation_episodes=1, max_rounds=_ROUNDS).build(run_dir)
    rounds: list[dict] = []
    peaks_gb: list[float] = []

    def on_progress(progress) -> None:
        rounds.append(dict(progress.metrics))
        peaks_gb[:] = [peak_kb(pid) / 2**20 for pid in runner.backend.pids()]

    runner.run(on_progress=on_progress)
    measured = rounds[1:]
    wall = sum(row["time/rollout"] + row["time/update"] for row in measured)
    episodes = sum(row["env/num_trajectories"] for row in measured)
    steps = sum(row["env/num_trajectories"] * row["env/episode_len"] for row in measured)
    names = ("reset", "physics", "rendering", "inference", "update")
    seconds = {name: sum(row[f"time/{name}"] for row in measured) for name in names}
    seconds["update"] *= cfg.update_threads
    shares = {name: round(spent / sum(seconds.values()), 3) for name, spent in seconds.items()}
    peer = metaworld_peers.episodes_per_s("naive", parent, episodes=3)
    lerobot = metaworld_peers.episodes_per_s("lerobot", parent, episodes=1)
    number = bench.compare(
        name,
        episodes / wall,
        "episodes/s",
        "a loop over Meta-World's env.step and env.render (egl), one process",
        peer,
        seeds=[cfg.seed],
    )
    return number | {
        "shares_of_cpu_time": shares,
        "control_steps_per_s": round(steps * cfg.env.action_repeat / wall),
        "success": round(measured[-1]["env/success_once"], 3),
        "worker_memory_gb": round(max(peaks_gb), 2),
        "lerobot_episodes_per_s": None if lerobot is None else round(lerobot, 4),
    }


def _drawn(bench: Bench) -> list[dict]:
    """The published numbers of drawn tasks: means over all draws, also those of earlier calls."""
    for tasks_seed in bench.options.tasks_seed:
        _run(bench, f"{experiments.DRAWN}{tasks_seed}", 0)
    names = experiments.measured_draws()
    known = [name for name in names if name != experiments.FRESH]
    fresh = [name for name in names if name == experiments.FRESH]
    return [
        *_means(bench, "drawn_success_{}", known),
        *(_means(bench, "fresh_success_{}", fresh) if fresh else ()),
    ]


def _tried(bench: Bench) -> list[dict]:
    """The published numbers of drawn tasks that are learned by trial and error from one
    demonstration: means over all draws, also those of earlier calls."""
    for tasks_seed in bench.options.tasks_seed:
        _run(bench, f"{experiments.TRIED}{tasks_seed}", 0)
    names = experiments.measured_draws(experiments.TRIED)
    return [
        number | {"id": number["id"].removesuffix("_after")}
        for number in _means(bench, "one_demo_rl_success_{}", names)
    ]


def _means(bench: Bench, id: str, names: list[str]) -> list[dict]:
    """The mean of each stage over these draws, and its test against the stage before; `id` has a
    place for the stage."""
    results = [experiments.results_of(name)[0] for name in names]
    seeds = [experiments.seed_of_draw(name) for name in names]
    command = f"{bench.command} --tasks-seed {' '.join(map(str, seeds))}"
    return [
        bench.number(
            id.format(when), statistics.mean(r[when] for r in results), "of 1", seeds=seeds
        )
        | {"command": command, "paired": headline_page.paired(results, since, when)}
        for when, since in headline_page.STAGES.items()
        if all(when in result for result in results)
    ]


def _experiment(name: str, bench: Bench) -> list[dict]:
    """The published numbers of an experiment: means over all seeds, also those of earlier calls."""
    for seed in bench.options.seeds or _SEEDS.get(name, (0,)):
        _run(bench, name, seed)
    results = experiments.results_of(name)
    numbers, since = [], None
    for field, id in _IDS.get(name, {}).items():
        unit, size = _UNITS.get(id[-2:], ("of 1", 1))
        value = statistics.mean(result[field] for result in results) / size
        seeds = [result["seed"] for result in results]
        number = bench.number(id, value, unit, seeds=seeds)
        if f"bounds_{field}" in results[0]:  # a stage, tested against the one before
            number["paired"] = headline_page.paired(results, since, field)
            since = field
        numbers.append(number)
    return numbers


def _run(bench: Bench, name: str, seed: int) -> None:
    if not bench.saves:
        raise NotMeasuredError("whole experiments have no small size, and always write results")
    experiments.run(name, seed, bench.options.resume, bench.options.alone)


_EXPERIMENTS = {name: functools.partial(_experiment, name) for name in experiments.EXPERIMENTS}
IDS: dict[str, Measure] = {
    _RATE: metaworld_rl_episodes_per_s,
    vla_rl_roles.PIPELINE: vla_rl_roles.pipeline_ratio,
    vla_rl_roles.PLAN: vla_rl_roles.plan_error,
    vla_rl_roles.RAY: vla_rl_roles.ray_over_inline,
    vla_rl_roles.SYNC: vla_rl_roles.ray_over_inline,
    "drawn": _drawn,
    "tried": _tried,
    **{alias: _EXPERIMENTS[name] for name, alias in _ALIASES.items()},
    **_EXPERIMENTS,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks-seed", nargs="+", type=int, default=[0, 1, 2], help="for drawn and tried"
    )
    parser.add_argument("--seeds", nargs="+", type=int, help="of training; 0, headline: 0 1 2")
    parser.add_argument("--alone", action="store_true", help="drawn: GRPO without repetition too")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted call")


if __name__ == "__main__":
    harness.main("vla_rl", __doc__, IDS, add_options=add_options, has_default=False)
