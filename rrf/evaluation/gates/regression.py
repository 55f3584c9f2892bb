"""Test whether one evaluation is worse than another one on the initial states that both share.

The two evaluations may be of different policies, or of one policy before and after a change of the
simulator, the renderer or the code. (Nights of a champion are many looks at the same question and
have rules of their own, `rrf.evaluation.nightly.series`.) The test is an exact McNemar test on the
pairs of episodes that ended differently: once for all tasks together and, with Bonferroni's
correction, once for each task.
"""

import dataclasses

from rrf.evaluation.intervals import mcnemar_p
from rrf.evaluation.results import Evaluation, wins_and_losses

ALPHA = 0.01  # of all tasks together; the tasks share another 0.01


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One evaluation against another. A win is a pair in which only the first one succeeded."""

    pairs: int
    wins: int
    losses: int
    p_value: float  # of "not worse"; small is bad
    regressions: tuple[str, ...]  # one sentence each; empty if nothing got significantly worse


def compare(after: Evaluation, before: Evaluation, alpha: float = ALPHA) -> Comparison:
    """Pair the episodes of two evaluations by initial state and test for a loss.

    Raises:
        ValueError: If the two evaluations were run under different protocols.
    """
    if after.protocol_hash != before.protocol_hash:
        raise ValueError(
            "the evaluations were run under two protocols, or with two versions of a simulator, "
            "and cannot be compared; evaluate both again with: rrf eval CHECKPOINT --protocol FILE"
        )
    solved_before = before.successes
    wins, losses = wins_and_losses(after.episodes, solved_before)
    p_value = mcnemar_p(losses, wins)
    worse = []
    if p_value <= alpha:
        worse.append(_sentence("all tasks", wins, losses, p_value))
    tasks = after.per_task
    for task in tasks:
        task_wins, task_losses = wins_and_losses(
            [e for e in after.episodes if e.task == task], solved_before
        )
        task_p = mcnemar_p(task_losses, task_wins)
        if task_p <= alpha / len(tasks):
            worse.append(_sentence(task, task_wins, task_losses, task_p))
    return Comparison(len(after.episodes), wins, losses, p_value, tuple(worse))


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


def worse_tasks(evaluation: Evaluation, other: Evaluation) -> list[WorseTask]:
    """The tasks on which `evaluation` has fewer successes than `other`, the largest loss first.

    Only initial states that both evaluations share are compared.
    """
    other_solved, worse = other.successes, []
    for task in evaluation.per_task:
        pairs = [
            e for e in evaluation.episodes if e.task == task and e.initial_state in other_solved
        ]
        wins, losses = wins_and_losses(pairs, other_solved)
        if losses > wins:
            solved = sum(episode.success for episode in pairs)
            p_value = mcnemar_p(losses, wins)
            worse.append(WorseTask(task, len(pairs), solved, solved - wins + losses, p_value))
    return sorted(worse, key=lambda task: (task.solved - task.solved_before) / task.pairs)


def _sentence(what: str, wins: int, losses: int, p_value: float) -> str:
    return f"{what}: {losses} episodes lost and {wins} won (p {p_value:.4f})"
