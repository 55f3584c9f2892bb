"""Decide whether a candidate may become the champion: pass, hold or fail, from evaluations alone.

A gate compares one-sided confidence bounds with thresholds, and pairs the candidate with the
champion on the same initial states. If the data do not allow a decision yet, the gate holds and
asks for more episodes.

If the gate looked again after every extension without a correction, it would sooner or later
promote a policy that is not good enough. Therefore the looks are fixed beforehand (`looks`,
episodes per task) and share the error `alpha` equally. This is Bonferroni over looks, the simplest
group-sequential bound (Pocock, Biometrika 64:191, 1977, is sharper; for robots see
arXiv:2503.10966). A pass needs every check to pass, so several checks need no further correction
(intersection-union test, Berger 1982).
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from rrf import atomic
from rrf.config import Cfg, configclass, first_error, read_yaml
from rrf.evaluation.gates.verdicts import Check, Outcome, Verdict
from rrf.evaluation.intervals import (
    episodes_to_decide,
    mcnemar_p,
    paired_difference,
    pairs_to_decide,
    wilson,
)
from rrf.evaluation.protocols.base import BaseProtocolCfg
from rrf.evaluation.protocols.files import load_protocol, parse_protocol
from rrf.evaluation.protocols.limits import LimitCfg, check_metrics
from rrf.evaluation.results import EvaluationReport, Rate, wins_and_losses

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@configclass
class GateCfg(Cfg):
    """What a candidate must show before it is promoted."""

    name: str
    """Name shown with the verdict and used in the name of its file."""
    protocol: BaseProtocolCfg
    """How candidates are evaluated; in YAML the name of a file under configs/protocols/."""
    overall_lower_bound: float
    """The lower confidence bound of the success rate over all tasks must reach this."""
    task_lower_bound: float = 0.0
    """The lower confidence bound of the success rate on each task must reach this."""
    limits: dict[str, LimitCfg] = {}
    """Metric of the protocol -> range that its mean over all episodes must lie in."""
    looks: list[int] = [20, 35, 50]
    """Episodes per task at the first look, the second, ...; a hold at the last look is a fail."""
    alpha: float = 0.05
    """Probability, over all looks together, of passing a policy that does not reach a threshold."""
    champion_margin: float = 0.1
    """Largest tolerated loss of success rate against the champion; 0 demands evidence that the
    candidate is better.
    """

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"gate name {self.name!r} becomes part of a file name; it may contain only "
                "letters, digits, '.', '_' and '-'"
            )
        if not self.looks or self.looks != sorted(set(self.looks)) or self.looks[0] < 1:
            raise ValueError(
                f"gate '{self.name}': looks is {self.looks}, but must be increasing numbers from 1 "
                "on, e.g. [20, 35, 50]"
            )
        if self.looks[-1] > self.protocol.max_episodes_per_task:
            raise ValueError(
                f"gate '{self.name}': the last look needs {self.looks[-1]} episodes per task, but "
                f"the protocol has only {self.protocol.max_episodes_per_task} initial states"
            )
        if self.limits and not self.protocol.metrics:
            raise ValueError(
                f"gate '{self.name}': limits need metrics of episodes, but protocol "
                f"'{self.protocol.name}' measures only success; remove limits"
            )
        check_metrics(self.limits, self.protocol.metrics, f"gate '{self.name}'")
        for field in ("overall_lower_bound", "task_lower_bound", "champion_margin"):
            if not 0 <= getattr(self, field) < 1:
                raise ValueError(
                    f"gate '{self.name}': {field} is {getattr(self, field)}, not in [0, 1)"
                )
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"gate '{self.name}': alpha is {self.alpha}, not between 0 and 0.5")

    @property
    def hash(self) -> str:
        """Hex SHA-256 of the whole gate."""
        return atomic.digest_of(self.identity())


def load_gate(path: str | Path) -> GateCfg:
    """Load a gate from YAML.

    In configs/gates/, `protocol: NAME` stands for the file configs/protocols/NAME.yaml.

    Raises:
        ValueError: For a missing file, an unknown field or a value out of range; the message names
            the file.
    """
    data = read_yaml(path)
    try:
        if isinstance(name := data.get("protocol"), str):
            data["protocol"] = load_protocol(Path(path).parent.parent / f"protocols/{name}.yaml")
        elif isinstance(name, Mapping):
            data["protocol"] = parse_protocol(name)
        return GateCfg.from_dict(data)
    except ValueError as error:
        raise ValueError(f"{path}: {first_error(error)}") from error


def verdict(
    report: EvaluationReport,
    gate: GateCfg,
    champion_report: EvaluationReport | None = None,
    round: int = 0,
    champion_version: str | None = None,
) -> Verdict:
    """Judge a candidate. A pure function of its arguments.

    Args:
        report: The candidate's evaluation under the gate's protocol, extended for later looks.
        gate: The thresholds.
        champion_report: The champion's evaluation under the same protocol; None if there is no
            champion.
        round: 0 at the first look, 1 after the first hold, ...
        champion_version: The champion's version in the registry.

    Raises:
        ValueError: If an evaluation is incomplete or was run under another protocol, or if the
            round does not exist.
    """
    rounds = len(gate.looks)
    if not 0 <= round < rounds:
        raise ValueError(f"gate '{gate.name}' has rounds 0..{rounds - 1}, but not round {round}")
    _check_protocol(report, gate, "candidate")
    if champion_report is not None:
        _check_protocol(champion_report, gate, "champion")
        if champion_report.protocol_hash != report.protocol_hash:
            raise ValueError(
                "candidate and champion were evaluated on different initial states; evaluate the "
                f"champion with episodes_per_task {report.protocol['episodes_per_task']} too"
            )
    per_look = gate.alpha / rounds
    checks = _judge(report, gate, champion_report, round, 1 - 2 * per_look)
    outcomes = {check.outcome for check in checks}
    outcome: Outcome = "fail" if "fail" in outcomes else "hold" if "hold" in outcomes else "pass"
    current = report.protocol["episodes_per_task"]
    wanted = (
        gate.looks[round] if current < gate.looks[round] else gate.looks[min(round + 1, rounds - 1)]
    )
    return Verdict(
        outcome=outcome,
        gate=gate.name,
        gate_hash=gate.hash,
        protocol_hash=report.protocol_hash,
        checkpoint_digest=report.checkpoint_digest,
        evaluation_digest=report.digest,
        champion_digest=champion_report.checkpoint_digest if champion_report else None,
        champion_version=champion_version,
        round=round,
        rounds=rounds,
        confidence=1 - per_look,
        success=dataclasses.asdict(report.overall),
        checks=tuple(checks),
        more_episodes_per_task=max(1, wanted - current) if outcome == "hold" else 0,
    )


def _judge(
    report: EvaluationReport,
    gate: GateCfg,
    champion_report: EvaluationReport | None,
    round: int,
    confidence: float,
) -> list[Check]:
    current, look = report.protocol["episodes_per_task"], gate.looks[round]
    if current < look:
        reason = f"{current} episodes per task, look {round + 1} of {len(gate.looks)} needs {look}"
        return [Check("episodes", "hold", reason)]
    checks = [_threshold_check("overall", report.overall, gate.overall_lower_bound, confidence)]
    for task, rate in report.per_task.items():
        checks.append(_threshold_check(task, rate, gate.task_lower_bound, confidence))
    checks += _limit_checks(report, gate)
    if champion_report is not None:
        checks += _champion_checks(report, champion_report, gate, confidence)
    if round == len(gate.looks) - 1:
        checks = [_settled(check, len(gate.looks)) for check in checks]
    return checks


def _threshold_check(name: str, rate: Rate, threshold: float, confidence: float) -> Check:
    low, high = wilson(rate.successes, rate.episodes, confidence)
    side = 100 * (1 + confidence) / 2
    solved = f"{name}: {rate.successes}/{rate.episodes} solved"
    seen = f"{solved}, {side:.1f} % bounds {low:.3f} to {high:.3f}"
    if low >= threshold:
        return Check(name, "pass", f"{seen}; the lower reaches {threshold:.3f}")
    if high < threshold:
        return Check(name, "fail", f"{seen}; even the upper is below {threshold:.3f}")
    needed = episodes_to_decide(rate.rate, threshold, confidence)
    return Check(name, "hold", f"{seen}; {threshold:.3f} lies between, {needed} would tell")


def _limit_checks(report: EvaluationReport, gate: GateCfg) -> list[Check]:
    """Checks of `gate.limits`. A mean lies in its range or not, so these checks never hold."""
    means, checks = report.mean_metrics(), []
    for name, limit in gate.limits.items():
        if name not in means:
            reason = f"{name}: no episode has it, asked is {limit}"
            checks.append(Check(name, "fail", reason))
            continue
        count = sum(name in episode.metrics for episode in report.episodes)
        outcome: Outcome = "pass" if limit.holds(means[name]) else "fail"
        seen = f"{name}: mean {means[name]:.4g} over {count} episodes"
        checks.append(Check(name, outcome, f"{seen}, asked is {limit}"))
    return checks


def _champion_checks(
    report: EvaluationReport, champion: EvaluationReport, gate: GateCfg, confidence: float
) -> list[Check]:
    if report.checkpoint_digest == champion.checkpoint_digest:
        return [
            Check(
                "champion",
                "pass",
                "champion: the candidate is the champion itself, 0 wins, 0 losses",
            )
        ]
    level = (1 - confidence) / 2
    theirs = champion.successes
    wins, losses = wins_and_losses(report.episodes, theirs)
    pairs = len(report.episodes)
    difference, low, high = paired_difference(wins, losses, pairs, confidence)
    p_worse = mcnemar_p(losses, wins)
    seen = (
        f"champion: {wins} won, {losses} lost of {pairs} pairs, difference {difference:+.3f} "
        f"[{low:+.3f}, {high:+.3f}], p(not worse) {p_worse:.4f}"
    )
    needed = pairs_to_decide(wins, losses, pairs, -gate.champion_margin, confidence)
    if p_worse <= level or high < -gate.champion_margin:
        checks = [
            Check("champion", "fail", f"{seen}; worse than the champion at level {level:.4f}")
        ]
    elif low >= -gate.champion_margin:
        checks = [Check("champion", "pass", f"{seen}; at most {gate.champion_margin:.3f} is lost")]
    else:
        reason = (
            f"{seen}; a loss of {gate.champion_margin:.3f} is possible, {needed} pairs would tell"
        )
        checks = [Check("champion", "hold", reason)]
    for task in report.per_task:
        wins, losses = wins_and_losses([e for e in report.episodes if e.task == task], theirs)
        p_worse = mcnemar_p(losses, wins)
        if p_worse <= level / len(report.per_task):
            reason = f"champion on {task}: {wins} won, {losses} lost, p(not worse) {p_worse:.5f}"
            checks.append(Check(f"champion on {task}", "fail", f"{reason}; the task was unlearned"))
    return checks


def _settled(check: Check, rounds: int) -> Check:
    if check.outcome != "hold":
        return check
    return Check(check.name, "fail", f"{check.reason}; undecided after the last of {rounds} looks")


def _check_protocol(report: EvaluationReport, gate: GateCfg, who: str) -> None:
    protocol = parse_protocol(report.protocol)
    if protocol.hash != report.protocol_hash:
        raise ValueError(
            f"the {who}'s evaluation has a protocol that does not match its protocol_hash"
        )
    if (
        protocol.replace(episodes_per_task=1).hash
        != gate.protocol.replace(episodes_per_task=1).hash
    ):
        raise ValueError(
            f"the {who} was evaluated under protocol '{protocol.name}', but gate '{gate.name}' "
            f"needs protocol '{gate.protocol.name}'; evaluate with "
            f"configs/protocols/{gate.protocol.name}.yaml"
        )
    if [e.initial_state for e in report.episodes] != protocol.initial_states():
        raise ValueError(
            f"the {who}'s evaluation has {len(report.episodes)} episodes, which are not the "
            f"{len(protocol.initial_states())} episodes of its protocol in order; evaluate again"
        )
