"""The experiments of `benchmarks.vla_experiments` as markdown tables and a picture."""

from benchmarks import vla_experiments as experiments
from benchmarks.record import ROOT
from rrf import atomic
from rrf.evaluation.reports.charts import curves_chart

CURVE = ROOT / "docs" / "images" / "learning-curve.svg"
HEADLINE = "metaworld-grpo-compact"
_STYLE = "<style>text{font:12px sans-serif}.title{font-weight:bold}</style>"


def overview() -> str:
    """The headline experiment by task, and every experiment in a row per seed."""
    lines = [
        *_by_task(HEADLINE),
        "",
        "| experiment | before | after, 95 % bounds | RL episodes | everything included |",
        "|---|---|---|---|---|",
    ]
    for name, experiment in experiments.EXPERIMENTS.items():
        for result in experiments.results_of(name):
            before = _rate(result, "before") if result["before"] is not None else ""
            episodes = result["episodes"] or ""
            lines.append(
                f"| {experiment.title}, seed {result['seed']} | {before} "
                f"| {_rate(result, 'after')} | {episodes} | {result['wall_s'] / 60:.1f} min |"
            )
    return "\n".join([*lines, ""])


def details() -> str:
    """The other experiments by task."""
    parts = []
    for name, experiment in experiments.EXPERIMENTS.items():
        if name != HEADLINE and experiments.results_of(name):
            heading = f"### {experiment.title}\n\n`python -m benchmarks.vla_rl {name}`, "
            parts.append(heading + "\n".join(_by_task(name)))
    return "\n\n".join(parts) + "\n"


def draw() -> None:
    """The learning curves of what was measured on six tasks: validation success over episodes."""
    curves = {
        f"{experiment.title}, seed {result['seed']}": [
            (entry["episodes"], entry["success"]) for entry in result["validations"]
        ]
        for name, experiment in experiments.EXPERIMENTS.items()
        for result in experiments.results_of(name)
        if result["validations"] and experiment.protocol == experiments.SIX_TASKS
    }
    if curves:
        svg = curves_chart(curves, "validation success over training episodes")
        svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="560" ', 1)
        atomic.write_text(CURVE, svg.replace(">", f">{_STYLE}", 1))


def _by_task(name: str) -> list[str]:
    results = experiments.results_of(name)
    seeds = " | ".join(f"seed {result['seed']}" for result in results)
    lines = [
        "solved held-out initial states, before → after, with 95 % bounds of the latter:",
        "",
        f"| task | {seeds} |",
        f"|---|{'---|' * len(results)}",
    ]
    for task in results[0]["by_task"]:
        cells = [_cell(result["by_task"][task]) for result in results]
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return lines


def _cell(task: dict) -> str:
    before = "" if task["before"] is None else f"{task['before']} → "
    low, high = task["bounds_after"]
    return f"{before}{task['after']} of {task['episodes']} [{low:.0%}, {high:.0%}]"


def _rate(result: dict, when: str) -> str:
    low, high = result[f"bounds_{when}"]
    return f"{result[when]:.1%} [{low:.1%}, {high:.1%}]"
