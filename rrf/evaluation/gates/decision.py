"""Decide whether a candidate may become the champion: pass, hold or fail, from evaluations alone.

A gate compares exact one-sided confidence bounds with thresholds, and pairs the candidate with its
rivals on the same initial states: with the champion, and with the best champion so far. Without the
second comparison, many small steps down, each within the tolerated loss, would add up. If the data
do not allow a decision yet, the gate holds and asks for more episodes.

`alpha` is the probability of passing a policy that should not pass, whatever the reason and however
often somebody tries:

- The looks are fixed beforehand (`looks`, episodes per task) and share the error equally. This is
  Bonferroni over looks, the simplest group-sequential bound (Pocock, Biometrika 64:191, 1977, is
  sharper; for robots see arXiv:2503.10966).
- A pass needs every check to pass, also that on each single task. So several checks need no further
  correction: a policy that should fail by any of them passes with at most `alpha`
  (intersection-union test, Berger 1982). This holds the family-wise error over the tasks.
- Candidates that are judged one after the other against the same champion are attempts of one
  line. Attempt k gets the share 6 / (pi k)^2 of the error; the shares of all attempts add up to one
  (as in online testing, Javanmard & Montanari, arXiv:1502.06197).
- Under a protocol of trials on a robot, every block is a look; `rrf.evaluation.gates.anytime` has
  the tests for that. If the gate asks for trials beside its own protocol, both have to pass, so
  that by this argument neither needs a smaller error.

docs/gates.md has the probabilities that follow, computed by benchmarks/gate_characteristics.py.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rrf.evaluation.gates.anytime import anytime_checks
from rrf.evaluation.gates.own_rules import Rule, loaded, rule_checks
from rrf.evaluation.gates.serving import serving_checks
from rrf.evaluation.gates.verdicts import Check, Outcome, Verdict
from rrf.evaluation.intervals import (
    clopper_pearson,
    episodes_to_decide,
    mcnemar_p,
    noninferiority_p,
    paired_difference,
    pairs_to_decide,
)
from rrf.evaluation.protocols.base import in_words
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.results import EpisodeResult, Evaluation, Rate, wins_and_losses
from rrf.evaluation.serving_profile import ServingProfile

if TYPE_CHECKING:
    from rrf.envs.vec_env import InitialState
    from rrf.evaluation.gates.gate import GateCfg


@dataclasses.dataclass(frozen=True)
class Rival:
    """A policy that the candidate is compared with, and its evaluation on the same states."""

    evaluation: Evaluation
    version: str | None = None  # in the registry


def decide(
    evaluation: Evaluation,
    gate: "GateCfg",
    champion: Rival | None = None,
    best: Rival | None = None,
    round: int = 0,
    attempt: int = 1,
    profiles: Sequence[ServingProfile] = (),
    trial: Verdict | None = None,
) -> Verdict:
    """Judge a candidate. A pure function of its arguments.

    A look is about its own number of episodes: of a longer evaluation, the first ones of each task
    are judged. So nobody gains by choosing the number of episodes.

    Args:
        evaluation: The candidate's evaluation under the gate's protocol, extended for later looks.
        gate: The thresholds.
        champion: The champion; None if there is no champion.
        best: The best champion so far, if that is another one.
        round: 0 at the first look, 1 after the first hold, ...
        attempt: 1 for the first candidate that is judged against this champion, 2 for the second,
            ...
        profiles: Of the candidate as it is served, besides that in its evaluation.
        trial: What the gate for trials that this one names says about the candidate.

    Raises:
        ValueError: If an evaluation is incomplete or was run under another protocol, if the round
            or attempt does not exist, if a rule of the user's is not here or has changed, or if
            the trial is of another checkpoint or gate.
    """
    rounds = len(gate.looks)
    if not 0 <= round < rounds:
        raise ValueError(f"gate '{gate.name}' has rounds 0..{rounds - 1}, but not round {round}")
    if attempt < 1:
        raise ValueError(f"attempts are counted from 1, but this is attempt {attempt}")
    gate.check_evaluation(evaluation, "candidate")
    for who, rival in (("champion", champion), ("best champion", best)):
        if rival:
            _check_comparable(evaluation, rival.evaluation, gate, who)
    rules = loaded(gate.rule_sources)
    level = gate.alpha * share_of(attempt) / rounds
    judged = gate.first_episodes(evaluation, gate.looks[round])
    checks = _judge(judged, gate, champion, best, round, level, rules)
    own = [evaluation.profile] if evaluation.profile else []
    served = [*own, *(profile for profile in profiles if profile not in own)]
    checks += serving_checks(served, gate.serving, gate.hardware)
    is_held = _outcome(checks) == "hold"
    checks += _trial_checks(evaluation, gate, trial)
    return Verdict(
        outcome=_outcome(checks),
        gate=gate.name,
        gate_hash=gate.hash,
        protocol_hash=evaluation.protocol_hash,
        checkpoint_digest=evaluation.checkpoint_digest,
        evaluation_digest=evaluation.digest,
        champion_digest=champion.evaluation.checkpoint_digest if champion else None,
        champion_version=champion.version if champion else None,
        champion_evaluation=champion.evaluation.digest if champion else None,
        best_version=best.version if best else None,
        best_evaluation=best.evaluation.digest if best else None,
        attempt=attempt,
        round=round,
        rounds=rounds,
        confidence=1 - level,
        success=dataclasses.asdict(judged.overall),
        checks=tuple(checks),
        more_episodes_per_task=_missing(evaluation, gate, round) if is_held else 0,
        trial_evaluation=trial.evaluation_digest if trial else None,
    )


def _outcome(checks: Sequence[Check]) -> Outcome:
    outcomes = {check.outcome for check in checks}
    return "fail" if "fail" in outcomes else "hold" if "hold" in outcomes else "pass"


def _trial_checks(evaluation: Evaluation, gate: "GateCfg", trial: Verdict | None) -> list[Check]:
    """The checks of `gate.trial`; one that holds while there is no verdict of it."""
    if gate.trial is None:
        return []
    if trial is None:
        how = gate.trial.protocol.how_to_evaluate("", gate.trial.name, "it")
        reason = f"trial: it has not been tried under gate '{gate.trial.name}'; make {how}"
        return [Check("trial", "hold", reason)]
    judged = (trial.checkpoint_digest, trial.gate_hash)
    if judged != (evaluation.checkpoint_digest, gate.trial.hash):
        raise ValueError(
            f"the trial's verdict is by gate '{trial.gate}' on checkpoint "
            f"{trial.checkpoint_digest[:12]}, not by gate '{gate.trial.name}' of this gate on "
            f"{evaluation.checkpoint_digest[:12]}"
        )
    return [
        Check(f"trial: {check.name}", check.outcome, f"trial: {check.reason}")
        for check in trial.checks
    ]


def _missing(evaluation: Evaluation, gate: "GateCfg", round: int) -> int:
    """How many more episodes per task a hold asks for: up to this look, or to the next one."""
    current = evaluation.protocol["episodes_per_task"]
    next_round = round if current < gate.looks[round] else min(round + 1, len(gate.looks) - 1)
    return max(1, gate.looks[next_round] - current)


def share_of(attempt: int) -> float:
    """The share of the error that attempt 1, 2, ... gets; all shares together are 1."""
    return 6 / (math.pi * attempt) ** 2


def _judge(
    evaluation: Evaluation,
    gate: "GateCfg",
    champion: Rival | None,
    best: Rival | None,
    round: int,
    level: float,
    rules: Mapping[str, Rule],
) -> list[Check]:
    current, look = evaluation.protocol["episodes_per_task"], gate.looks[round]
    shorter = {
        name: gate.first_episodes(rival.evaluation, look)
        for name, rival in (("champion", champion), ("best champion", best))
        if rival
    }
    if gate.protocol.is_sequential:
        checks = anytime_checks(evaluation, gate, shorter, level)
    elif current < look:
        reason = f"{current} episodes per task, look {round + 1} of {len(gate.looks)} needs {look}"
        return [Check("episodes", "hold", reason)]
    else:
        checks = _fixed_size_checks(evaluation, gate, champion, best, level)
    rivals = {name.partition(" ")[0]: rival for name, rival in shorter.items()}
    others = _limit_checks(evaluation, gate)
    others += rule_checks(rules, gate.rules, evaluation, level, rivals)
    if current < look:  # a mean outside of its range does not end a trial that goes on
        others = [
            dataclasses.replace(c, outcome="hold") if c.outcome == "fail" else c for c in others
        ]
    checks += others
    if round == len(gate.looks) - 1 and current >= look:
        checks = [_closed(check, len(gate.looks)) for check in checks]
    return checks


def _fixed_size_checks(
    evaluation: Evaluation,
    gate: "GateCfg",
    champion: Rival | None,
    best: Rival | None,
    level: float,
) -> list[Check]:
    checks = [_threshold_check("overall", evaluation.overall, gate.overall_lower_bound, level)]
    for task, rate in evaluation.per_task.items():
        checks.append(_threshold_check(task, rate, gate.task_lower_bound, level))
    if gate.group_lower_bound:
        for title, rate in evaluation.rates_of(gate.groups).items():
            name = f"group {title}"
            checks.append(_threshold_check(name, rate, gate.group_lower_bound, level))
    if gate.good_tasks:
        checks.append(_good_tasks_check(evaluation, gate, level))
    for name, rival in (("champion", champion), ("best champion", best)):
        if rival:
            checks += _rival_checks(name, evaluation, rival, gate, level)
    return checks


def _threshold_check(name: str, rate: Rate, threshold: float, level: float) -> Check:
    low, high = clopper_pearson(rate.successes, rate.episodes, 1 - 2 * level)
    solved = f"{name}: {rate.successes}/{rate.episodes} solved"
    measured = f"{solved}, exact {_percent(1 - level)} bounds {low:.3f} to {high:.3f}"
    if low >= threshold:
        return Check(name, "pass", f"{measured}; the lower reaches {threshold:.3f}")
    if high < threshold:
        return Check(name, "fail", f"{measured}; even the upper is below {threshold:.3f}")
    needed = episodes_to_decide(rate.rate, threshold, 1 - 2 * level)
    reason = f"{measured}; {threshold:.3f} lies between, about {needed} would tell"
    return Check(name, "hold", reason)


def _good_tasks_check(evaluation: Evaluation, gate: "GateCfg", level: float) -> Check:
    """Whether at least `gate.good_tasks` of the tasks are good.

    Let n of N be asked for. If only n - 1 - j are good, a pass needs 1 + j of the other
    N - n + 1 + j to look good. Where each does so with at most level / (N - n + 1), that happens
    with at most `level` (Markov's inequality), however the tasks depend on each other.
    """
    rates, asked, threshold = evaluation.per_task, gate.good_tasks, gate.good_task_lower_bound
    level /= len(rates) - asked + 1
    bounds = {
        task: clopper_pearson(r.successes, r.episodes, 1 - 2 * level) for task, r in rates.items()
    }
    good = [task for task, (low, _) in bounds.items() if low >= threshold]
    possible = [task for task, (_, high) in bounds.items() if high >= threshold]
    measured = (
        f"good tasks: {len(good)} of {len(rates)} tasks reach {threshold:.3f} with their exact "
        f"{_percent(1 - level)} lower bounds ({', '.join(good) or 'none'}), asked are {asked}"
    )
    if len(good) >= asked:
        return Check("good tasks", "pass", measured)
    if len(possible) < asked:
        reason = f"{measured}; only {len(possible)} can by their upper bounds"
        return Check("good tasks", "fail", reason)
    return Check("good tasks", "hold", f"{measured}; {len(possible)} still can")


def _limit_checks(evaluation: Evaluation, gate: "GateCfg") -> list[Check]:
    """Checks of `gate.limits`. A mean lies in its range or not, so these checks never hold."""
    means, checks = evaluation.mean_metrics(), []
    for name, limit in gate.limits.items():
        count = sum(name in episode.metrics for episode in evaluation.episodes)
        needed = limit.min_episodes or len(evaluation.episodes)
        if count < needed:
            reason = f"{name}: {count} of {len(evaluation.episodes)} episodes have it"
            checks.append(Check(name, "fail", f"{reason}, needed are {needed}"))
            continue
        outcome: Outcome = "pass" if limit.holds(means[name]) else "fail"
        measured = f"{name}: mean {means[name]:.4g} over {count} episodes"
        checks.append(Check(name, outcome, f"{measured}, asked is {limit}"))
    return checks


def _rival_checks(
    name: str, evaluation: Evaluation, rival: Rival, gate: "GateCfg", level: float
) -> list[Check]:
    """Compare with another policy, over all tasks and, if there are several, on each of them."""
    if evaluation.checkpoint_digest == rival.evaluation.checkpoint_digest:
        reason = f"{name}: the candidate is the {name} itself, 0 wins, 0 losses"
        return [Check(name, "pass", reason)]
    rival_solved = rival.evaluation.successes
    checks = [
        _pairs_check(name, evaluation.episodes, rival_solved, gate.champion_margin, level, level)
    ]
    tasks = list(evaluation.per_task)
    for task in tasks if len(tasks) > 1 else ():
        episodes = [episode for episode in evaluation.episodes if episode.task == task]
        # With many tasks, one of them looks worse by chance: a fail needs more evidence.
        to_fail = level / len(tasks)
        who = f"{name} on {task}"
        checks.append(_pairs_check(who, episodes, rival_solved, gate.task_margin, level, to_fail))
    return checks


def _pairs_check(
    name: str,
    episodes: Sequence[EpisodeResult],
    rival_solved: "Mapping[InitialState, bool]",
    margin: float,
    level: float,
    level_to_fail: float,
) -> Check:
    """Pass if a loss of `margin` or more is excluded at `level`; fail if a loss is certain."""
    wins, losses = wins_and_losses(episodes, rival_solved)
    pairs = len(episodes)
    difference, low, high = paired_difference(wins, losses, pairs, 1 - 2 * level)
    p_worse, p_lost = mcnemar_p(losses, wins), noninferiority_p(wins, losses, pairs, margin)
    measured = (
        f"{name}: {wins} won, {losses} lost of {pairs} pairs, difference {difference:+.3f} "
        f"[{low:+.3f}, {high:+.3f}], p({margin:.3f} lost) {p_lost:.4f}, "
        f"p(not worse) {p_worse:.4f}"
    )
    if p_worse <= level_to_fail:
        return Check(name, "fail", f"{measured}; worse at level {level_to_fail:.4f}")
    if p_lost <= level:
        reached = f"less than {margin:.3f} is lost" if margin else "it is better"
        return Check(name, "pass", f"{measured}; {reached}")
    needed = pairs_to_decide(wins, losses, pairs, -margin, 1 - 2 * level)
    reason = f"{measured}; a loss of {margin:.3f} is possible, about {needed} pairs would tell"
    return Check(name, "hold", reason)


def _percent(confidence: float) -> str:
    """A confidence near 1 with as many digits as it needs: 98.3 %, 99.998 %."""
    digits = max(1, math.ceil(-math.log10(1 - confidence)) - 1)
    return f"{100 * confidence:.{digits}f} %"


def _closed(check: Check, rounds: int) -> Check:
    """A check at the last look, where holding is failing."""
    if check.outcome != "hold":
        return check
    return Check(check.name, "fail", f"{check.reason}; undecided after the last of {rounds} looks")


def _check_comparable(evaluation: Evaluation, rival: Evaluation, gate: "GateCfg", who: str) -> None:
    gate.check_evaluation(rival, who)
    played, versions = (parse_protocol(e.protocol).versions for e in (evaluation, rival))
    if played != versions:
        raise ValueError(
            f"the candidate was evaluated with {in_words(played)}, the {who} with "
            f"{in_words(versions)}; a simulator of another version is another protocol: evaluate "
            "both again"
        )
    if rival.protocol_hash != evaluation.protocol_hash and gate.protocol.is_sequential:
        raise ValueError(f"candidate and {who} are not arms of the same trial, as it stands now")
    if rival.protocol_hash != evaluation.protocol_hash:
        raise ValueError(
            f"candidate and {who} were evaluated on different initial states; evaluate the "
            f"{who} with episodes_per_task {evaluation.protocol['episodes_per_task']} too"
        )
