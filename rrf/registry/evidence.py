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
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import workspace
from rrf.evaluation.gates.verdicts import Verdict, verdicts_of
from rrf.evaluation.results import FILE_NAME as EVALUATION
from rrf.evaluation.results import REPORT, Evaluation
from rrf.mlflow_store import artifacts
from rrf.registry.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from rrf.evaluation.protocols.base import BaseProtocolCfg

_STORED = "evaluations."  # then the beginning of the digest
_LONGEST_TAG = 5000
_SHOWN = 12


@dataclasses.dataclass(frozen=True)
class StoredEvaluation:
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


def evaluations_of(version: Version) -> list[StoredEvaluation]:
    """The evaluations stored with a version."""
    texts = [text for key, text in version.tags.items() if key.startswith(_STORED)]
    return [StoredEvaluation(**json.loads(text)) for text in texts]


def check_is_of(evaluation: Evaluation, digest: str) -> None:
    """Raise ValueError if the evaluated checkpoint is not the one with this digest."""
    if evaluation.checkpoint_digest != digest:
        raise ValueError(
            f"the evaluation is of checkpoint {evaluation.checkpoint_digest[:12] or 'none'}, but "
            f"this checkpoint is {digest[:12]}; evaluate it with `rrf eval`"
        )


def evaluation_tags(
    version: Version,
    evaluation: Evaluation,
    protocol: "BaseProtocolCfg",
    gate_base_hash: str | None,
    champion: str | None,
) -> dict[str, str]:
    """The tags of a version that an evaluation brings.

    Args:
        version: The version that was evaluated.
        evaluation: The evaluation.
        protocol: Its protocol.
        gate_base_hash: Of the protocol of the gate that rules the model, if one does.
        champion: The version against which this is an attempt, "" if there is no champion; None if
            it is not an attempt.
    """
    earlier = evaluations_of(version)
    against = {name for e in earlier if e.digest == evaluation.digest for name in e.against}
    if champion is not None:
        against.add(champion)
    stored = StoredEvaluation(
        evaluation.digest,
        evaluation.protocol_hash,
        protocol.base_hash,
        protocol.episodes_per_task,
        round(evaluation.overall.rate, 6),
        sorted(against),
    )
    tags = {f"{_STORED}{evaluation.digest[:_SHOWN]}": json.dumps(dataclasses.asdict(stored))}
    shown_digest = version.tags.get("evaluation.digest")
    shown_base = next((e.base_hash for e in earlier if e.digest == shown_digest), None)
    wanted = gate_base_hash or shown_base
    if shown_digest is None or wanted in (None, protocol.base_hash):
        tags |= _figures(evaluation)
    return tags


def _figures(evaluation: Evaluation) -> dict[str, str]:
    rate, tasks = evaluation.overall, ", ".join(evaluation.per_task)
    means = {f"evaluation.mean.{k}": f"{v:.6g}" for k, v in evaluation.mean_metrics().items()}
    return means | {
        "evaluation.digest": evaluation.digest,
        "evaluation.protocol": str(evaluation.protocol["name"]),
        "evaluation.protocol_hash": evaluation.protocol_hash,
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


def store(client: "MlflowClient", version: Version, folder: Path, digest: str) -> None:
    """Add an evaluation to the artifacts of the version's run: numbers, verdicts and report."""
    files = [folder / EVALUATION, *verdicts_of(folder, digest), folder / REPORT]
    for file in files:
        if file.is_file():
            client.log_artifact(version.run_id, str(file), place(digest))


def load(client: "MlflowClient", version: Version, digest: str) -> Evaluation:
    """The evaluation with this digest that is stored with a version.

    Raises:
        ValueError: If the file in the store is another evaluation, or of another checkpoint.
        OSError: If it cannot be read.
    """
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    what, file = f"the evaluation of {version}", f"{place(digest)}/{EVALUATION}"
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
                f"{what} ({file} of run {version.run_id}) cannot be read: {error}"
                + artifacts.advice(workspace.tracking_uri())
            ) from error
        evaluation = Evaluation.load(path)
    if evaluation.digest != digest:
        raise ValueError(
            f"{what} was registered as {digest[:12]}, but {file} of run {version.run_id} is "
            f"{evaluation.digest[:12]}; it was replaced; do not use it"
        )
    check_is_of(evaluation, version.checkpoint_digest)
    return evaluation
