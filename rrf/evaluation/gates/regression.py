"""Whether a policy does worse tonight than last night, on the initial states both nights share.

The champion may have been replaced in between, or the simulator, renderer or code have changed
under it. An exact McNemar test on the pairs in which the two nights differ, for all tasks together
and, with Bonferroni, for each task.
"""

import dataclasses

from rrf.evaluation.intervals import mcnemar_p
from rrf.evaluation.results import EpisodeResult, EvaluationReport

ALPHA = 0.01  # one false alarm in a hundred nights on which the results differ at all


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Tonight against last night: pairs in which only one of them succeeded, and what got worse."""

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
        ValueError: If the two were run under different protocols.
    """
    if tonight.protocol_hash != before.protocol_hash:
        raise ValueError("the protocol has changed since the last night; nothing can be compared")
    theirs = {episode.initial_state: episode.success for episode in before.episodes}
    wins, losses = _count(tonight.episodes, theirs)
    p_value = mcnemar_p(losses, wins)
    worse = []
    if p_value <= alpha:
        worse.append(_sentence("all tasks", wins, losses, p_value))
    tasks = tonight.per_task
    for task in tasks:
        task_wins, task_losses = _count([e for e in tonight.episodes if e.task == task], theirs)
        task_p = mcnemar_p(task_losses, task_wins)
        if task_p <= alpha / len(tasks):
            worse.append(_sentence(task, task_wins, task_losses, task_p))
    return Comparison(len(tonight.episodes), wins, losses, p_value, tuple(worse))


def _count(episodes: list[EpisodeResult], theirs: dict) -> tuple[int, int]:
    wins = sum(episode.success and not theirs[episode.initial_state] for episode in episodes)
    losses = sum(theirs[episode.initial_state] and not episode.success for episode in episodes)
    return wins, losses


def _sentence(what: str, wins: int, losses: int, p_value: float) -> str:
    return f"{what}: {losses} episodes lost and {wins} won since the last night (p {p_value:.4f})"
