"""Evidence for a version: its evaluations, stored with the MLflow run that trained it, and tags.

Every evaluation gets a folder of its own among the artifacts of the run (`evaluation/<digest>/`),
and a tag of the version that holds its digest. So an evaluation under another protocol overwrites
nothing, and a promotion reads exactly what was registered. The tags `evaluation.*` hold the figures
that people see first: those of the protocol that the model's gate names, or, without a gate, those
of the protocol that came first.
"""

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import workspace
from rrf.evaluation.gates.verdicts import Verdict, verdicts_of
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.reports.report import FILE_NAME as REPORT
from rrf.evaluation.reports.report import write_report
from rrf.evaluation.results import FILE_NAME as EVALUATION
from rrf.evaluation.results import EvaluationReport
from rrf.tracking import artifacts, links
from rrf.tracking.flow_run import FlowRun
from rrf.tracking.mlflow_run import metric_history
from rrf.tracking.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

_STORED = "evaluations."  # then the beginning of the digest
_LONGEST_TAG = 5000
_SHOWN = 12


@dataclasses.dataclass(frozen=True)
class Stored:
    """An evaluation that is stored with a version."""

    digest: str
    protocol_hash: str
    base_hash: str  # of the protocol whatever its number of episodes
    episodes_per_task: int
    success: float
    against: list[str]
    """The champions at whose time it was an attempt to become one; "" before the first. Empty for
    an evaluation that others were compared with."""


def place(digest: str) -> str:
    """The folder of an evaluation among the artifacts of the run."""
    return f"evaluation/{digest[:_SHOWN]}"


def evaluations_of(version: Version) -> list[Stored]:
    """The evaluations stored with a version."""
    texts = [text for key, text in version.tags.items() if key.startswith(_STORED)]
    return [Stored(**json.loads(text)) for text in texts]


def check_is_of(report: EvaluationReport, digest: str) -> None:
    """Raise ValueError if the evaluated checkpoint is not the one with this digest."""
    if report.checkpoint_digest != digest:
        raise ValueError(
            f"the evaluation is of checkpoint {report.checkpoint_digest[:12] or 'none'}, but this "
            f"checkpoint is {digest[:12]}; evaluate it with `rrf eval`"
        )


def evaluation_tags(
    version: Version, report: EvaluationReport, base_hash: str | None, champion: str | None
) -> dict[str, str]:
    """The tags of a version that an evaluation brings.

    Args:
        version: The version that was evaluated.
        report: The evaluation.
        base_hash: Of the protocol of the gate that rules the model, if one does.
        champion: The version against which this is an attempt, "" if there is no champion; None if
            it is not an attempt.
    """
    protocol, earlier = parse_protocol(report.protocol), evaluations_of(version)
    against = {name for one in earlier if one.digest == report.digest for name in one.against}
    if champion is not None:
        against.add(champion)
    stored = Stored(
        report.digest,
        report.protocol_hash,
        protocol.base_hash,
        protocol.episodes_per_task,
        round(report.overall.rate, 6),
        sorted(against),
    )
    tags = {f"{_STORED}{report.digest[:_SHOWN]}": json.dumps(dataclasses.asdict(stored))}
    shown = version.tags.get("evaluation.digest")
    bases = [one.base_hash for one in earlier if one.digest == shown]
    wanted = base_hash or (bases[0] if bases else None)
    if shown is None or wanted == protocol.base_hash or (not bases and not base_hash):
        tags |= _figures(report)
    return tags


def _figures(report: EvaluationReport) -> dict[str, str]:
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


def rewrite_report(
    client: "MlflowClient",
    version: Version,
    champion: Version | None,
    evaluation: Path,
    report: EvaluationReport,
    config: Mapping,
    lineage: Mapping,
) -> None:
    """Render the report of an evaluation again with everything known about the version."""
    write_report(
        evaluation,
        lineage,
        curves=metric_history(version.run_id),
        champion=_comparable(client, champion, report) if champion else None,
        config=config,
        subject=f"{version.name} version {version.version}",
        links={"version in MLflow": links.version_url(version.name, version.version)}
        | links.report_links(
            version.run_id, lineage, FlowRun.from_tags(version.tags), is_stored=True
        ),
    )


def store(client: "MlflowClient", version: Version, evaluation: Path, digest: str) -> None:
    """Add an evaluation to the artifacts of the version's run: numbers, verdicts and report."""
    files = [evaluation / EVALUATION, *verdicts_of(evaluation, digest), evaluation / REPORT]
    for file in files:
        if file.is_file():
            client.log_artifact(version.run_id, str(file), place(digest))


def load(client: "MlflowClient", version: Version, digest: str) -> EvaluationReport:
    """The evaluation with this digest that is stored with a version.

    Raises:
        ValueError: If the file in the store is another evaluation, or of another checkpoint.
        OSError: If it cannot be read.
    """
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    who = f"the evaluation of '{version.name}' version {version.version}"
    file = f"{place(digest)}/{EVALUATION}"
    with tempfile.TemporaryDirectory() as scratch:
        try:
            path = download_artifacts(
                run_id=version.run_id,
                artifact_path=file,
                dst_path=scratch,
                tracking_uri=workspace.tracking_uri(),
            )
        except (MlflowException, OSError) as error:
            raise OSError(
                f"{who} ({file} of run {version.run_id}) cannot be read: {error}"
                + artifacts.advice(workspace.tracking_uri())
            ) from error
        found = EvaluationReport.load(path)
    if found.digest != digest:
        raise ValueError(
            f"{who} was registered as {digest[:12]}, but {file} of run {version.run_id} is "
            f"{found.digest[:12]}; it was replaced, do not believe it"
        )
    check_is_of(found, version.checkpoint_digest)
    return found


def _comparable(
    client: "MlflowClient", version: Version, report: EvaluationReport
) -> EvaluationReport | None:
    """The evaluation of another version on the same initial states, if one is stored."""
    for one in evaluations_of(version):
        if one.protocol_hash == report.protocol_hash and one.digest != report.digest:
            try:
                return load(client, version, one.digest)
            except OSError:
                return None  # deleted: the report is made without it
    return None
