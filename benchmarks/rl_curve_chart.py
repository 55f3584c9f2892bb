"""Learning curves as a picture: a line per seed, the band of what others published behind them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 740, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 40, 40, 50
_COLORS = ("#0f766e", "#b45309", "#6d28d9", "#be123c", "#1d4ed8", "#4d7c0f")
_STYLE = "text{font:12px sans-serif}.title{font-weight:bold}.axis{fill:#4b5563}"


@dataclasses.dataclass(frozen=True)
class Point:
    """The greedy return after so many steps."""

    steps: int
    mean: float
    std: float


def chart(
    title: str,
    curves: Mapping[str, Sequence[Point]],
    band: tuple[float, float] | None = None,
    band_label: str = "",
) -> str:
    """An SVG document.

    Args:
        curves: Label -> points, the standard deviation over episodes drawn around the line.
        band: Lowest and highest published value.
    """
    points = [point for curve in curves.values() for point in curve]
    values = [p.mean + sign * p.std for p in points for sign in (-1, 1)] + list(band or ())
    marks = _round_marks(min(values), max(values))
    axes = _Axes(max(point.steps for point in points), marks[0], marks[-1])
    parts = [f'<text x="{_LEFT}" y="20" class="title">{escape(title)}</text>']
    if band is not None:
        top, bottom = axes.y_px(band[1]), axes.y_px(band[0])
        parts.append(
            f'<rect x="{_LEFT}" y="{top:.1f}" width="{_WIDTH - _LEFT - _RIGHT}" '
            f'height="{max(bottom - top, 1):.1f}" fill="#fde68a" fill-opacity="0.5"/>'
            f'<text x="{_LEFT + 6}" y="{top - 5:.1f}" class="axis">{escape(band_label)}</text>'
        )
    parts += [axes.horizontal(mark) for mark in marks]
    parts += [axes.vertical(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    parts.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" class="axis" text-anchor="middle">'
        "steps of all environments</text>"
    )
    for number, (label, curve) in enumerate(curves.items()):
        color = _COLORS[number % len(_COLORS)]
        parts += axes.curve(curve, color)
        parts.append(
            f'<text x="{_WIDTH - _RIGHT - 6}" y="{_HEIGHT - _BOTTOM - 8 - 15 * number}" '
            f'text-anchor="end" fill="{color}">{escape(label)}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" role="img" aria-label="{escape(title)}"><style>{_STYLE}</style>'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n'
    )


@dataclasses.dataclass(frozen=True)
class _Axes:
    """Where steps and returns lie in the picture."""

    last_step: int
    low: float
    high: float

    def x_px(self, steps: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * steps / self.last_step

    def y_px(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share

    def horizontal(self, value: float) -> str:
        y = self.y_px(value)
        return (
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" '
            f'stroke="#e5e7eb"/><text x="{_LEFT - 8}" y="{y + 4:.1f}" class="axis" '
            f'text-anchor="end">{value:g}</text>'
        )

    def vertical(self, share: float) -> str:
        steps = self.last_step * share
        return (
            f'<text x="{self.x_px(steps):.1f}" y="{_HEIGHT - 28}" class="axis" '
            f'text-anchor="middle">{steps:,.0f}</text>'
        )

    def curve(self, points: Sequence[Point], color: str) -> list[str]:
        """The line of the means, and the area of a standard deviation around it."""
        there = [(p.steps, p.mean + p.std) for p in points]
        back = [(p.steps, p.mean - p.std) for p in reversed(points)]
        area, line = self._path(there + back), self._path([(p.steps, p.mean) for p in points])
        return [
            f'<polygon points="{area}" fill="{color}" fill-opacity="0.12"/>',
            f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>',
        ]

    def _path(self, points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{self.x_px(x):.1f},{self.y_px(y):.1f}" for x, y in points)


def _round_marks(low: float, high: float) -> list[float]:
    """Four to nine round numbers from at most `low` to at least `high`."""
    span = (high - low) or abs(high) or 1.0
    size = 10 ** math.floor(math.log10(span / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if span / (size * factor) <= 7)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]
