"""What a flow run shows in Prefect's web UI: evaluations and verdicts as tables and text."""

from pathlib import Path

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from rrf.evaluation.results import EvaluationReport
from rrf.evaluation.verdicts import Verdict


def show_evaluation(report: EvaluationReport, where: Path) -> None:
    """Success per task with its bounds, and where the report lies."""
    rates = report.per_task | {"all tasks": report.overall}
    rows = [
        {
            "task": task,
            "solved": f"{rate.successes}/{rate.episodes}",
            "rate": round(rate.rate, 3),
            "95 % low": round(rate.low, 3),
            "95 % high": round(rate.high, 3),
        }
        for task, rate in rates.items()
    ]
    create_table_artifact(
        table=rows,
        key="evaluation",
        description=f"{report.policy}, protocol {report.protocol['name']}; report: {where}",
    )


def show_verdict(verdict: Verdict) -> None:
    """The gate's answer with its reasons."""
    reasons = "\n".join(f"- {reason}" for reason in verdict.reasons)
    create_markdown_artifact(
        f"# Gate {verdict.gate}: {verdict.outcome}\n\n"
        f"Look {verdict.round + 1} of {verdict.rounds}; checkpoint"
        f" `{verdict.checkpoint_digest[:12]}`; champion: {verdict.champion_version or 'none'}"
        f"\n\n{reasons}\n",
        key="gate-verdict",
        description=f"{verdict.gate}: {verdict.outcome}",
    )


def show_night(title: str, lines: list[str]) -> None:
    """The nightly comparison as text."""
    text = "\n".join(f"- {line}" for line in lines)
    create_markdown_artifact(f"# {title}\n\n{text}\n", key="nightly-benchmark", description=title)
