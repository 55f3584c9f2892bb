"""Learning curves as a picture: a line per seed or algorithm, and the band of what others published
behind them."""

import dataclasses
import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from rrf.pages.charts import COLORS

_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "rrf", "text.parse_math": False, "font.size": 9}


@dataclasses.dataclass(frozen=True)
class Point:
    """The greedy return after so many steps, and the bounds that are drawn around it."""

    steps: int
    mean: float
    low: float
    high: float


def interquartile(scores: list[float], seed: int = 0) -> tuple[float, float, float]:
    """The interquartile mean, and its bootstrap bounds of 95 %."""
    draws = np.random.default_rng(seed).choice(scores, (2000, len(scores)))
    low, high = np.percentile([_middle(draw) for draw in draws], [2.5, 97.5])
    return _middle(np.array(scores)), float(low), float(high)


def _middle(scores: np.ndarray) -> float:
    """The mean without the lowest and the highest quarter."""
    cut = len(scores) // 4
    return float(np.sort(scores)[cut : len(scores) - cut].mean())


def chart(
    title: str,
    curves: Mapping[str, Sequence[Point]],
    band: tuple[float, float] | None = None,
    band_label: str = "",
    of_steps: str = "steps of all environments",
    is_log: bool = False,
    is_log_upwards: bool = False,
    decimals: int = 0,
) -> str:
    """An SVG document with the legend below the lines.

    Args:
        title: Stands above the picture.
        curves: Label -> points.
        band: Lowest and highest published value.
        band_label: Who published them.
        of_steps: What is counted.
        is_log: Whether to draw the steps on a logarithmic axis.
        is_log_upwards: Whether to draw the values on one; they are all above 0.
        decimals: Of the numbers at the vertical axis.
    """
    with rc_context(_STYLE):  # pyright: ignore[reportArgumentType]
        figure = Figure((7.4, 3.9), layout="constrained")
        axes = figure.subplots()
        labelled = {}
        for number, (label, points) in enumerate(curves.items()):
            color, steps = COLORS[number % len(COLORS)], [point.steps for point in points]
            means = [point.mean for point in points]
            low, high = [point.low for point in points], [point.high for point in points]
            axes.fill_between(steps, low, high, color=color, alpha=0.12, linewidth=0)
            [labelled[label]] = axes.plot(steps, means, color=color, gid=label, linewidth=1.6)
        if band is not None:
            labelled[band_label] = axes.axhspan(*band, color="#fde68a", alpha=0.5, zorder=0)
        axes.set_title(title, loc="left")
        axes.set_xlabel(of_steps)
        if is_log:
            axes.set_xscale("log")
        if is_log_upwards:
            axes.set_yscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:g}" if is_log_upwards else f"{{x:,.{decimals}f}}")
        axes.grid(color="#e5e7eb")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(
            list(labelled.values()), list(labelled), loc="outside lower left", frameon=False
        )
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
