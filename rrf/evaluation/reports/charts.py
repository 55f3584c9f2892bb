"""Charts of success: by task with bounds, and the rate of all tasks."""

import itertools
from collections.abc import Mapping

from markupsafe import Markup

from rrf.evaluation.results import Rate
from rrf.pages.charts import COLORS, Drawing


def success_chart(rates: Mapping[str, Rate], others: Mapping[str, Mapping[str, Rate]]) -> Markup:
    """A bar per task with its Wilson bounds; `others` (label -> task -> rate) are marks on the same
    rows.
    """
    drawing = Drawing((7.8, 0.34 * len(rates) + 0.5 + 0.25 * bool(others)))
    axes = drawing.axes
    rows, values = range(len(rates)), list(rates.values())
    bars = axes.barh(rows, [rate.rate for rate in values], 0.6, color="#5eead4", zorder=2)
    axes.errorbar(
        [rate.rate for rate in values],
        rows,
        xerr=[[r.rate - r.low for r in values], [r.high - r.rate for r in values]],
        fmt="none",
        ecolor="#134e4a",
        elinewidth=1.2,
        capsize=3,
        zorder=3,
    )
    for row, bar, (task, rate) in zip(rows, bars, rates.items(), strict=True):
        drawing.add_tooltips(bar, [f"{task}: {rate}"])
        axes.text(1.02, row, f"{rate.rate:.0%}  {rate.successes}/{rate.episodes}", va="center")
    labelled = {}
    colors = itertools.islice(itertools.cycle(COLORS), 1, None)
    for (label, other_rates), color in zip(others.items(), colors, strict=False):
        shown = {task: row for row, task in enumerate(rates) if task in other_rates}
        places = [other_rates[task].rate for task in shown]
        marks = axes.scatter(places, list(shown.values()), s=30, c=color, marker="D", zorder=4)
        drawing.add_tooltips(marks, [f"{label}, {task}: {other_rates[task]}" for task in shown])
        labelled[label] = marks
    axes.set(xlim=(0, 1), ylim=(len(rates) - 0.5, -0.5), xticks=[0, 0.25, 0.5, 0.75, 1])
    axes.set_yticks(rows, list(rates))
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.grid(axis="x", zorder=0)
    axes.tick_params(length=0)
    axes.tick_params(axis="y", labelcolor="#111827")
    axes.spines[:].set_visible(False)
    if labelled:
        drawing.legend(labelled, len(labelled))
    return drawing.svg("success by task")


def interval_bar(rate: Rate) -> Markup:
    """The bar of the headline: the rate and its bounds on a line from 0 to 100 %."""
    drawing = Drawing((5.4, 0.6))
    axes = drawing.axes
    axes.plot([0, 1], [0, 0], color="#e5e7eb", linewidth=7, solid_capstyle="round")
    axes.plot([rate.low, rate.high], [0, 0], color="#5eead4", linewidth=7, solid_capstyle="butt")
    mark = axes.scatter([rate.rate], [0], s=90, c="#0f766e", zorder=3)
    drawing.add_tooltips(mark, [str(rate)])
    middle = min(max((rate.low + rate.high) / 2, 0.12), 0.88)
    bounds = f"{rate.low:.1%} to {rate.high:.1%}"
    axes.text(middle, -0.75, bounds, ha="center", va="center", color="#6b7280")
    axes.set(xlim=(-0.02, 1.02), ylim=(-1, 0.4))
    axes.set_axis_off()
    return drawing.svg("overall success with bounds")
