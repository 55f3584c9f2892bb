"""`make bench-tables`: the measured numbers as markdown tables.

Each goes between marks such as `<!-- benchmarks -->` and `<!-- /benchmarks -->`, so that no number
is typed by hand. All of them stand in `docs/benchmarks/README.md`, those by task and algorithm in
`docs/reinforcement-learning.md` and `docs/locomotion.md`, and a few in the README.
"""

import json
import statistics
from pathlib import Path

from benchmarks import (
    headline_page,
    markdown,
    metaworld_tasks,
    one_demo_means,
    recordings,
    rl_algorithms,
    rl_curves,
)
from benchmarks.markdown import filled
from benchmarks.record import RESULTS, ROOT
from benchmarks.rl_curve_chart import chart
from rrf import atomic
from rrf.presets import PRESETS, resolve
from rrf.runners.control.configs import ControlRunnerCfg

README = {
    "metaworld_success_before": "the six tasks the recipe was made on: one demonstration, imitated",
    "metaworld_success_after": "the same after GRPO, 14 minutes on two cores",
    "drawn_success_before": "six tasks drawn by each of three seeds: one demonstration, imitated",
    "drawn_success_imitated": "the same, repeated in simulation by the objects' poses, imitated",
    "drawn_success_after": "the same, then GRPO",
    "one_demo_rl_success_imitated": "the same tasks, without poses: bent by trial and error",
    "one_demo_rl_success": "the same, then GRPO",
    "fresh_success_before": "six tasks of a seed nobody had used: one demonstration, imitated",
    "fresh_success_imitated": "the same, repeated in simulation by the objects' poses, imitated",
    "fresh_success_after": "the same, then GRPO",
    "fresh_success_alone": "GRPO from the one demonstration alone, without repetition",
    "mt50_success": "all 50 tasks of Meta-World, one policy of 1.4 million parameters",
    "metaworld_rl_episodes_per_s": "Meta-World with images: episodes per second, first round",
    "go1_flat_walk_wall_s": "a Go1 that follows velocity commands, from nothing, on two cores",
    "go1_flat_ratio_vs_mjlab_cpu": "Go1: steps per second",
    "ppo_halfcheetah_ratio_vs_sb3": "PPO on HalfCheetah: steps per second",
    "reader_ratio_vs_lerobot": "frames read from a LeRobot v3 dataset",
    "sac_ratio_vs_sbx": "SAC on HalfCheetah: steps per second",
    "iql_updates_ratio_vs_d3rlpy": "IQL: gradient steps",
    "cql_updates_ratio_vs_d3rlpy": "CQL: gradient steps",
    "tdmpc2_ratio_vs_official": "TD-MPC2: steps, each with a plan and an update",
    "envpool_ratio_vs_gymnasium": "HalfCheetah stepped by EnvPool: steps per second",
}
"""The numbers in the README, the unflattering ones last, and what each is about."""
_PRECISIONS = {  # column -> folder of its curve
    "bfloat16, Intel Xeon": "",
    "fp32, Intel Xeon": "fp32",
    "bfloat16, AMD EPYC": "bf16-epyc",
    "fp32, AMD EPYC": "fp32-epyc",
}


def table(numbers: list[dict]) -> str:
    """One markdown table, a row per number."""
    rows = [
        (
            f"`{row['id']}`",
            f"{row['value']:g} {row['unit']}",
            f"{row['peer']}: {row['peer_value']:g}"
            if row["peer_value"] is not None
            else _paired(row),
            _ratio(row),
            f"`{row['command']}`",
            f"{row['commit']}, {row['date']}",
        )
        for row in numbers
    ]
    columns = ("what", "value", "peer", "ratio", "measured by", "commit, date")
    return markdown.table(columns, rows)


def faults(rows: list[dict]) -> str:
    """What was done to running work, and how often nothing was wrong afterwards."""
    cells = [
        (
            row["fault"],
            f"{row['value']:g} of {len(row['seeds'])}",
            f"{row['faults']}",
            f"{row['undisturbed_s']:g} s" if row["undisturbed_s"] else "",
            f"{row['cpu_s'] / len(row['seeds']):.3g} s",
            f"`{row['command']}`",
            f"{row['commit']}, {row['date']}",
        )
        for row in rows
    ]
    columns = (
        *("fault", "runs survived", "faults", "work alone", "CPU per run"),
        *("measured by", "commit, date"),
    )
    return markdown.table(columns, cells)


def _ratio(row: dict) -> str:
    return f"{row['ratio']:g}×" if row["ratio"] is not None else ""


def main() -> None:
    """Rewrite the tables from the JSON and CSV files."""
    headline_page.draw()
    _draw_precision()
    for path, text in pages().items():
        atomic.write_text(path, text)


