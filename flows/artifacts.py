"""What a flow run shows in Prefect's web UI: evaluations and verdicts as tables and text."""

import base64
from pathlib import Path

from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_table_artifact,
)

from rrf.envs.rendering.video import preview
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.results import EvaluationReport


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
        | _means(report, task if task in report.per_task else None)
        for task, rate in rates.items()
    ]
    create_table_artifact(
        table=rows,
        key="evaluation",
        description=f"{report.policy}, protocol {report.protocol['name']}; report: {where}",
    )


def show_video(report: EvaluationReport, folder: Path) -> None:
    """The first video of an evaluation as a small moving picture, and where all of them lie."""
    first = folder / report.videos[0]["path"] if report.videos else None
    if first is None or not first.is_file():
        return
    picture = base64.b64encode(preview(first)).decode()
    outcome = "success" if report.videos[0]["success"] else "failure"
    create_image_artifact(
        image_url=f"data:image/webp;base64,{picture}",
        key="video",
        description=f"{report.videos[0]['task']}, {outcome}; all videos: {first.parent}",
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


def _means(report: EvaluationReport, task: str | None) -> dict[str, float]:
    return {name: round(mean, 4) for name, mean in report.mean_metrics(task).items()}


def show_night(title: str, lines: list[str]) -> None:
    """The nightly comparison as text."""
    text = "\n".join(f"- {line}" for line in lines)
    create_markdown_artifact(f"# {title}\n\n{text}\n", key="nightly-benchmark", description=title)
