"""Evidence for a version: evaluation and verdict as tags, and the report attached to its run."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import workspace
from rrf.config import read_yaml
from rrf.evaluation.gates.verdicts import Verdict, verdicts_of
from rrf.evaluation.reports.report import FILE_NAME as REPORT
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.results import FILE_NAME as EVALUATION
from rrf.evaluation.results import EvaluationReport
from rrf.tracking import links
from rrf.tracking.flow_run import FlowRun
from rrf.tracking.mlflow_run import metric_history
from rrf.tracking.versions import Version, champion

if TYPE_CHECKING:
    from mlflow import MlflowClient


_LONGEST_TAG = 5000


def evaluation_tags(report: EvaluationReport, digest: str) -> dict[str, str]:
    """The facts about an evaluation that `rrf models list` and a promotion need, as tags.

    Raises:
        ValueError: If the evaluated checkpoint is not the one with `digest`.
    """
    if report.checkpoint_digest != digest:
        raise ValueError(
            f"the evaluation is of checkpoint {report.checkpoint_digest[:12] or 'none'}, but this "
            f"checkpoint is {digest[:12]}; evaluate it with `rrf eval`"
        )
    rate, tasks = report.overall, ", ".join(report.per_task)
    means = {f"evaluation.mean.{k}": f"{v:.6g}" for k, v in report.mean_metrics().items()}
    return means | {
        "evaluation.digest": report.digest,
        "evaluation.protocol": str(report.protocol["name"]),
        "evaluation.protocol_hash": report.protocol_hash,
        "evaluation.success": f"{rate.rate:.6f}",
        "evaluation.low": f"{rate.low:.6f}",
        "evaluation.high": f"{rate.high:.6f}",
        "evaluation.episodes": str(rate.episodes),
        "evaluation.tasks": tasks[:_LONGEST_TAG],
    }


def verdict_tags(verdict: Verdict) -> dict[str, str]:
    """The whole verdict of a gate, and its name and outcome for searches, as tags."""
    return {
        "gate.name": verdict.gate,
        "gate.outcome": verdict.outcome,
        "gate.verdict": json.dumps(verdict.to_dict()),
    }


def attach(
    client: "MlflowClient",
    version: Version,
    evaluation: Path,
    checkpoint: str | Path,
    lineage: Mapping,
) -> None:
    """Render the report again with everything known about the version; attach it to its run."""
    write_report(
        evaluation,
        lineage,
        curves=metric_history(version.run_id),
        champion=evaluation_of(champion(version.name), evaluation),
        config=read_yaml(Path(checkpoint) / "config.yaml"),
        subject=f"{version.name} version {version.version}",
        links={"version in MLflow": links.version_url(version.name, version.version)}
        | links.report_links(version.run_id, lineage, FlowRun.from_tags(version.tags)),
    )
    verdicts = verdicts_of(evaluation, EvaluationReport.load(evaluation).digest)
    for file in (evaluation / EVALUATION, *verdicts, evaluation / REPORT):
        client.log_artifact(version.run_id, str(file), "evaluation")


def evaluation_of(version: Version | None, like: str | Path) -> EvaluationReport | None:
    """The evaluation attached to a version; None if it is `like` itself or has another protocol."""
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    if version is None:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        try:
            file = download_artifacts(
                run_id=version.run_id,
                artifact_path=f"evaluation/{EVALUATION}",
                dst_path=scratch,
                tracking_uri=workspace.tracking_uri(),
            )
        except (MlflowException, OSError):
            return None  # never attached, or deleted: the report is made without it
        found = EvaluationReport.load(file)
    wanted = EvaluationReport.load(like)
    same = (found.protocol_hash == wanted.protocol_hash) and found.digest != wanted.digest
    return found if same else None