def pages() -> dict[Path, str]:
    """The files that have tables, as they should be."""
    docs = ROOT / "docs"
    results = {path: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    numbers = [row for rows in results.values() for row in rows]
    algorithms = [row for row in numbers if row["id"].startswith("algorithm_")]
    blocks = {
        ROOT / "README.md": {"strongest": strongest(numbers)},
        RESULTS / "README.md": {
            "benchmarks": "\n".join(_section(path.stem, rows) for path, rows in results.items()),
            "curves": _curves(),
            "tasks": headline_page.details(),
            "views": metaworld_tasks.table(),
        },
        docs / "reinforcement-learning.md": {
            "headline": headline_page.overview(),
            "drawn": headline_page.drawn(),
            "tried": headline_page.tried(),
            "means": one_demo_means.table(),
        },
        docs / "models.md": {
            "families": headline_page.families(),
            "recordings": recordings.table(results.get(recordings.RESULTS, [])),
        },
        docs / "security.md": {"faults": faults([row for row in numbers if row.get("fault")])},
        docs / "locomotion.md": {
            "algorithms": rl_algorithms.overview(algorithms),
            "precision": _precision(),
        },
    }
    return {path: filled(path, contents) for path, contents in blocks.items()}


def strongest(numbers: list[dict]) -> str:
    """The README's table: the numbers of `README` in its order, those that were measured."""
    by_id, rows = {row["id"]: row for row in numbers}, []
    for name, what in README.items():
        if row := by_id.get(name):
            peer = f"{row['peer']}: {row['peer_value']:,g}" if row["peer"] else _paired(row)
            slower = "**slower**: " if (row["ratio"] or 1) < 1 else ""
            rows.append((f"{slower}{what}", _readable(row), peer, _ratio(row)))
    return markdown.table(("what", "here", "compared with", "ratio"), rows)


def _paired(row: dict) -> str:
    """The test against the stage that it goes on from, if there is one."""
    return f"on the same states: {test}" if (test := row.get("paired")) else ""


def _readable(row: dict) -> str:
    return (
        f"{row['value']:.1%} solved"
        if row["unit"] == "of 1"
        else f"{row['value']:,g} {row['unit']}"
    )


def _section(name: str, rows: list[dict]) -> str:
    machines = ", ".join(sorted({row["machine"] for row in rows}))
    return f"## {name}\n\nMachine: {machines}.\n\n{table(rows)}"


def _curves() -> str:
    """What `benchmarks.rl_curves` measured of each preset, what was never run, and the pictures."""
    rows, pictures = [], sorted(rl_curves.CURVES.glob("*.svg"))
    for preset in (path.stem for path in pictures):
        ends = {seed: rows[-1] for seed, rows in rl_curves.known(preset).items()}
        returns = ", ".join(f"{seed}: {row.return_greedy_mean:.0f}" for seed, row in ends.items())
        wall, cpu = (
            statistics.fmean(getattr(row, name) for row in ends.values()) / 60
            for name in ("wall_s", "cpu_s")
        )
        steps = next(iter(ends.values())).steps
        cost = f"{wall:.0f} min, {cpu:.0f} CPU-min"
        rows.append((f"`{preset}`", f"{steps:,}", returns, cost))
    measured = {path.stem for path in pictures} | {"go1-flat-ppo", "g1-whole-body-ppo"}
    measured |= {algorithm.words.split()[0] for algorithm in rl_algorithms.ALGORITHMS.values()}
    missing = [f"`{name}`" for name in PRESETS if _is_control(name) and name not in measured]
    images = "".join(f"![{path.stem}](curves/{path.name})\n\n" for path in pictures)
    columns = ("preset", "steps", "seed: greedy return at the end", "training of one, mean")
    table = markdown.table(columns, rows)
    return f"{table}\nPresets that were not run to their end: {', '.join(missing)}.\n\n{images}"


def _is_control(preset: str) -> bool:
    return isinstance(resolve(preset, {}), ControlRunnerCfg)


def _precision() -> str:
    """HalfCheetah by SAC in bfloat16, the preset, beside fp32; the same seed."""
    runs = [{row.steps: row for row in rows} for rows in _precision_runs().values()]
    rows = []
    for steps in sorted(set().union(*runs)):
        cells = [
            f"{row.return_greedy_mean:,.0f} ({row.return_train or 0:,.0f})" if row else "not run"
            for row in (run.get(steps) for run in runs)
        ]
        rows.append((f"{steps:,}", *cells))
    return markdown.table(("steps", *_PRECISIONS), rows)


def _precision_runs() -> dict[str, list[rl_curves.Row]]:
    folders = {name: rl_curves.CURVES / folder for name, folder in _PRECISIONS.items()}
    return {
        name: rl_curves.read(folder / "halfcheetah-sac-seed0.csv")
        for name, folder in folders.items()
    }


def _draw_precision() -> None:
    curves = {name: rl_curves.to_points(rows) for name, rows in _precision_runs().items()}
    picture = chart("halfcheetah-sac, seed 0: greedy return, 20 episodes", curves)
    atomic.write_text(RESULTS / "sac-precision.svg", picture)


if __name__ == "__main__":
    main()
