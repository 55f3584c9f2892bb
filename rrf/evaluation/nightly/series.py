"""The nights of one champion under one protocol: what each of them says, and when that is an alarm.

Two rules look at all tasks together and at each task. Together they raise a false alarm within
`NIGHTS` nights with a chance of at most `FALSE_ALARM`:

- The CUSUM (`rrf.evaluation.nightly.cusum`) adds up failures over nights. It finds falls that are
  slow, or that come and go.
- The paired test compares the night with the reference, initial state by initial state: an exact
  one-sided McNemar test (`rrf.evaluation.intervals.mcnemar_p`). It finds a large fall at once. The
  k-th night that differs is tested at level alpha / (k (k + 1)); these levels add up to alpha.

A night on which exactly the same episodes succeed as on an earlier night repeats it: it adds
nothing to the CUSUM, and is no new test. For an evaluation is deterministic. It does not change
from night to night until something else changes, and then it stays at what it is now. So a change
that makes nothing worse counts once, however many nights follow.

An alarm stays until somebody acknowledges it. Then both rules begin anew, by default with the same
reference, so that a fall that goes on raises another alarm. Nothing about alarms is stored: they
follow from the nights and the acknowledgements, in the order of time.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from rrf.evaluation.intervals import mcnemar_p
from rrf.evaluation.nightly.cusum import NIGHTS, Cusum, cusum
from rrf.evaluation.results import Evaluation, Rate, wins_and_losses

ALL = "all tasks"
FALSE_ALARM = 0.05
"""The largest chance of a false alarm within `NIGHTS` nights, over all rules and tasks."""
_CUSUM_SHARE = 0.6  # of FALSE_ALARM; the paired test has the rest

__all__ = ["ALL", "FALSE_ALARM", "NIGHTS", "Ack", "Count", "Night", "Point", "counts", "follow"]


@dataclasses.dataclass(frozen=True)
class Count:
    """Episodes of a task, or of all tasks."""

    successes: int
    episodes: int
    wins: int = 0
    """Episodes solved here and not in the reference, from the same initial state."""
    losses: int = 0
    """Episodes solved in the reference and not here."""

    def __add__(self, other: "Count") -> "Count":
        first, second = dataclasses.astuple(self), dataclasses.astuple(other)
        return Count(*(a + b for a, b in zip(first, second, strict=True)))

    @property
    def rate(self) -> Rate:
        """The success rate with its Wilson bounds."""
        return Rate.of([True] * self.successes + [False] * (self.episodes - self.successes))


@dataclasses.dataclass(frozen=True)
class Ack:
    """Somebody has taken note of an alarm."""

    time: str  # ISO 8601, UTC
    actor: str
    reason: str
    is_reference: bool = False
    """Whether the night that was acknowledged is the reference from now on."""


@dataclasses.dataclass(frozen=True)
class Night:
    """One evaluation of the champion."""

    id: str
    time: str  # ISO 8601, UTC
    tasks: dict[str, Count]
    digest: str  # of the evaluation
    outcomes: dict[str, str]  # by task; equal for nights on which the same episodes succeed
    against: str  # digest of the evaluation that wins and losses are counted against
    differences: tuple[str, ...] = ()  # sentences, see rrf.evaluation.nightly.differences
    acks: tuple[Ack, ...] = ()
    solved: str = ""  # which episodes, see rrf.evaluation.nightly.changes; "" from an older rrf
    commit: str = ""  # of the workspace; "" if it was in no repository
    is_dirty: bool = False  # whether the workspace had changes that were not committed
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)  # dataset -> DVC's md5


@dataclasses.dataclass(frozen=True)
class Point:
    """A night and what the rules say about it."""

    night: Night
    level: Rate  # of all tasks in the reference
    rules: dict[str, Cusum]  # by task or `ALL`; none for what was never solved
    statistics: dict[str, float]  # of the CUSUM after this night, for each of `rules`
    alarms: tuple[str, ...]  # sentences; those of this night only
    is_red: bool  # an alarm of this night, or an earlier one that is not acknowledged


def counts(evaluation: Evaluation, reference: Evaluation) -> dict[str, Count]:
    """The counts of an evaluation by task; wins and losses where the reference has a pair."""
    successes, by_task = reference.successes, {}
    for task, rate in evaluation.per_task.items():
        pairs = [e for e in evaluation.episodes if e.task == task and e.initial_state in successes]
        by_task[task] = Count(rate.successes, rate.episodes, *wins_and_losses(pairs, successes))
    return by_task


def together(tasks: Mapping[str, Count]) -> dict[str, Count]:
    """What the rules look at: all tasks together and, if there are several, each of them."""
    whole = {ALL: sum(tasks.values(), Count(0, 0))}
    return whole | dict(tasks) if len(tasks) > 1 else whole


def follow(
    reference: Mapping[str, Count], reference_digest: str, nights: Sequence[Night]
) -> list[Point]:
    """Apply the rules to all nights since the champion was promoted, oldest first.

    Args:
        reference: Counts of the evaluation to compare with, by task.
        reference_digest: The digest of that evaluation.
        nights: The nights, oldest first, of the same initial states as the reference.

    Raises:
        ValueError: If a night has other tasks or another number of episodes than the reference.
    """
    state, points, is_red = _State(reference, reference_digest), [], False
    for night in nights:
        alarms = state.after(night)
        is_red = is_red or bool(alarms)
        level, statistics = together(reference)[ALL].rate, dict(state.statistics)
        points.append(Point(night, level, state.rules, statistics, tuple(alarms), is_red))
        if night.acks:
            if any(ack.is_reference for ack in night.acks):
                reference, reference_digest = night.tasks, night.digest
            state, is_red = _State(reference, reference_digest), False
    return points


class _State:
    """Both rules, since the promotion or the last acknowledgement."""

    def __init__(self, reference: Mapping[str, Count], digest: str):
        self.rules, self._digest = _rules(reference), digest
        self.statistics = dict.fromkeys(self.rules, 0.0)
        self._seen: dict[str, set[str]] = {}  # outcomes, by task or `ALL`
        self._tests: dict[str, int] = {}

    def after(self, night: Night) -> list[str]:
        """Count a night; returns the alarms that it raises."""
        alarms, shown = [], together(night.tasks)
        if missing := sorted(set(self.rules) - set(shown)):
            raise ValueError(f"the night of {night.time} lacks {', '.join(missing)}")
        for name, count in shown.items():
            seen = self._seen.setdefault(name, set())
            outcome = night.outcomes.get(name) or "".join(night.outcomes.values())
            if outcome in seen:
                continue
            seen.add(outcome)
            if night.against == self._digest and (count.wins or count.losses):
                k = self._tests[name] = self._tests.get(name, 0) + 1
                share = (1 - _CUSUM_SHARE) * _share(name, len(night.tasks))
                alarms += _paired(name, count, share / (k * (k + 1)))
            if rule := self.rules.get(name):
                alarms += self._summed(name, rule, count)
        return alarms

    def _summed(self, name: str, rule: Cusum, count: Count) -> list[str]:
        statistic = rule.after(self.statistics[name], count.successes, count.episodes)
        self.statistics[name] = statistic
        if statistic < rule.threshold:
            return []
        return [
            f"{name}: failures above {rule.allowance:g} per night add up to {statistic:g}, and "
            f"{rule.threshold:g} is an alarm"
        ]


def _share(name: str, num_tasks: int) -> float:
    """The part of `FALSE_ALARM` of all tasks together, half of it, or of one of several tasks."""
    if num_tasks == 1:
        return FALSE_ALARM
    return FALSE_ALARM / 2 / (1 if name == ALL else num_tasks)


def _rules(reference: Mapping[str, Count]) -> dict[str, Cusum]:
    rules = {}
    for name, count in together(reference).items():
        chance = _CUSUM_SHARE * _share(name, len(reference))
        rules[name] = cusum(count.successes, count.episodes, count.episodes, chance)
    return {name: rule for name, rule in rules.items() if rule}


def _paired(name: str, count: Count, level: float) -> list[str]:
    p_value = mcnemar_p(count.losses, count.wins)
    if p_value > level:
        return []
    return [
        f"{name}: {count.losses} episodes lost and {count.wins} won since the reference (p "
        f"{p_value:.2g}, an alarm up to {level:.2g})"
    ]


def after_an_alarm(model: str) -> str:
    """What to type after an alarm about the champion of `model`."""
    return (
        f"by which commit: rrf nightly bisect {model}; acknowledge it with: rrf nightly ack "
        f"{model} --reason '...'"
    )
