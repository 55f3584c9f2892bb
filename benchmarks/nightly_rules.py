"""`python -m benchmarks.nightly_rules`: what the rules of the nightly benchmark find, and miss.

Champions with known success rates are promoted and evaluated night after night by the real rules.
Each initial state is solved with a probability of its own, drawn once (Beta, with the champion's
success as its mean). When something changes, every episode is drawn anew. The table goes into
docs/how-to/watch-a-champion.md, between the marks `<!-- nightly -->` and `<!-- /nightly -->`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks import markdown
from benchmarks.harness import parser_of
from benchmarks.record import ROOT
from rrf import atomic
from rrf.evaluation.nightly.series import NIGHTS, Count, Night, follow

PAGE = ROOT / "docs/how-to/watch-a-champion.md"
SIZES = {"20 episodes": (1, 20), "50 episodes": (1, 50), "six tasks of 20": (6, 20)}
FALL = np.linspace(0.92, 0.42, 10)
_SPREAD = 5  # of the Beta distribution: some states are almost always solved, some never
Outcomes = Mapping[str, np.ndarray]  # bool [episodes] by task


def first_alarm(
    size: tuple[int, int],
    promoted: float,
    rates: Sequence[float],
    changes: float,
    rng: np.random.Generator,
) -> float:
    """The night of the first alarm, from 1; inf without one.

    Args:
        size: Tasks, and episodes of each.
        promoted: The true success at promotion.
        rates: The true success of each night.
        changes: The chance that a night is drawn anew; otherwise it repeats the one before.
        rng: Random stream.
    """
    luck = rng.beta(_SPREAD * promoted, _SPREAD * (1 - promoted), size)

    def draw(rate: float) -> Outcomes:
        solved = rng.random(size) < luck * rate / promoted
        return {f"task {number}": row for number, row in enumerate(solved)}

    solved, nights = (reference := draw(promoted)), []
    for number, rate in enumerate(rates):
        if rng.random() < changes:
            solved = draw(rate)
        nights.append(_night(number, solved, reference))
    start = {task: Count(int(solved.sum()), len(solved)) for task, solved in reference.items()}
    points = follow(start, "promotion", nights)
    return next((place for place, point in enumerate(points, start=1) if point.is_red), np.inf)


def against(solved: Outcomes, reference: Outcomes) -> dict[str, Count]:
    """The counts of a night by task, against a reference with the same initial states."""
    return {
        task: Count(
            int(episodes.sum()),
            len(episodes),
            int((episodes & ~reference[task]).sum()),
            int((~episodes & reference[task]).sum()),
        )
        for task, episodes in solved.items()
    }


def outcomes_of(solved: Outcomes) -> dict[str, str]:
    """What two nights share if the same episodes succeed, by task."""
    return {task: episodes.tobytes().hex() for task, episodes in solved.items()}


def _night(number: int, solved: Outcomes, reference: Outcomes) -> Night:
    tasks, outcomes = against(solved, reference), outcomes_of(solved)
    return Night(str(number), f"{number:04d}", tasks, str(number), outcomes, "promotion")


def alarms(
    num: int, size: tuple[int, int], promoted: float, rates: Sequence[float], changes: float = 1
) -> np.ndarray:
    """The nights of the first alarms of `num` champions, float64 [num]."""
    rng = np.random.default_rng(1)
    return np.array([first_alarm(size, promoted, rates, changes, rng) for _ in range(num)])


def table(num: int) -> str:
    """The table as markdown."""
    rows: dict[str, list[str]] = {}
    for size in SIZES.values():
        for success in (0.92, 0.5):
            for changes, how in ((1.0, "every night is new"), (0.05, "18 changes a year")):
                share = np.isfinite(alarms(num, size, success, [success] * NIGHTS, changes)).mean()
                name = f"{100 * success:.0f} % as promoted, {how}: false alarms in a year"
                rows.setdefault(name, []).append(f"{100 * share:.1f} %")
        for rate in (0.82, 0.72, 0.62, 0.42):
            share = np.isfinite(alarms(num, size, 0.92, [rate])).mean()
            name = f"from 92 % to {100 * rate:.0f} % at once: red the same night"
            rows.setdefault(name, []).append(f"{100 * share:.0f} %")
        nights = alarms(num, size, 0.92, [*FALL, *[FALL[-1]] * 20])
        half, most = (np.quantile(nights, q, method="higher") for q in (0.5, 0.9))
        name = "from 92 % to 42 % over ten nights: red by night (half of them, nine of ten)"
        rows.setdefault(name, []).append(f"{half:.0f}, {most:.0f}".replace("inf", "after 30"))
    columns = ("what happens", *SIZES)
    return markdown.table(columns, [(name, *cells) for name, cells in rows.items()])


def main() -> None:
    """Compute the table and write it into the page."""
    parser = parser_of(__doc__)
    parser.add_argument("--num", type=int, default=400, help="champions per cell")
    num = parser.parse_args().num
    atomic.write_text(PAGE, markdown.filled(PAGE, {"nightly": table(num)}))


if __name__ == "__main__":
    main()
