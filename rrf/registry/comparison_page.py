"""The page of a comparison: one file that loads nothing."""

from typing import Any

from rrf import atomic
from rrf.evaluation.comparison import ALL, ALPHA
from rrf.evaluation.reports.charts import success_chart
from rrf.evaluation.results import Evaluation
from rrf.pages.charts import curves_chart
from rrf.pages.page import data_url, render
from rrf.registry.comparison import Comparison, Trial

_FIRST = ("loss", "validation", "rollout", "env")
_MOST_CHARTS = 24
_MOST_VIDEOS = 24


def page(comparison: Comparison) -> str:
    """The comparison as HTML."""
    order = sorted(comparison.curves, key=lambda name: (not name.startswith(_FIRST), name))
    return render(
        "registry/comparison.html",
        title=f"Comparison of {', '.join(comparison.names)}",
        comparison=comparison,
        tables={
            "Config": _rows(comparison.config),
            "Data": _rows(comparison.data),
            "Code": _rows(comparison.code),
        },
        trials=[_trial(trial) for trial in comparison.trials],
        charts=[curves_chart(comparison.curves[name], name) for name in order[:_MOST_CHARTS]],
        num_left_out=max(0, len(order) - _MOST_CHARTS),
        alpha=ALPHA,
    )


def _rows(facts: dict[str, list[str]]) -> list[list[str]]:
    return [[key, *values] for key, values in facts.items()]


def _trial(trial: Trial) -> dict[str, Any]:
    names = list(trial.evaluations)
    first, *others = names
    rates = {name: {**e.per_task, ALL: e.overall} for name, e in trial.evaluations.items()}
    rows = [
        [task, *(str(rates[name][task]) if task in rates[name] else "–" for name in names)]
        for task in [*trial.tasks, ALL]
    ]
    chart = success_chart(
        trial.evaluations[first].per_task,
        {name: trial.evaluations[name].per_task for name in others},
    )
    tests = [
        [
            f"{test.second} − {test.first}, {test.task}",
            f"{test.wins} / {test.losses} of {test.pairs}",
            *(f"{change:+.1%}" for change in test.difference),
            f"{test.p_value:.2g}",
            f"{test.adjusted:.2g}{' *' if test.is_significant else ''}",
        ]
        for test in trial.tests
    ]
    return {
        "protocol": trial.protocol, "names": names, "rows": rows, "chart": chart, "tests": tests,
        "metrics": _rows(trial.metrics), "videos": _videos(trial),
    }  # fmt: skip


def _videos(trial: Trial) -> list[dict[str, Any]]:
    """Initial states of which at least two policies have a video, with the videos side by side."""
    films: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for name, folder in trial.folders.items():
        for video in Evaluation.load(folder).videos:
            clip = atomic.inside(folder, video["path"], f"a video of the evaluation in {folder}")
            if clip.is_file():
                url = data_url("video/mp4", clip.read_bytes())
                place = films.setdefault((video["task"], video["index"]), {})
                place[name] = {"clip": url, "success": video["success"]}
    shown = [(state, films[state]) for state in films if len(films[state]) > 1]
    return [
        {"task": task, "index": index, "films": found}
        for (task, index), found in shown[:_MOST_VIDEOS]
    ]
