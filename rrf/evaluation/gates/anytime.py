"""Checks of a gate on trials that may stop after any block, whenever somebody looks.

The trials of two arms come in blocks, one trial of each arm in each of K conditions. The checks are
e-processes over blocks, so a check at level alpha errs with at most alpha however often somebody
looks, and for whatever reason the trials stop (Ville's inequality).

- Two arms: `rrf.evaluation.gates.sequential`, with blocks of K trials of both. The null hypotheses
  are about the mean success over the conditions: with different rates in them, the expectation of a
  block's factor is at most that with the mean rates (the inequality of arithmetic and geometric
  means), so the bound holds. A margin of 0 asks for evidence that the candidate is better: the test
  that stops a worse canary, with the arms exchanged.
- One arm against a threshold t: a mixture of likelihood ratios. For a rate a above t, the factor
  P_a / P_t of an outcome has an expectation that rises with the true rate and is 1 at t; for the
  mean over conditions, see above. The rates a are mixed by a Beta(1/2, 1/2) that is cut off at t,
  which has a closed form (Robbins, Ann. Math. Stat. 41:1397, 1970). Against "at least t" the same
  with successes and failures exchanged.

What is judged is E after the last complete block, not its largest value so far; that is stricter.

Legend: T blocks.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrf.evaluation.gates import sequential
from rrf.evaluation.gates.verdicts import Check
from rrf.evaluation.results import EpisodeResult, Evaluation

if TYPE_CHECKING:
    from rrf.evaluation.gates.gate import GateCfg

_EFFECT = 0.15  # the bets of a test of "better" are on this difference and twice as much


def anytime_checks(
    evaluation: Evaluation, gate: "GateCfg", rivals: Mapping[str, Evaluation], level: float
) -> list[Check]:
    """The checks of thresholds and rivals.

    Args:
        evaluation: The candidate's; all of its blocks.
        gate: The gate.
        rivals: "champion", "best champion" -> their evaluations of the same blocks.
        level: The error that each check may make, over all looks.
    """
    checks = [_threshold("overall", evaluation.episodes, gate.overall_lower_bound, level)]
    tasks = list(evaluation.per_task)
    checks += [_threshold(t, _of(evaluation, t), gate.task_lower_bound, level) for t in tasks]
    for name, rival in rivals.items():
        if evaluation.checkpoint_digest == rival.checkpoint_digest:
            checks.append(Check(name, "pass", f"{name}: the candidate is the {name} itself"))
            continue
        both = (evaluation.episodes, rival.episodes)
        checks.append(_pairs(name, *both, gate.champion_margin, level, level))
        for task in tasks if len(tasks) > 1 else ():
            both = (_of(evaluation, task), _of(rival, task))
            to_fail = level / len(tasks)  # with many tasks, one of them looks worse by chance
            checks.append(_pairs(f"{name} on {task}", *both, gate.task_margin, level, to_fail))
    return checks


def log_e_above(successes: int, trials: int, threshold: float) -> float:
    """The logarithm of the evidence that a success rate is above a threshold.

    Args:
        successes: Of the trials.
        trials: All.
        threshold: In (0, 1).
    """
    from scipy.special import betaincc, betaln

    solved, failed = successes + 0.5, trials - successes + 0.5
    above = float(betaincc(solved, failed, threshold))
    if above <= 0:
        return -math.inf
    mixed = float(betaln(solved, failed) - betaln(0.5, 0.5))
    mixed += math.log(above) - math.log(float(betaincc(0.5, 0.5, threshold)))
    missed = trials - successes
    return mixed - successes * math.log(threshold) - missed * math.log1p(-threshold)


def log_e_below(successes: int, trials: int, threshold: float) -> float:
    """The logarithm of the evidence that a success rate is below a threshold in (0, 1)."""
    return log_e_above(trials - successes, trials, 1 - threshold)


def bounds(successes: int, trials: int, level: float) -> tuple[float, float]:
    """Bounds of a success rate, each of which errs with at most `level` whenever it is looked at.

    They are found by bisection: the evidence against a rate falls as the rate comes nearer to the
    observed one.
    """
    limit = -math.log(level)

    def lower(solved: int) -> float:
        low, high = 0.0, solved / trials
        for _ in range(50):
            middle = (low + high) / 2
            is_refuted = middle > 0 and log_e_above(solved, trials, middle) >= limit
            low, high = (middle, high) if is_refuted else (low, middle)
        return low

    if trials == 0:
        return 0.0, 1.0
    return lower(successes), 1 - lower(trials - successes)


def log_e_pairs(solved: np.ndarray, trials: int, margin: float) -> tuple[float, float]:
    """The logarithms of the evidence that the first arm loses less than `margin`, and that it is
    worse.

    Args:
        solved: int [T, 2], solved trials of both arms in each block.
        trials: Trials of each arm in a block.
        margin: In [0, 1]; 0 for evidence that it is better. With 1 nothing can be lost that is not
            tolerated.
    """
    size, effect = (trials, trials), margin if 0 < margin < 1 else _EFFECT
    bad = sequential.log_e(solved, sequential.bad_bets(size, effect))
    if margin >= 1:
        good = np.array([math.inf])
    elif margin > 0:
        good = sequential.log_e(solved, sequential.good_bets(size, margin))
    else:
        good = sequential.log_e(solved[:, ::-1], sequential.bad_bets(size, _EFFECT))
    return float(good[-1]), float(bad[-1])


def _of(evaluation: Evaluation, task: str) -> list[EpisodeResult]:
    return [episode for episode in evaluation.episodes if episode.task == task]


def _threshold(
    name: str, episodes: Sequence[EpisodeResult], threshold: float, level: float
) -> Check:
    solved, trials = sum(e.success for e in episodes), len(episodes)
    low, high = bounds(solved, trials, level)
    measured = f"{name}: {solved}/{trials} solved, anytime bounds {low:.3f} to {high:.3f}"
    if threshold == 0 or log_e_above(solved, trials, threshold) >= -math.log(level):
        return Check(name, "pass", f"{measured}; the lower reaches {threshold:.3f}")
    if log_e_below(solved, trials, threshold) >= -math.log(level):
        return Check(name, "fail", f"{measured}; even the upper is below {threshold:.3f}")
    return Check(name, "hold", f"{measured}; {threshold:.3f} lies between")


def _pairs(
    name: str,
    episodes: Sequence[EpisodeResult],
    rival: Sequence[EpisodeResult],
    margin: float,
    level: float,
    level_to_fail: float,
) -> Check:
    blocks = sorted({e.index for e in episodes})
    tasks = {e.task for e in episodes}
    solved = np.array(
        [
            [sum(e.success for e in arm if e.index == block) for arm in (episodes, rival)]
            for block in blocks
        ]
    )
    good, bad = log_e_pairs(solved, len(tasks), margin)
    own, other = int(solved[:, 0].sum()), int(solved[:, 1].sum())
    asked = f"less than {margin:.3f} is lost" if margin else "it is better"
    measured = (
        f"{name}: {own}/{len(episodes)} against {other}/{len(rival)} solved, difference "
        f"{(own - other) / len(episodes):+.3f}; e = {_e(good)} of {1 / level:.3g} that {asked}, "
        f"{_e(bad)} of {1 / level_to_fail:.3g} that it is worse"
    )
    if bad >= -math.log(level_to_fail):
        return Check(name, "fail", f"{measured}; it is worse")
    if good >= -math.log(level):
        return Check(name, "pass", f"{measured}; {asked}")
    return Check(name, "hold", f"{measured}; undecided")


def _e(log: float) -> str:
    return f"{math.exp(min(log, 700.0)):.3g}" if log < math.inf else "certain"
