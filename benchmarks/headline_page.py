"""The experiments of `benchmarks.vla_experiments` as markdown tables and a picture."""

import statistics

from benchmarks import vla_experiments as experiments
from benchmarks.markdown import table
from benchmarks.record import ROOT
from rrf import atomic
from rrf.pages.charts import curves_chart

CURVE = ROOT / "docs" / "images" / "learning-curve.svg"
HEADLINE = "metaworld-grpo-compact"
_STAGES = ("before", "imitated", "after")
_STYLE = "<style>text{font:12px sans-serif}.title{font-weight:bold}</style>"


def overview() -> str:
    """The headline experiment by task, and every experiment in a row per seed."""
    rows = [
        (
            f"{experiment.title}, seed {result['seed']}",
            _rate(result, "before") if result["before"] is not None else "",
            _rate(result, "after"),
            result["episodes"] or "",
            f"{result['wall_s'] / 60:.1f} min",
        )
        for name, experiment in _reinforced().items()
        for result in experiments.results_of(name)
    ]
    columns = ("experiment", "before", "after, 95 % bounds", "RL episodes", "everything included")
    return f"{_by_task(HEADLINE)}\n{table(columns, rows)}"


def details() -> str:
    """The other experiments by task."""
    parts = []
    drawn_tasks = {name: experiments.experiment_of(name) for name in experiments.measured_draws()}
    for name, experiment in (_reinforced() | drawn_tasks).items():
        if name != HEADLINE and experiments.results_of(name):
            command = name.replace(experiments.DRAWN, "drawn --tasks-seed ")
            heading = f"### {experiment.title}\n\n`python -m benchmarks.vla_rl {command}`, "
            parts.append(heading + _by_task(name))
    return "\n".join(parts)


def draw() -> None:
    """The learning curves of what was measured on six tasks, each of the first seed: validation
    success over episodes."""
    curves = {
        experiment.title: [(entry["episodes"], entry["success"]) for entry in result["validations"]]
        for name, experiment in _reinforced().items()
        for result in experiments.results_of(name)[:1]
        if result["validations"] and experiment.protocol == experiments.SIX_TASKS
    }
    if curves:
        svg = str(curves_chart(curves, "validation success over training episodes"))
        svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="560" ', 1)
        atomic.write_text(CURVE, svg.replace(">", f">{_STYLE}", 1))


def drawn() -> str:
    """The draws of six tasks, and their mean."""
    results = [experiments.results_of(name)[0] for name in experiments.measured_draws()]
    rows = []
    for result in results:
        tasks = ", ".join(task.removesuffix("-v3") for task in result["by_task"])
        rates = [_rate(result, when) for when in _STAGES]
        rows.append((tasks, *rates, f"{result['wall_s'] / 60:.1f} min"))
    if results:
        means = [statistics.fmean(r[when] for r in results) for when in _STAGES]
        minutes = statistics.fmean(r["wall_s"] for r in results) / 60
        rows.append(("mean", *(f"**{mean:.1%}**" for mean in means), f"{minutes:.1f} min"))
    stages = ("one demonstration, imitated", "repeated, imitated", "after GRPO")
    return table(("tasks", *stages, "all included"), rows)


def families() -> str:
    """Every family at laptop size: what it cost, and what it solves of the held-out states."""
    by_name = {
        name: experiments.results_of(name)
        for name, experiment in experiments.EXPERIMENTS.items()
        if experiment.is_family
    }
    by_name = {name: results for name, results in by_name.items() if results}
    if not by_name:
        return "not measured\n"
    compact = _mean(by_name["compact-vla-pretrain"])
    tasks = list(by_name["compact-vla-pretrain"][0]["by_task"])
    rows = []
    for name, results in by_name.items():
        title = experiments.EXPERIMENTS[name].title
        for result in results:
            facts, by_task = result["sft"], result["by_task"]
            row = [
                f"{title}, `{name}`, seed {result['seed']}",
                f"{facts['parameters'] / 1e6:.1f} M",
                f"{facts['steps']:,}",
                f"{facts['cpu_s'] / 60:.1f}",
                _rate(result, "after"),
                f"{result['after'] / compact:.0%}",
                *(_cell(by_task[task]) for task in tasks),
            ]
            rows.append(row)
    columns = ("family", "parameters", "steps", "CPU-min", "solved, 95 % bounds")
    shown = (task.removesuffix("-v3") for task in tasks)
    return table((*columns, "of the compact policy", *shown), rows)


def _reinforced() -> dict[str, experiments.Experiment]:
    """The experiments that are about reinforcement learning, and what it is compared with."""
    return {name: e for name, e in experiments.EXPERIMENTS.items() if not e.is_family}


def _mean(results: list[dict]) -> float:
    return statistics.fmean(result["after"] for result in results)


def _by_task(name: str) -> str:
    results = experiments.results_of(name)
    rows = [
        (task, *(_cell(result["by_task"][task]) for result in results))
        for task in results[0]["by_task"]
    ]
    what = "solved held-out initial states, before → after, with 95 % bounds of the latter:"
    columns = ("task", *(f"seed {result['seed']}" for result in results))
    return f"{what}\n\n{table(columns, rows)}"


def _cell(task: dict) -> str:
    before = "" if task["before"] is None else f"{task['before']} → "
    low, high = task["bounds_after"]
    return f"{before}{task['after']} of {task['episodes']} [{low:.0%}, {high:.0%}]"


def _rate(result: dict, when: str) -> str:
    low, high = result[f"bounds_{when}"]
    return f"{result[when]:.1%} [{low:.1%}, {high:.1%}]"
