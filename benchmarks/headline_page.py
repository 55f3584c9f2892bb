"""The headline experiment as a markdown table and a picture, from `docs/benchmarks/headline/`."""

import json

from benchmarks.record import RESULTS, ROOT
from rrf import atomic
from rrf.evaluation.report_charts import curves_chart

CURVE = ROOT / "docs" / "images" / "learning-curve.svg"
_STYLE = "<style>text{font:12px sans-serif}.title{font-weight:bold}</style>"


def table() -> str:
    """Per preset: a row per task and seed, before -> after, and what it cost."""
    parts = []
    for path in sorted((RESULTS / "headline").glob("*.json")):
        results = json.loads(path.read_text())
        parts.append(f"`{path.stem}`, solved of 50 held-out initial states, before → after:\n")
        seeds = " | ".join(f"seed {result['seed']}" for result in results)
        parts.append(f"| task | {seeds} |\n|---|{'---|' * len(results)}")
        for task in results[0]["by_task"]:
            cells = [_cell(result["by_task"][task]) for result in results]
            parts.append(f"| {task} | {' | '.join(cells)} |")
        totals = [
            f"{r['before']:.1%} → **{r['after']:.1%}** [{r['bounds_after'][0]:.1%}, "
            f"{r['bounds_after'][1]:.1%}]"
            for r in results
        ]
        parts.append(f"| all tasks, 95 % bounds | {' | '.join(totals)} |")
        costs = [f"{r['wall_s'] / 60:.1f} min, {r['episodes']} episodes" for r in results]
        parts.append(f"| everything included | {' | '.join(costs)} |\n")
    return "\n".join(parts)


def draw() -> None:
    """The learning curves of all measured seeds: validation success over episodes."""
    curves = {}
    for path in sorted((RESULTS / "headline").glob("*.json")):
        for result in json.loads(path.read_text()):
            curves[f"{path.stem} seed {result['seed']}"] = [
                (entry["episodes"], entry["success"]) for entry in result["validations"]
            ]
    if curves:
        svg = curves_chart(curves, "validation success over training episodes")
        svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="560" ', 1)
        atomic.write_text(CURVE, svg.replace(">", f">{_STYLE}", 1))


def _cell(task: dict) -> str:
    return f"{task['before']} → {task['after']}"
