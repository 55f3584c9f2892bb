"""The trend page: one HTML file with the nights of a champion and what the rules say about them."""

from collections.abc import Mapping, Sequence

from rrf.evaluation.nightly.series import ALL, FALSE_ALARM, NIGHTS, Count, Point, together
from rrf.evaluation.reports.charts import COLORS, Drawing
from rrf.evaluation.reports.page import escape, link, page, section, table

_SIZE = (10.4, 2.9)  # inches
_MOST_TICKS = 8
_MOST_IN_LEGEND = 12
_ALARM = "#b91c1c"


def trend_page(
    title: str,
    reference: str,
    levels: Mapping[str, Count],
    points: Sequence[Point],
    alarms: Sequence[str] = (),
    pages: Mapping[str, str] | None = None,
) -> str:
    """The page as HTML.

    Args:
        title: What the nights are of.
        reference: The name of the evaluation that the next night is compared with.
        levels: Its counts, for `ALL` and by task.
        points: The nights, oldest first; at least one.
        alarms: What is not acknowledged yet.
        pages: Night id -> address of its page.
    """
    tone, state = ("fail", "red") if alarms else ("pass", "green")
    header = (
        f'<div><h1>{escape(title)}</h1><div class="soft">{len(points)} nights from '
        f"{_day(points[0])} to {_day(points[-1])}; compared with {escape(reference)}</div></div>"
        f'<div><span class="badge {tone}">{state}</span></div>'
    )
    red = [f'<li class="fail"><span>alarm</span>{escape(one)}</li>' for one in alarms]
    sections = [section("Not acknowledged", f'<ul class="reasons">{"".join(red)}</ul>')] * any(red)
    sections += [
        section("Success per night", _success(points)),
        section("CUSUM of failures, as a share of its threshold", _cusum(points)),
        section("Rules and where they stand", _rules(levels, points[-1])),
        section("Nights", *(_night(point, pages or {}) for point in reversed(points))),
    ]
    footer = (
        f"Bounds are two-sided Wilson 95 % score intervals. All rules together raise a false alarm "
        f"within {NIGHTS} nights with a chance of at most {FALSE_ALARM:.0%}. A night on which the "
        "same episodes succeed as on an earlier one adds nothing to a CUSUM."
    )
    return page(title, header, sections, footer)


