"""Charts of pages: curves over training, small histograms and curves of data, and what others are
drawn with.

Matplotlib draws them as SVG, which stands in the page with its text kept as text. When the mouse
rests on a mark, an SVG `<title>` shows its value, so no script is needed.
"""

import io
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.artist import Artist

Curve = Sequence[tuple[int, float]]
COLORS = ("#0f766e", "#b45309", "#6d28d9", "#be123c", "#1d4ed8", "#4d7c0f")
_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
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
_SMALL = (2.5, 0.85)  # inches
_PLACE = (0, 0.22, 1, 0.78)  # of the axes of a small chart; below stand two numbers
_NUM_BINS = 24
_MOST_POINTS = 120  # of a curve in a small chart


def curves_chart(curves: Mapping[str, Curve], title: str) -> Markup:
    """Lines over training steps, with the legend below them; empty if no value is finite.

    Losses with a wide range of values get a logarithmic axis.
    """
    finite = {
        name: [(step, value) for step, value in curve if math.isfinite(value)]
        for name, curve in curves.items()
    }
    values = [value for curve in finite.values() for _, value in curve]
    if not values:
        return Markup()
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


def histogram(values: np.ndarray, color: str = COLORS[4]) -> Markup:
    """A small histogram of finite values, with the ends of its axis written below."""
    values = values[np.isfinite(values)]
    if not len(values):
        return Markup("<p class='soft'>no values</p>")
    counts, edges = np.histogram(values, _NUM_BINS)
    drawing = Drawing(_SMALL, _PLACE)
    drawing.axes.stairs(counts, edges, fill=True, color=color)
    drawing.axes.set_xlim(edges[0], edges[-1])
    return _with_ends(drawing, values.min(), values.max(), "histogram")


def lines(curves: Sequence[np.ndarray]) -> Markup:
    """Small curves [T] over time, each in the next of `COLORS`, with the smallest and the largest
    value of all written below.
    """
    finite = np.concatenate([np.zeros(0), *(curve[np.isfinite(curve)] for curve in curves)])
    if len(finite) == 0:
        return Markup("<p class='soft'>no values</p>")
    drawing = Drawing(_SMALL, _PLACE)
    for curve, color in zip(curves, COLORS, strict=False):
        frames = np.unique(np.linspace(0, len(curve) - 1, _MOST_POINTS).round().astype(int))
        frames = frames[np.isfinite(curve[frames])]
        drawing.axes.plot(frames, curve[frames], color=color, linewidth=1.2, alpha=0.8)
    drawing.axes.set_xlim(0, max(1, *(len(curve) - 1 for curve in curves)))
    return _with_ends(drawing, finite.min(), finite.max(), "values over time")


def _with_ends(drawing: "Drawing", low: float, high: float, label: str) -> Markup:
    axes = drawing.axes
    for side, value in (("left", low), ("right", high)):
        axes.text(
            float(side == "right"), -0.06, f"{value:.4g}",
            transform=axes.transAxes, ha=side, va="top", color="#6b7280",
        )  # fmt: skip
    axes.set(xticks=[], yticks=[])
    axes.spines[["top", "left", "right"]].set_visible(False)
    return drawing.svg(label)


def _values_of(
    drawing: "Drawing", name: str, curve: Sequence[tuple[int, float]], color: str
) -> None:
    """Add invisible points to a curve, whose tooltips show the values."""
    every = math.ceil(len(curve) / _MOST_HOVERS)
    shown = [*curve[:-1:every], curve[-1]]
    points = drawing.axes.scatter(*zip(*shown, strict=True), s=40, c=color, alpha=0, zorder=3)
    drawing.add_tooltips(points, [f"{name}, step {step:,}: {value:.4g}" for step, value in shown])


class Drawing:
    """A matplotlib figure and the tooltips of its marks."""

    def __init__(
        self, size: tuple[float, float], place: tuple[float, float, float, float] | None = None
    ):
        """`size` is width and height in inches. `place` of the axes is left, bottom, width, height
        in shares of it; by default matplotlib finds one that leaves room for their labels.
        """
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        self._context = rc_context
        with rc_context(_STYLE):
            self._figure = Figure(size, layout=None if place else "constrained")
            self.axes = self._figure.add_axes(place) if place else self._figure.subplots()
        self._tooltips: dict[str, list[str]] = {}

    def add_tooltips(self, artist: "Artist", texts: Sequence[str]) -> None:
        """Give the marks of an artist these tooltips, in the order in which they are drawn."""
        key = f"marks-{len(self._tooltips)}"
        artist.set_gid(key)
        self._tooltips[key] = list(texts)

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

    def svg(self, label: str) -> Markup:
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
            for mark, tooltip in zip(
                marks, self._tooltips.get(group.get("id", ""), ()), strict=False
            ):
                ET.SubElement(mark, "title").text = tooltip
        _inline(root)
        width = float(root.attrib.pop("width").removesuffix("pt")) / 0.75
        root.attrib.pop("height")
        root.attrib |= {"role": "img", "aria-label": label, "style": f"max-width:{width:.0f}px"}
        return Markup(ET.tostring(root, encoding="unicode"))


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
