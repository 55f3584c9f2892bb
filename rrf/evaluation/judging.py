"""Run a gate on an evaluation directory, and write its verdict there and into the report."""

from collections.abc import Mapping
from pathlib import Path

from rrf.evaluation.gates.decision import Rival, decide
from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.gates.verdicts import Verdict, verdict_file
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.results import Evaluation
from rrf.lineage import Lineage


def judge(
    folder: str | Path,
    gate: GateCfg,
    rivals: Mapping[str, tuple[str | Path, str | None]] | None = None,
    round: int = 0,
    attempt: int = 1,
    lineage: Lineage | None = None,
    config: Mapping | None = None,
    subject: str | None = None,
    links: Mapping[str, str] | None = None,
    trial: Verdict | None = None,
    keep_report: bool = False,
) -> Verdict:
    """Judge the evaluation in a directory; writes verdict-GATE.json there and rewrites
    report.html.

    Args:
        folder: Directory written by `rrf eval`.
        gate: The thresholds.
        rivals: "champion" and "best" (the best champion so far, if that is another one) -> the
            directory of its evaluation, and its version in the registry.
        round: 0 at the first look, 1 after the first hold, ...
        attempt: Which candidate this is that is judged against this champion.
        lineage: The lineage of the policy, for the report.
        config: The resolved config of the training run, for the report.
        subject: What the report is about, e.g. a candidate for a model; by default the policy's
            label.
        links: Links of the report, title -> address.
        trial: What the gate for trials on a robot that this one names says about the policy.
        keep_report: Let a report stay that shows this verdict: for who registers the policy, which
            writes it again where anything else has changed.

    Raises:
        ValueError: For the reasons given in `rrf.evaluation.gates.decision.decide`.
    """
    others = {
        role: Rival(Evaluation.load(rival_folder), version)
        for role, (rival_folder, version) in (rivals or {}).items()
    }
    evaluation, champion = Evaluation.load(folder), others.get("champion")
    best = others.get("best")
    verdict = decide(evaluation, gate, champion, best, round, attempt, trial=trial)
    verdict.save(verdict_file(folder, gate.name))
    before = champion.evaluation if champion else None
    write_report(folder, lineage, None, before, config, subject, links, keep=keep_report)
    return verdict
