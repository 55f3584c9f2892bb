"""The page of all nights: champions and protocols and timed trainings by night, one cell each."""

import dataclasses
from collections.abc import Mapping, Sequence

from rrf.evaluation.nightly.series import ALL, Point, together
from rrf.pages.page import render

MOST_NIGHTS = 30
"""Nights that the page shows, the last ones."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One row in one night."""

    text: str
    tone: str
    """pass, warn or fail."""
    more: str
    """Shown where the mouse rests."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A champion under a protocol, or a timed training."""

    title: str
    page: str
    """The file beside this page that has the details; "" without one."""
    cells: Mapping[str, Cell]
    """Day of the night -> what was seen; of several nights on one day, the last."""


def row_of(title: str, page: str, points: Sequence[Point]) -> Row:
    """The nights of a champion."""
    cells = {}
    for point in points:
        rate = together(point.night.tasks)[ALL].rate
        why = "; ".join(point.alarms) or ("an earlier alarm" if point.is_red else "")
        tone = "fail" if point.is_red else "pass"
        more = f"{point.night.time}: {rate}{f': {why}' if why else ''}"
        cells[point.night.time[:10]] = Cell(f"{100 * rate.rate:.0f}", tone, more)
    return Row(title, page, cells)


def overview_page(champions: Sequence[Row], trainings: Sequence[Row], notes: Sequence[str]) -> str:
    """The page as HTML.

    Args:
        champions: Success in percent.
        trainings: Speed in percent of the first night's.
        notes: A line for each change and each alarm.
    """
    rows = [*champions, *trainings]
    days = sorted({day for row in rows for day in row.cells})[-MOST_NIGHTS:]
    groups = {"Champions: success, %": champions, "Trainings: speed, % of the first": trainings}
    return render(
        "evaluation/nightly/overview.html",
        title="Nights",
        days=days,
        groups={name: rows for name, rows in groups.items() if rows},
        notes=notes,
    )
