"""Charts of the evaluation report: success by task with bounds, and training curves.

Matplotlib draws them as SVG, which is embedded in the page with its text kept as text. When the
mouse rests on a mark, an SVG `<title>` shows its value, so no script is needed.
"""

import io
import itertools
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rrf.evaluation.results import Rate

if TYPE_CHECKING:
    from matplotlib.artist import Artist

Curve = Sequence[tuple[int, float]]
_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
COLORS = ("#0f766e", "#b45309", "#6d28d9", "#be123c", "#1d4ed8", "#4d7c0f")
_DASHES = ("-", "--", ":")  # of further curves, when all colours are taken
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rrf",  # the same chart is the same text
    "font.size": 9,
    "axes.edgecolor": "#9ca3af",
    "axes.titlesize": 10,
    "axes.titleweight": "semibold",
    "xtick.color": "#6b7280",
    "ytick.color": "#6b7280",
    "grid.color": "#e5e7eb",
    "text.parse_math": False,  # names of tasks and metrics are not formulas
}
_MOST_HOVERS = 60
"""Largest number of points of a curve with a tooltip; of more points, every n-th gets one."""
_MOST_IN_LEGEND = 12


def success_chart(rates: Mapping[str, Rate], others: Mapping[str, Mapping[str, Rate]]) -> str:
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
        drawing.say(bar, [f"{task}: {rate}"])
        axes.text(1.02, row, f"{rate.rate:.0%}  {rate.successes}/{rate.episodes}", va="center")
    labelled = {}
    for (label, found), color in zip(others.items(), _colors(1), strict=False):
        shown = {task: row for row, task in enumerate(rates) if task in found}
        places = [found[task].rate for task in shown]
        marks = axes.scatter(places, list(shown.values()), s=30, c=color, marker="D", zorder=4)
        drawing.say(marks, [f"{label}, {task}: {found[task]}" for task in shown])
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


def curves_chart(curves: Mapping[str, Curve], title: str) -> str:
    """Lines over training steps, with the legend below them; empty if no value is finite.

    Losses with a wide range of values get a logarithmic axis.
    """
    finite = {
        name: [(step, value) for step, value in curve if math.isfinite(value)]
        for name, curve in curves.items()
    }
    values = [value for curve in finite.values() for _, value in curve]
    if not values:
        return ""
    in_legend = 1 < len(finite) <= _MOST_IN_LEGEND
    drawing = Drawing((5.6, 2.8 + 0.2 * in_legend * math.ceil(len(finite) / 2)))
    axes = drawing.axes
    labelled = {}
    for number, (name, curve) in enumerate(finite.items()):
        color, dashes = COLORS[number % len(COLORS)], _DASHES[number // len(COLORS) % len(_DASHES)]
        if curve:
            [labelled[name]] = axes.plot(
                *zip(*curve, strict=True), color=color, linestyle=dashes, linewidth=1.6
            )
            _values_of(drawing, name, curve, color)
    if min(values) > 0 and max(values) / min(values) > 20 and "loss" in title:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    axes.locator_params(axis="x", integer=True, nbins=6)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(title, loc="left")
    axes.grid()
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(False)
    if in_legend:
        drawing.legend(labelled, 2)
    return drawing.svg(title)


def interval_bar(rate: Rate) -> str:
    """The bar of the headline: the rate and its bounds on a line from 0 to 100 %."""
    drawing = Drawing((5.4, 0.6))
    axes = drawing.axes
    axes.plot([0, 1], [0, 0], color="#e5e7eb", linewidth=7, solid_capstyle="round")
    axes.plot([rate.low, rate.high], [0, 0], color="#5eead4", linewidth=7, solid_capstyle="butt")
    mark = axes.scatter([rate.rate], [0], s=90, c="#0f766e", zorder=3)
    drawing.say(mark, [str(rate)])
    middle = min(max((rate.low + rate.high) / 2, 0.12), 0.88)
    bounds = f"{rate.low:.1%} to {rate.high:.1%}"
    axes.text(middle, -0.75, bounds, ha="center", va="center", color="#6b7280")
    axes.set(xlim=(-0.02, 1.02), ylim=(-1, 0.4))
    axes.set_axis_off()
    return drawing.svg("overall success with bounds")


def _values_of(
    drawing: "Drawing", name: str, curve: Sequence[tuple[int, float]], color: str
) -> None:
    """Add invisible points to a curve, whose tooltips show the values."""
    every = math.ceil(len(curve) / _MOST_HOVERS)
    shown = [*curve[:-1:every], curve[-1]]
    points = drawing.axes.scatter(*zip(*shown, strict=True), s=40, c=color, alpha=0, zorder=3)
    drawing.say(points, [f"{name}, step {step:,}: {value:.4g}" for step, value in shown])


def _colors(first: int) -> Iterable[str]:
    """An endless series of colours that starts with number `first`."""
    return itertools.islice(itertools.cycle(COLORS), first, None)


class Drawing:
    """A matplotlib figure and the tooltips of its marks."""

    def __init__(self, size: tuple[float, float]):
        """`size` is width and height in inches."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        self._context = rc_context
        with rc_context(_STYLE):
            self._figure = Figure(size, layout="constrained")
            self.axes = self._figure.subplots()
        self._said: dict[str, list[str]] = {}

    def say(self, artist: "Artist", texts: Sequence[str]) -> None:
        """Give the marks of an artist these tooltips, in the order in which they are drawn."""
        key = f"said-{len(self._said)}"
        artist.set_gid(key)
        self._said[key] = list(texts)

    def legend(self, labelled: Mapping[str, "Artist"], columns: int) -> None:
        """Add a legend below the chart."""
        with self._context(_STYLE):
            self._figure.legend(
                list(labelled.values()),
                list(labelled),
                loc="outside lower left",
                ncols=columns,
                frameon=False,
            )

    def svg(self, label: str) -> str:
        """The drawing as an element of an HTML page.

        It fills the width of its container, but never grows beyond the drawn width.
        """
        text = io.StringIO()
        with self._context(_STYLE):
            self._figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        root = ET.fromstring(text.getvalue())
        for part in (*root.findall(f"{_SVG}metadata"), *root.findall(f"{_SVG}defs")):
            root.remove(part)  # author, style and clip paths are needed in a separate file only
        for group in root.iter(f"{_SVG}g"):
            marks = list(group.iter(f"{_SVG}use")) or list(group.iter(f"{_SVG}path"))
            for mark, said in zip(marks, self._said.get(group.get("id", ""), ()), strict=False):
                ET.SubElement(mark, "title").text = said
        _inline(root)
        width = float(root.attrib.pop("width").removesuffix("pt")) / 0.75
        root.attrib.pop("height")
        root.attrib |= {"role": "img", "aria-label": label, "style": f"max-width:{width:.0f}px"}
        return ET.tostring(root, encoding="unicode")


def _inline(root: ET.Element) -> None:
    """Remove what an element of an HTML page does not need: namespaces, unused ids, clip paths and
    fonts.
    """
    links = {element.get(_LINK, "")[1:] for element in root.iter()}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.attrib.pop("clip-path", None)
        if element.get("id") not in links:
            element.attrib.pop("id", None)
        if link := element.attrib.pop(_LINK, None):
            element.attrib["href"] = link
        if "style" in element.attrib:
            kept = re.sub(r"font-family: [^;]*;? ?", "", element.attrib["style"])
            element.attrib["style"] = kept
        if path := element.get("d"):
            element.attrib["d"] = " ".join(path.split())
