"""Test whether one evaluation is worse than another one on the initial states that both share.

The two evaluations may be of different policies, or of the same policy tonight and last night.
Between two nights, the champion may have been replaced, or the simulator, the renderer or the code
may have changed. The test is an exact McNemar test on the pairs of episodes that ended differently:
once for all tasks together and, with Bonferroni's correction, once for each task.
"""

import dataclasses

from rrf.evaluation.intervals import mcnemar_p
from rrf.evaluation.results import EvaluationReport, wins_and_losses

ALPHA = 0.01  # one false alarm in a hundred nights on which the results differ at all


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Tonight against last night. A win is a pair in which only tonight's episode succeeded."""

    pairs: int
    wins: int
    losses: int
    p_value: float  # of "not worse"; small is bad
    regressions: tuple[str, ...]  # one sentence each; empty if nothing got significantly worse


def compare(
    tonight: EvaluationReport, before: EvaluationReport, alpha: float = ALPHA
) -> Comparison:
    """Pair the episodes of two evaluations by initial state and test for a loss.

    Raises:
        ValueError: If the two evaluations were run under different protocols.
    """
    if tonight.protocol_hash != before.protocol_hash:
        raise ValueError(
            "the protocol has changed since last night, so the two evaluations cannot be compared"
        )
    theirs = before.successes
    wins, losses = wins_and_losses(tonight.episodes, theirs)
    p_value = mcnemar_p(losses, wins)
    worse = []
    if p_value <= alpha:
        worse.append(_sentence("all tasks", wins, losses, p_value))
    tasks = tonight.per_task
    for task in tasks:
        task_wins, task_losses = wins_and_losses(
            [e for e in tonight.episodes if e.task == task], theirs
        )
        task_p = mcnemar_p(task_losses, task_wins)
        if task_p <= alpha / len(tasks):
            worse.append(_sentence(task, task_wins, task_losses, task_p))
    return Comparison(len(tonight.episodes), wins, losses, p_value, tuple(worse))


@dataclasses.dataclass(frozen=True)
class WorseTask:
    """A task on which one policy solved fewer initial states than another policy."""

    task: str
    pairs: int
    solved: int
    solved_before: int
    p_value: float  # of "not worse"; small is bad

    def __str__(self) -> str:
        fewer = f"{self.task}: {self.solved} of {self.pairs} instead of {self.solved_before}"
        return fewer if self.p_value <= 0.05 else f"{fewer} (may be chance, p {self.p_value:.2f})"


def worse_tasks(report: EvaluationReport, other: EvaluationReport) -> list[WorseTask]:
    """The tasks on which `report` has fewer successes than `other`, the largest loss first.

    Only initial states that both evaluations share are compared.
    """
    theirs, found = other.successes, []
    for task in report.per_task:
        pairs = [e for e in report.episodes if e.task == task and e.initial_state in theirs]
        wins, losses = wins_and_losses(pairs, theirs)
        if losses > wins:
            solved = sum(episode.success for episode in pairs)
            p_value = mcnemar_p(losses, wins)
            found.append(WorseTask(task, len(pairs), solved, solved - wins + losses, p_value))
    return sorted(found, key=lambda one: (one.solved - one.solved_before) / one.pairs)


def _sentence(what: str, wins: int, losses: int, p_value: float) -> str:
    return f"{what}: {losses} episodes lost and {wins} won since the last night (p {p_value:.4f})"
