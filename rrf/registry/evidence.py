"""Evidence for a version: its evaluations, stored with the MLflow run that trained it, and tags.

Every evaluation gets a folder of its own among the artifacts of the run (`evaluation/<digest>/`),
and an entry of the ledger that holds its digest. So an evaluation under another protocol overwrites
nothing, and a promotion reads exactly what was registered. The tags `evaluation.*` hold the figures
that people see first: those of the protocol that the model's gate names, or, without a gate, those
of the protocol that came first. No decision reads them.
"""

import json
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic
from rrf.evaluation.gates.verdicts import Verdict, verdicts_of
from rrf.evaluation.results import FILE_NAME as EVALUATION
from rrf.evaluation.results import REPORT, Evaluation
from rrf.evaluation.trials.results import TRIAL
from rrf.identity.keys import Signer
from rrf.mlflow_store import store as mlflow_store
from rrf.registry import stored_files
from rrf.registry.entries import StoredEvaluation
from rrf.registry.ledger import Ledger
from rrf.registry.signatures import EVALUATION as EVALUATION_SIGNED
from rrf.registry.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from rrf.evaluation.protocols.base import BaseProtocolCfg

SIGNATURE = "evaluation.signature.json"
_LONGEST_TAG = 5000
_SHOWN = 12
log = logging.getLogger(__name__)


def place(digest: str) -> str:
    """The folder of an evaluation among the artifacts of the run."""
    return f"evaluation/{digest[:_SHOWN]}"


def check_is_of(evaluation: Evaluation, digest: str) -> None:
    """Raise ValueError if the evaluated checkpoint is not the one with this digest."""
    if evaluation.checkpoint_digest != digest:
        raise ValueError(
            f"the evaluation is of checkpoint {evaluation.checkpoint_digest[:12] or 'none'}, but "
            f"this checkpoint is {digest[:12]}; evaluate it with `rrf eval`"
        )


def sign(folder: str | Path, signer: Signer) -> None:
    """Sign the evaluation in a folder, in a file beside it."""
    signature = signer.sign(EVALUATION_SIGNED, Evaluation.load(folder).digest)
    data = {"key": signer.public, "signature": signature}
    atomic.write_json(Path(folder) / SIGNATURE, data)


def stored(
    evaluation: Evaluation,
    protocol: "BaseProtocolCfg",
    against: str | None,
    folder: str | Path,
) -> StoredEvaluation:
    """What the ledger keeps of an evaluation under `protocol`, which is in a folder."""
    file = Path(folder) / SIGNATURE
    signed = atomic.parse_json(file.read_bytes(), file) if file.is_file() else {}
    return StoredEvaluation(
        evaluation.digest,
        evaluation.protocol_hash,
        protocol.base_hash,
        protocol.episodes_per_task,
        round(evaluation.overall.rate, 6),
        against,
        signed.get("key"),
        signed.get("signature"),
    )


def figure_tags(
    ledger: Ledger, version: Version, evaluation: Evaluation, base_hash: str, wanted: str | None
) -> dict[str, str]:
    """The figures of an evaluation as tags of its version; empty if those of another one are shown.

    Args:
        ledger: The ledger of the model.
        version: The version that was evaluated.
        evaluation: The evaluation.
        base_hash: Of its protocol.
        wanted: The base hash of the protocol that the model's gate names, if there is a gate.
    """
    shown_digest = version.tags.get("evaluation.digest")
    bases = {e.digest: e.base_hash for e in ledger.evaluations(version.version)}
    wanted = wanted or bases.get(shown_digest or "")
    if shown_digest is None or wanted in (None, base_hash):
        return figures(evaluation)
    return {}


def figures(evaluation: Evaluation) -> dict[str, str]:
    """What people see of an evaluation first, as tags."""
    rate, tasks = evaluation.overall, ", ".join(evaluation.per_task)
    shown = {f"evaluation.mean.{k}": f"{v:.6g}" for k, v in evaluation.mean_metrics().items()}
    if profile := evaluation.profile:
        shown |= {f"evaluation.served.{k}": f"{v:.6g}" for k, v in profile.metrics.items()}
        shown["evaluation.served_on"] = profile.hardware
    return shown | {
        "evaluation.digest": evaluation.digest,
        "evaluation.protocol": str(evaluation.protocol["name"]),
        "evaluation.protocol_hash": evaluation.protocol_hash,
        "evaluation.success": f"{rate.rate:.6f}",
        "evaluation.low": f"{rate.low:.6f}",
        "evaluation.high": f"{rate.high:.6f}",
        "evaluation.episodes": str(rate.episodes),
        "evaluation.tasks": tasks[:_LONGEST_TAG],
    }


