"""Charts of the evaluation report as inline SVG: success per task with bounds, and training
curves.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape

from rrf.evaluation.results import Rate

Curve = Sequence[tuple[int, float]]
_LABEL_PX, _BAR_PX, _NUMBER_PX, _ROW_PX = 210, 430, 130, 38
_COLORS = ("#0f766e", "#b45309", "#6d28d9", "#be123c", "#1d4ed8", "#4d7c0f")


def success_chart(rates: Mapping[str, Rate], others: Mapping[str, Mapping[str, Rate]]) -> str:
    """A bar per task with its Wilson bounds; `others` (label -> rates) as marks on the same
    rows.
    """
    width, height = _LABEL_PX + _BAR_PX + _NUMBER_PX, _ROW_PX * len(rates) + 30
    parts = [_grid_line(share, height) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    for row, (task, rate) in enumerate(rates.items()):
        marks = {label: found[task] for label, found in others.items() if task in found}
        parts.append(_task_row(task, rate, marks, top=row * _ROW_PX))
    return _svg(width, height, "success per task", parts)


def curves_chart(curves: Mapping[str, Curve], title: str) -> str:
    """Lines over training steps; losses that span much get a logarithmic axis. The legend stands in
    the corner that the lines do not end in.
    """
    width, height, left, right, top, bottom = 560, 280, 58, 16, 34, 34
    points = [point for curve in curves.values() for point in curve if math.isfinite(point[1])]
    if not points:
        return ""
    last = max(step for step, _ in points) or 1
    low, high = min(value for _, value in points), max(value for _, value in points)
    is_log = low > 0 and high / low > 20 and "loss" in title
    scale = math.log10 if is_log else float
    low_s, high_s = scale(low), scale(high)
    span = (high_s - low_s) or abs(high_s) or 1.0

    def x_px(step: float) -> float:
        return left + (width - left - right) * step / last

    def y_px(value: float) -> float:
        return height - bottom - (height - top - bottom) * (scale(value) - low_s) / span

    parts = [f'<text x="{left}" y="16" class="title">{escape(title)}</text>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = low_s + span * share
        shown = 10**value if is_log else value
        parts.append(_tick(left, width - right, y_px(shown), f"{shown:.2g}"))
    parts += [
        f'<text x="{x_px(last * share):.1f}" y="{height - 12}" class="axis" text-anchor="middle">'
        f"{round(last * share)}</text>"
        for share in (0.0, 0.5, 1.0)
    ]
    ends_high = y_px(max(curve[-1][1] for curve in curves.values() if curve)) < height / 2
    legend_top = height - bottom - 15 * len(curves) if ends_high else 16
    for number, (name, curve) in enumerate(curves.items()):
        color = _COLORS[number % len(_COLORS)]
        path = " ".join(f"{x_px(s):.1f},{y_px(v):.1f}" for s, v in curve if math.isfinite(v))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(
            f'<text x="{width - right}" y="{legend_top + 15 * number}" class="legend" '
            f'text-anchor="end" fill="{color}">{escape(name)}</text>'
        )
    return _svg(width, height, title, parts)


def interval_bar(rate: Rate) -> str:
    """The headline's bar: the rate as a mark inside its bounds on a line from 0 to 100 %."""
    width, line = 520, 26
    low, high, at = rate.low * width, rate.high * width, rate.rate * width
    parts = [
        f'<line x1="0" y1="{line}" x2="{width}" y2="{line}" stroke="#e5e7eb" stroke-width="10" '
        'stroke-linecap="round"/>',
        f'<line x1="{low:.1f}" y1="{line}" x2="{high:.1f}" y2="{line}" stroke="#5eead4" '
        'stroke-width="10"/>',
        f'<circle cx="{at:.1f}" cy="{line}" r="8" fill="#0f766e"/>',
        f'<text x="{low:.1f}" y="{line + 26}" class="axis" text-anchor="middle">'
        f"{rate.low:.1%}</text>",
        f'<text x="{high:.1f}" y="{line + 26}" class="axis" text-anchor="middle">'
        f"{rate.high:.1%}</text>",
    ]
    return _svg(width, 60, "overall success with bounds", parts, margin=12)


def _task_row(task: str, rate: Rate, marks: Mapping[str, Rate], top: int) -> str:
    middle = top + _ROW_PX / 2
    x_low, x_high = (_LABEL_PX + _BAR_PX * bound for bound in (rate.low, rate.high))
    parts = [
        f"<title>{escape(task)}: {escape(str(rate))}</title>",
        f'<text x="{_LABEL_PX - 12}" y="{middle + 4}" text-anchor="end" class="task">'
        f"{escape(task)}</text>",
        f'<rect x="{_LABEL_PX}" y="{middle - 9}" width="{_BAR_PX * rate.rate:.1f}" height="18" '
        'rx="3" fill="#2dd4bf"/>',
        f'<path d="M{x_low:.1f} {middle}H{x_high:.1f}M{x_low:.1f} {middle - 6}v12'
        f'M{x_high:.1f} {middle - 6}v12" stroke="#134e4a" stroke-width="1.6" fill="none"/>',
        f'<text x="{_LABEL_PX + _BAR_PX + 14}" y="{middle + 4}" class="number">{rate.rate:.0%}'
        f'<tspan class="axis" dx="6">{rate.successes}/{rate.episodes}</tspan></text>',
    ]
    for number, (label, other) in enumerate(marks.items(), start=1):
        x = _LABEL_PX + _BAR_PX * other.rate
        color = _COLORS[number % len(_COLORS)]
        parts.append(
            f'<path d="M{x:.1f} {middle - 13}l4 5-4 5-4-5z" fill="{color}">'
            f"<title>{escape(label)}: {escape(str(other))}</title></path>"
        )
    return f"<g>{''.join(parts)}</g>"


def mark_color(number: int) -> str:
    """The colour of the `number`-th comparison (from 1) in `success_chart`."""
    return _COLORS[number % len(_COLORS)]


def _grid_line(share: float, height: int) -> str:
    x = _LABEL_PX + _BAR_PX * share
    return (
        f'<line x1="{x}" y1="0" x2="{x}" y2="{height - 24}" stroke="#e5e7eb"/>'
        f'<text x="{x}" y="{height - 8}" class="axis" text-anchor="middle">{share:.0%}</text>'
    )


def _tick(left: float, right: float, y: float, text: str) -> str:
    return (
        f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#eceff1"/>'
        f'<text x="{left - 8}" y="{y + 4:.1f}" class="axis" text-anchor="end">{text}</text>'
    )


def _svg(width: int, height: int, label: str, parts: Sequence[str], margin: int = 0) -> str:
    box = f"{-margin} 0 {width + 2 * margin} {height}"
    return (
        f'<svg viewBox="{box}" role="img" aria-label="{escape(label)}" '
        f'style="max-width:{width + 2 * margin}px">{"".join(parts)}</svg>'
    )
