"""A chart of who was busy when: a row per process, a colour per activity."""

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path

from rrf.runners.vla_rl.timeline import Span

_COLORS = {
    "physics": "#2563eb",
    "simulation": "#2563eb",
    "rendering": "#60a5fa",
    "reset": "#a78bfa",
    "inference": "#f97316",
    "update": "#16a34a",
    "weight sync": "#dc2626",
    "offload": "#b45309",
    "bookkeeping": "#9ca3af",
}
_ROW_IN, _WIDTH_IN = 0.32, 9.0
_ORDER = ("env", "rollout", "actor", "driver")


def shares(spans: Sequence[Span]) -> dict[str, dict[str, float]]:
    """Of each process, the share of the time that each activity took; the rest is idle."""
    total = max(span.end_s for span in spans) - min(span.begin_s for span in spans)
    shares: dict[str, dict[str, float]] = {}
    for process in _rows(spans):
        parts = collections.defaultdict[str, float](float)
        for span in spans:
            if span.process == process:
                parts[span.activity] += (span.end_s - span.begin_s) / total
        shares[process] = {**parts, "idle": max(0.0, 1.0 - sum(parts.values()))}
    return shares


def draw(path: Path, title: str, spans: Sequence[Span]) -> None:
    """Write the chart; the end of the name says in which format.

    Raises:
        ValueError: If the end of the name is no format.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    if path.suffix not in (".svg", ".png"):
        raise ValueError(f"{path} must end with .svg or .png")
    rows = _rows(spans)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "rrf", "font.size": 9}):
        figure = Figure((_WIDTH_IN, 1.2 + _ROW_IN * len(rows)), layout="constrained")
        axes = figure.subplots()
        for (row, activity), bars in _bars(spans, rows).items():
            axes.broken_barh(bars, (row - 0.4, 0.8), color=_COLORS[activity], linewidth=0)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("seconds")
        axes.set_title(title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        shown = [name for name in _COLORS if any(span.activity == name for span in spans)]
        patches = [Patch(color=_COLORS[name], label=name) for name in shown]
        figure.legend(handles=patches, loc="outside lower left", ncols=8, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _rows(spans: Sequence[Span]) -> list[str]:
    def place(process: str) -> tuple[int, int]:
        role, _, number = process.partition(" ")
        return _ORDER.index(role), int(number or 0)

    return sorted({span.process for span in spans}, key=place)


def _bars(
    spans: Sequence[Span], rows: Sequence[str]
) -> Mapping[tuple[int, str], list[tuple[float, float]]]:
    """By row and activity: begin and length of each bar."""
    numbers = {process: row for row, process in enumerate(rows)}
    bars = collections.defaultdict[tuple[int, str], list[tuple[float, float]]](list)
    for span in spans:
        bar = (span.begin_s, span.end_s - span.begin_s)
        bars[numbers[span.process], span.activity].append(bar)
    return bars