def numbers(evaluation: Evaluation) -> dict[str, float]:
    """The numbers of an evaluation for MLflow: success overall (with bounds) and per task, mean
    metrics, latency and memory of the served policy, and timings.
    """
    rates = {"success": evaluation.overall}
    rates |= {f"success/{task}": rate for task, rate in evaluation.per_task.items()}
    found = {name: rate.rate for name, rate in rates.items()}
    bounds = {"success_low": evaluation.overall.low, "success_high": evaluation.overall.high}
    found |= {f"mean/{name}": mean for name, mean in evaluation.mean_metrics().items()}
    if evaluation.profile:
        found |= {f"served/{name}": value for name, value in evaluation.profile.metrics.items()}
    return found | bounds | {f"timing/{name}": value for name, value in evaluation.timings.items()}


def show_in_run(run_id: str, evaluation: Evaluation) -> None:
    """Add the numbers of an evaluation to the MLflow run that trained the policy, for people.

    A store that cannot be reached is only a warning: the evaluation is complete without it.
    """
    from mlflow.exceptions import MlflowException

    prefix = f"evaluation/{evaluation.protocol['name']}"
    shown = {f"{prefix}/{name}": number for name, number in numbers(evaluation).items()}
    try:
        mlflow_store.log_numbers(mlflow_store.connect(), run_id, shown)
    except (MlflowException, OSError) as error:
        log.warning("MLflow run %s does not show this evaluation: %s", run_id, error)


def verdict_tags(verdict: Verdict) -> dict[str, str]:
    """The whole verdict of a gate, and its name and outcome for searches, as tags."""
    return {
        "gate.name": verdict.gate,
        "gate.outcome": verdict.outcome,
        "gate.verdict": json.dumps(verdict.to_dict()),
    }


def store(client: "MlflowClient", version: Version, folder: Path, digest: str) -> None:
    """Add an evaluation to the artifacts of the version's run: numbers, verdicts and report."""
    files = [folder / EVALUATION, folder / SIGNATURE, *verdicts_of(folder, digest), folder / REPORT]
    files.append(folder / TRIAL)
    for file in files:
        if file.is_file():
            client.log_artifact(version.run_id, str(file), place(digest))


def load(client: "MlflowClient", version: Version, stored: StoredEvaluation) -> Evaluation:
    """An evaluation that is stored with a version.

    Raises:
        ValueError: If the file in the store is not what the ledger says, or of another checkpoint.
        OSError: If it cannot be read.
    """
    evaluation = download(client, version, stored.digest)
    found = {
        "success": round(evaluation.overall.rate, 6),
        "protocol_hash": evaluation.protocol_hash,
        "episodes_per_task": evaluation.protocol.get("episodes_per_task"),
    }
    for what, value in found.items():  # who signed the entry need not have evaluated
        if (said := getattr(stored, what)) != value:
            raise ValueError(
                f"the ledger says that {version} has {what} {said}, but its evaluation "
                f"{stored.digest[:12]} has {value}; do not use it"
            )
    return evaluation


def download(client: "MlflowClient", version: Version, digest: str) -> Evaluation:
    """The evaluation with this digest in the run of a version. Raises like `load`."""
    what, file = f"the evaluation of {version}", f"{place(digest)}/{EVALUATION}"
    with tempfile.TemporaryDirectory() as scratch:
        path = stored_files.download(client, version.run_id, file, scratch, what)
        evaluation = Evaluation.load(path)
    if evaluation.digest != digest:
        raise ValueError(
            f"{what} was registered as {digest[:12]}, but {file} of run {version.run_id} is "
            f"{evaluation.digest[:12]}; it was replaced; do not use it"
        )
    check_is_of(evaluation, version.checkpoint_digest)
    return evaluation