def _success(points: Sequence[Point]) -> str:
    drawing = Drawing(_SIZE)
    axes, places = drawing.axes, range(1, len(points) + 1)
    rates = [together(point.night.tasks)[ALL].rate for point in points]
    kept = [point.rules[ALL].kept if ALL in point.rules else 0.0 for point in points]
    tones = [_ALARM if point.is_red else COLORS[0] for point in points]
    labelled = {}
    edges = [place - 0.5 for place in places] + [len(points) + 0.5]
    levels = [point.level.rate for point in points]
    labelled["reference"] = axes.stairs(levels, edges, baseline=None, color="#6b7280", ls="--")
    labelled["lowest success that counts as unchanged"] = axes.stairs(
        kept, edges, baseline=None, color=COLORS[1], ls=":"
    )
    axes.vlines(
        list(places), [r.low for r in rates], [r.high for r in rates], colors=tones, zorder=3
    )
    marks = axes.scatter(list(places), [r.rate for r in rates], s=26, c=tones, zorder=4)
    drawing.say(marks, [f"{p.night.time}: {r}" for p, r in zip(points, rates, strict=True)])
    axes.set(ylim=(-0.03, 1.03), yticks=[0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter("{x:.0%}")
    _finish(drawing, points)
    drawing.legend(labelled, 2)
    return drawing.svg("success per night")


def _cusum(points: Sequence[Point]) -> str:
    drawing = Drawing(_SIZE)
    axes, labelled = drawing.axes, {}
    names = list(dict.fromkeys(name for point in points for name in point.rules))
    for number, name in enumerate(names):
        shares = [
            (place, point.statistics[name] / point.rules[name].threshold)
            for place, point in enumerate(points, start=1)
            if name in point.rules
        ]
        color, width = COLORS[number % len(COLORS)], 2.2 if name == ALL else 1.2
        [labelled[name]] = axes.plot(*zip(*shares, strict=True), color=color, linewidth=width)
    axes.axhline(1, color=_ALARM, linewidth=1.2, linestyle="--")
    raised = [place for place, point in enumerate(points, start=1) if point.alarms]
    if raised:
        marks = axes.scatter(raised, [1] * len(raised), s=40, c=_ALARM, marker="D", zorder=4)
        drawing.say(marks, ["; ".join(points[place - 1].alarms) for place in raised])
        labelled["alarm"] = marks
    axes.set_ylim(bottom=-0.05)
    axes.yaxis.set_major_formatter("{x:.0%}")
    _finish(drawing, points)
    if len(labelled) <= _MOST_IN_LEGEND:
        drawing.legend(labelled, 4)
    return drawing.svg("CUSUM per night")


def _finish(drawing: Drawing, points: Sequence[Point]) -> None:
    """The axis of nights, a line after each acknowledged one, and no ornament."""
    axes, every = drawing.axes, -(-len(points) // _MOST_TICKS)
    axes.set_xticks(range(1, len(points) + 1, every), [_day(p) for p in points[::every]])
    axes.set_xlim(0.5, len(points) + 0.5)
    for place, point in enumerate(points, start=1):
        if point.night.acks:
            axes.axvline(place + 0.5, color=COLORS[2], linewidth=1.4, zorder=1)
            axes.text(
                place + 0.45, 0.02, "acknowledged", color=COLORS[2], rotation=90, ha="right",
                transform=axes.get_xaxis_transform(), fontsize=8,
            )  # fmt: skip
    axes.grid(axis="y", zorder=0)
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(False)


def _rules(levels: Mapping[str, Count], last: Point) -> str:
    """What each series is compared with, its rule, and how soon a fall to half would show."""
    head = ["", "reference", "last night", "won", "lost", "unchanged from", "allowed per night"]
    head += ["CUSUM", "alarm from", "false alarm, CUSUM", "nights to see a fall to half"]
    rows = []
    for name, count in together(last.night.tasks).items():
        row = [name, f"{levels[name].successes}/{levels[name].episodes}"]
        row += [f"{count.successes}/{count.episodes}", str(count.wins), str(count.losses)]
        if rule := last.rules.get(name):
            nights = rule.mean_nights(levels[name].rate.rate / 2)
            row += [f"{rule.kept:.1%}", f"{rule.allowance:g}", f"{last.statistics[name]:g}"]
            row += [f"{rule.threshold:g}", f"{rule.false_alarm:.2%}", f"{nights:.1f}"]
        rows.append(row + ["–"] * (len(head) - len(row)))
    note = (
        "<p class='soft'>The CUSUM is the sum of failures above the allowed ones, never below 0. "
        f"Its false alarms are those within {NIGHTS} independent nights at the lowest success that "
        "counts as unchanged.</p>"
    )
    return table(head, rows) + note


def _night(point: Point, pages: Mapping[str, str]) -> str:
    night = point.night
    facts = [f"<li>{escape(one)}</li>" for one in (*point.alarms, *night.differences)]
    for ack in night.acks:
        also = "; this night is the reference from now on" if ack.is_reference else ""
        text = f"acknowledged {ack.time} by {ack.actor}: {ack.reason}{also}"
        facts.append(f"<li><b>{escape(text)}</b></li>")
    tone, rate = "fail" if point.is_red else "pass", together(night.tasks)[ALL].rate
    named = link(night.time, pages.get(night.id, ""))
    if night.id not in pages:
        named = escape(night.time)
    return (
        f'<div class="{tone} worse"><b>{"red" if point.is_red else "green"}</b> {named}: '
        f"{escape(str(rate))}<ul>{''.join(facts)}</ul></div>"
    )


def _day(point: Point) -> str:
    return point.night.time[:10]
