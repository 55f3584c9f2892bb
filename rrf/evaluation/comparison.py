"""Several policies on the same initial states: success per task, and tests of each pair.

Two policies are compared by the exact McNemar test (Psychometrika 12:153, 1947) on the episodes
that began in the same state, two-sided, for all tasks together and for each task. Of many such
tests some are small by chance. So their p-values are adjusted by Holm's procedure (Scand. J. Stat.
6:65, 1979): the chance that any of the differences marked at level alpha is none is at most alpha.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from rrf.evaluation.intervals import paired_difference, two_sided_mcnemar_p
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.results import Evaluation, wins_and_losses

ALL = "all tasks"
ALPHA = 0.05


@dataclasses.dataclass(frozen=True)
class PairTest:
    """One policy against another one, on all tasks or on one."""

    first: str
    second: str
    task: str
    pairs: int
    wins: int
    """Initial states that only the second one solved."""
    losses: int
    difference: tuple[float, float, float]
    """Success of the second minus that of the first, with 95 % bounds."""
    p_value: float
    adjusted: float
    """By Holm's procedure, over all tests of the comparison."""

    @property
    def is_significant(self) -> bool:
        """Whether the difference is marked."""
        return self.adjusted <= ALPHA


def same_conditions(evaluation: Evaluation) -> str:
    """A key that evaluations share whose episodes can be paired: protocol, simulator's versions."""
    protocol = parse_protocol(evaluation.protocol)
    if protocol.is_sequential:  # trials of another study are of another day
        return protocol.hash
    return f"{protocol.base_hash} {sorted(protocol.versions.items())}"


def pair_tests(evaluations: Mapping[str, Evaluation]) -> list[PairTest]:
    """Tests of every pair, by name; all tasks first. With one task, it is not tested again.

    Raises:
        ValueError: If the evaluations were not run under the same conditions.
    """
    if len({same_conditions(each) for each in evaluations.values()}) > 1:
        raise ValueError(
            "the evaluations were run under several protocols, or with several versions of a "
            "simulator, and cannot be paired; evaluate again with: rrf eval POLICY --protocol FILE"
        )
    counts = []
    for (first, one), (second, other) in itertools.combinations(evaluations.items(), 2):
        solved = one.successes
        both = [e for e in other.episodes if e.initial_state in solved]
        tasks = list(dict.fromkeys(e.task for e in both))
        for task in [ALL, *(tasks if len(tasks) > 1 else ())]:
            episodes = [e for e in both if task in (ALL, e.task)]
            counts.append((first, second, task, len(episodes), *wins_and_losses(episodes, solved)))
    p_values = [two_sided_mcnemar_p(wins, losses) for *_, wins, losses in counts]
    return [
        PairTest(
            first, second, task, pairs, wins, losses,
            paired_difference(wins, losses, pairs), p, adjusted,
        )
        for (first, second, task, pairs, wins, losses), p, adjusted in zip(
            counts, p_values, holm(p_values), strict=True
        )
    ]  # fmt: skip


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the order of the given ones: the k-th smallest of n times n - k + 1, but
    never smaller than the one before it, and at most 1.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
