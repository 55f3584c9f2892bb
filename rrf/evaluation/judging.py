"""Run a gate on an evaluation directory, and write its verdict there and into the report."""

from collections.abc import Mapping
from pathlib import Path

from rrf.evaluation.gates import gate as gates
from rrf.evaluation.gates.verdicts import Verdict, verdict_file
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.results import EvaluationReport


def judge(
    evaluation: str | Path,
    gate: gates.GateCfg,
    champion: str | Path | None = None,
    round: int = 0,
    champion_version: str | None = None,
    lineage: Mapping | None = None,
    config: Mapping | None = None,
    subject: str | None = None,
    links: Mapping[str, str] | None = None,
) -> Verdict:
    """Judge the evaluation in a directory; writes verdict-GATE.json there and rewrites
    report.html.

    Args:
        evaluation: Directory written by `rrf eval`.
        gate: The thresholds.
        champion: The champion's evaluation directory; None if there is no champion.
        round: 0 at the first look, 1 after the first hold, ...
        champion_version: The champion's version in the registry.
        lineage: The lineage of the policy, for the report.
        config: The resolved config of the training run, for the report.
        subject: What the report is about, e.g. a candidate for a model; by default the policy's
            label.
        links: Links of the report, title -> address.

    Raises:
        ValueError: For the reasons given in `rrf.evaluation.gates.gate.verdict`.
    """
    theirs = EvaluationReport.load(champion) if champion else None
    report = EvaluationReport.load(evaluation)
    verdict = gates.verdict(report, gate, theirs, round, champion_version)
    verdict.save(verdict_file(evaluation, gate.name))
    write_report(evaluation, lineage, champion=theirs, config=config, subject=subject, links=links)
    return verdict


def round_of(gate: gates.GateCfg, episodes_per_task: int) -> int:
    """The last look, counted from 0, that `episodes_per_task` episodes are enough for."""
    return max(0, sum(look <= episodes_per_task for look in gate.looks) - 1)
