"""`make bench-tables`: the measured numbers as markdown tables.

They go to `docs/benchmarks/README.md` and, between marks such as `<!-- benchmarks -->` and
`<!-- /benchmarks -->`, to the README and `docs/locomotion.md`, so that no number is typed by hand.
"""

import json
import re
import statistics
from pathlib import Path

from benchmarks import headline_page, rl_algorithms, rl_curves
from benchmarks.record import RESULTS, ROOT
from benchmarks.rl_curve_chart import chart
from rrf import atomic
from rrf.presets import PRESETS, resolve
from rrf.runners.control.configs import ControlRunnerCfg

_PRECISIONS = {  # column -> folder of its curve
    "bfloat16, Intel Xeon": "",
    "fp32, Intel Xeon": "fp32",
    "bfloat16, AMD EPYC": "bf16-epyc",
    "fp32, AMD EPYC": "fp32-epyc",
}


def table(numbers: list[dict]) -> str:
    """One markdown table, a row per number."""
    lines = [
        "| what | value | peer | ratio | measured by | commit, date |",
        "|---|---|---|---|---|---|",
    ]
    for row in numbers:
        peer = f"{row['peer']}: {row['peer_value']:g}" if row["peer_value"] is not None else ""
        ratio = f"{row['ratio']:g}×" if row["ratio"] is not None else ""
        value = f"{row['value']:g} {row['unit']}"
        lines.append(
            f"| `{row['id']}` | {value} | {peer} | {ratio} | `{row['command']}` "
            f"| {row['commit']}, {row['date']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite the tables from the JSON and CSV files."""
    headline_page.draw()
    _draw_precision()
    for path, text in pages().items():
        atomic.write_text(path, text)


def pages() -> dict[Path, str]:
    """The files that have tables, as they should be."""
    sections, numbers = [], []
    for path in sorted(RESULTS.glob("*.json")):
        rows = json.loads(path.read_text())
        numbers += rows
        machines = ", ".join(sorted({row["machine"] for row in rows}))
        sections.append(f"## {path.stem}\n\nMachine: {machines}.\n\n{table(rows)}")
    sections.append(f"## Learning curves of state-based control\n\n{_curves()}")
    sections.append(f"## Reinforcement learning by task\n\n{headline_page.details()}")
    readme, locomotion = ROOT / "README.md", ROOT / "docs" / "locomotion.md"
    algorithms = [row for row in numbers if row["id"].startswith("algorithm_")]
    others = [row for row in numbers if row not in algorithms]
    text = _put(readme.read_text(), "benchmarks", table(others))
    text = _put(text, "algorithms", rl_algorithms.overview(algorithms))
    return {
        RESULTS / "README.md": "# Measured numbers\n\n" + "\n".join(sections),
        readme: _put(text, "headline", headline_page.overview()),
        locomotion: _put(locomotion.read_text(), "precision", _precision()),
    }


def _curves() -> str:
    """What `benchmarks.rl_curves` measured of each preset, what was never run, and the pictures."""
    lines = [
        "| preset | steps | seed: greedy return at the end | training of one, mean |",
        "|---|---|---|---|",
    ]
    pictures = sorted(rl_curves.CURVES.glob("*.svg"))
    for preset in (path.stem for path in pictures):
        ends = {seed: rows[-1] for seed, rows in rl_curves.known(preset).items()}
        returns = ", ".join(f"{seed}: {row.return_greedy_mean:.0f}" for seed, row in ends.items())
        wall, cpu = (
            statistics.fmean(getattr(row, name) for row in ends.values()) / 60
            for name in ("wall_s", "cpu_s")
        )
        steps = next(iter(ends.values())).steps
        lines.append(f"| `{preset}` | {steps:,} | {returns} | {wall:.0f} min, {cpu:.0f} CPU-min |")
    measured = {path.stem for path in pictures} | {"go1-flat-ppo"}
    measured |= {one.words.split()[0] for one in rl_algorithms.ALGORITHMS.values()}
    missing = [f"`{name}`" for name in PRESETS if _is_control(name) and name not in measured]
    images = "".join(f"![{path.stem}](curves/{path.name})\n\n" for path in pictures)
    rows = "\n".join(lines)
    return f"{rows}\n\nPresets that were not run to their end: {', '.join(missing)}.\n\n{images}"


def _is_control(preset: str) -> bool:
    return isinstance(resolve(preset, {}), ControlRunnerCfg)


def _precision() -> str:
    """HalfCheetah by SAC in bfloat16, the preset, beside fp32; the same seed."""
    runs = [{row.steps: row for row in rows} for rows in _precision_runs().values()]
    lines = [f"| steps | {' | '.join(_PRECISIONS)} |", "|---" * (1 + len(runs)) + "|"]
    for steps in sorted(set().union(*runs)):
        cells = [
            f"{row.return_greedy_mean:,.0f} ({row.return_train or 0:,.0f})" if row else "not run"
            for row in (run.get(steps) for run in runs)
        ]
        lines.append(f"| {steps:,} | {' | '.join(cells)} |")
    return "".join(f"  {line}\n" for line in lines)


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


def _put(text: str, mark: str, content: str) -> str:
    """`text` with `content` between the marks of this name."""
    between = re.compile(rf"(<!-- {mark} -->\n).*?( *<!-- /{mark} -->)", re.DOTALL)
    return between.sub(lambda found: found[1] + content + found[2], text)


if __name__ == "__main__":
    main()
