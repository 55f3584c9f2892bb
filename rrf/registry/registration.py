"""Make checkpoints versions of models, and store evaluations with them.

Registering sets @candidate only. A killed registration is completed by running it again: the same
checkpoint is one version, however often it is registered.
"""

import dataclasses
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rrf.config import read_yaml
from rrf.envs.configs import task_id
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.results import Evaluation
from rrf.lineage import SYSTEMS, TAG, Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.flow_run import FlowRun
from rrf.registry import cards, changes, evidence, packaging, rules, signatures
from rrf.registry import ledger as ledgers
from rrf.registry.client import connect
from rrf.registry.entries import Entry, Registration
from rrf.registry.ledger import Ledger
from rrf.registry.promotion import changing, finished, record_gate, tag
from rrf.registry.training_facts import training_tags
from rrf.registry.versions import (
    CHECKPOINT_DIGEST,
    Version,
    find,
    model_named,
    versions_in,
    versions_of,
)
from rrf.runners.checkpoints.deployable import deployable_digest, load_lineage

if TYPE_CHECKING:
    from mlflow import MlflowClient

IMPORTED = "imported"
"""The experiment with the runs of policies that others have trained."""
JOINED = "joined"
"""The experiment with the runs of policies that were joined from others."""
_IMPORTED_DIGEST = "rrf.checkpoint_digest"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def register(
    checkpoint: str | Path,
    name: str,
    run_id: str,
    lineage: Lineage,
    evaluation_folder: str | Path | None = None,
    flow_run: FlowRun | None = None,
    gate: str | Path | None = None,
) -> str:
    """Make a checkpoint a version of `name` and @candidate; returns the version.

    Registering the same checkpoint again does not create a new version; it brings the lineage up to
    date and adds the evaluation.

    Args:
        checkpoint: A checkpoint directory; only its deployable part is logged.
        name: The registered model.
        run_id: The MLflow run that trained the checkpoint.
        lineage: From `collect_lineage`, or from `environment_lineage` for training without a
            dataset. What the training started from is taken from the checkpoint if it lacks it.
        evaluation_folder: The directory written by `rrf eval`; it is stored with the run.
        flow_run: The Prefect flow run that registers the version; by default the one that started
            this process, if any.
        gate: The gate that rules the model from now on, if none does.

    Raises:
        ValueError: For a name with invalid characters, a model of another task, an unknown run, a
            damaged checkpoint, or an evaluation of another checkpoint.
    """
    check_task(name, lineage)
    digest = deployable_digest(checkpoint)
    lineage = _with_origins(lineage, load_lineage(checkpoint))
    tags = lineage.tags() | training_tags(checkpoint)
    if flow_run := flow_run or FlowRun.from_environment():
        tags |= flow_run.tags()
    tags[CHECKPOINT_DIGEST] = digest
    evaluation = Evaluation.load(evaluation_folder) if evaluation_folder else None
    if evaluation:
        evidence.check_is_of(evaluation, digest)
    client = connect()
    with changing(client, name):
        _create_model(client, name)
        ledger = finished(client, name)
        if gate:
            reason = "the gate of its first candidate"
            ledger = record_gate(client, name, rules.model_gate(gate), reason, first=True)
        version = _version_with(client, ledger, digest) or _add_version(
            client, ledger, checkpoint, run_id, tags
        )
        tag(client, version, tags)
        version = find(f"{name}/{version.version}", client)
        if evaluation_folder:
            folder = Path(evaluation_folder)
            _rewrite_report(client, version, ledger, folder, checkpoint, lineage)
        _record(client, version, version.as_registered, evaluation, evaluation_folder, attempt=True)
        changes.set_aliases(client, name, candidate=version.version)
    return version.version


def _with_origins(lineage: Lineage, written: Lineage) -> Lineage:
    """A lineage of data, with what training wrote to the checkpoint about what it started from."""
    names = (
        *("parent_checkpoint", "teacher_checkpoint", "published", "imported_from"),
        *SYSTEMS,
    )
    origins = {name: getattr(written, name) for name in names if getattr(lineage, name) is None}
    return lineage.replace(**origins)


def store_evaluation(name: str, version: str, folder: str | Path, attempt: bool) -> None:
    """Store an evaluation of a version that is registered already.

    Args:
        name: The registered model.
        version: The version.
        folder: The directory written by `rrf eval`.
        attempt: Whether it is an attempt to become champion, and not only an evaluation that
            candidates are compared with.

    Raises:
        ValueError: If it is of another checkpoint.
    """
    client, evaluation = connect(), Evaluation.load(folder)
    with changing(client, name):
        evaluated = find(f"{name}/{version}", client)
        rules.check_registered(finished(client, name), evaluated)
        evidence.check_is_of(evaluation, evaluated.checkpoint_digest)
        _record(client, evaluated, None, evaluation, folder, attempt)


def store_documents(version: Version) -> Entry:
    """Store the card and the bill of materials of a version anew; returns the ledger's entry.

    Raises:
        ValueError: If this user may not, or others change the model all the time.
    """
    client, name = connect(), version.name
    facts = {"action": "document", "reason": "card and bill of materials"}
    with changing(client, name):
        for _ in range(changes.ROUNDS):
            ledger = finished(client, name)
            rules.check_registered(ledger, version)
            if entry := cards.append(client, ledger, version, anew=True, **facts):
                return entry
    raise changes.busy(name)


def version_of(checkpoint: str | Path, name: str) -> str | None:
    """The version of a model that holds this checkpoint; None if there is none."""
    client = connect()
    if not model_named(client, name):
        return None
    version = _version_with(client, ledgers.read(client, name), deployable_digest(checkpoint))
    return version.version if version else None


def check_task(name: str, lineage: Lineage) -> None:
    """Raise ValueError if a policy with this lineage must not become a version of model `name`.

    The name may contain only certain characters. All versions of a model must be trained on the
    same simulated task, because a new champion replaces the old one. A module in front of the task
    id does not matter: "my_tasks:MyTask-v0" is the same task as "MyTask-v0".
    This user's key must count, if changes of the model need one.
    """
    if changes.is_reserved(name):
        raise ValueError(f"model name '{name}' is reserved for changes of another model")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"model name {name!r} may contain only letters, digits, '.', '_' and '-', and must "
            "begin with a letter or digit"
        )
    signatures.check_may(name, "register", "evaluate")  # before hours of training, not after them
    task = lineage.environment.task if lineage.environment else None
    client = connect()
    model = model_named(client, name) if task else None
    if task is None or model is None:
        return
    task, key = task_id(task), f"{TAG}environment.task"
    known = {task_id(v.tags[key]) for v in versions_in(client, model) if v.tags.get(key)}
    if known and task not in known:
        proposed = f"{name}-{re.sub('[^a-z0-9]+', '-', task.lower())}"
        raise ValueError(
            f"'{name}' holds policies for {', '.join(sorted(known))}, but this one was trained on "
            f"{task}; give another name, e.g. {proposed}"
        )


def imported_run(checkpoint: str | Path) -> str:
    """The id of the MLflow run of a policy that others have trained; made if there is none yet.

    It stands for the import, so that a version has a run to which its files belong.
    """
    name = f"{Path(checkpoint).resolve().name}, {deployable_digest(checkpoint)[:8]}"
    return _run_without_training(checkpoint, IMPORTED, _IMPORTED_DIGEST, name, {})


def joined_run(checkpoint: str | Path) -> str:
    """The id of the MLflow run of a policy that was joined from others without training, for
    instance of a combination of three systems; made if there is none yet.

    The run has the lineage of the policy, which names what it was joined from.
    """
    lineage, flow_run = load_lineage(checkpoint), FlowRun.from_environment()
    parts = [digest[:8] for name in SYSTEMS if (digest := getattr(lineage, name))]
    tags = lineage.tags() | (flow_run.tags() if flow_run else {})
    name = f"joined {' '.join(parts)}"
    return _run_without_training(checkpoint, JOINED, CHECKPOINT_DIGEST, name, tags)


def _run_without_training(
    checkpoint: str | Path, experiment: str, key: str, name: str, tags: dict[str, str]
) -> str:
    """The run of an experiment whose tag `key` has the digest of a checkpoint; made if there is
    none."""
    client, digest = connect(), deployable_digest(checkpoint)
    id = store.experiment_id(client, experiment)
    if runs := client.search_runs([id], f"tags.`{key}` = '{digest}'", max_results=1):
        return runs[0].info.run_id
    run = client.create_run(id, tags=tags | {key: digest}, run_name=name)
    client.set_terminated(run.info.run_id)
    return run.info.run_id


def _create_model(client: "MlflowClient", name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        if not model_named(client, name):
            client.create_registered_model(name)
    except MlflowException as error:  # another machine was faster
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _add_version(
    client: "MlflowClient",
    ledger: Ledger,
    checkpoint: str | Path,
    run_id: str,
    tags: dict[str, str],
) -> Version:
    name, digest = ledger.name, tags[CHECKPOINT_DIGEST]
    with tempfile.TemporaryDirectory() as scratch:
        model = packaging.log_model(client, checkpoint, run_id, digest, Path(scratch))
    created = client.create_model_version(
        name,
        model.artifact_location,
        run_id,
        tags=tags,
        model_id=model.model_id,
    )
    first = _version_with(client, ledger, digest)
    if first and first.version != str(created.version):  # another machine was faster
        client.delete_model_version(name, str(created.version))
    return first or find(f"{name}/{created.version}", client)


def _version_with(client: "MlflowClient", ledger: Ledger, digest: str) -> Version | None:
    """The version that holds this checkpoint: by the ledger, or by the tag of a version that a
    killed registration has left without an entry.
    """
    for version in reversed(versions_of(client, ledger.name)):
        registration = ledger.registration(version.version) or version.as_registered
        if registration.checkpoint_digest == digest:
            return version
    return None


def _record(
    client: "MlflowClient",
    version: Version,
    registration: Registration | None,
    evaluation: Evaluation | None,
    folder: str | Path | None,
    attempt: bool,
) -> None:
    """Write to the ledger what a version was registered as and an evaluation of it, if they are
    new, after the evaluation's files and before its figures.
    """
    name = version.name
    reason = f"checkpoint {version.checkpoint_digest[:12]}"
    if evaluation and folder:
        evidence.store(client, version, Path(folder), evaluation.digest)
        reason = (
            f"success {evaluation.overall.rate:.3f} under protocol {evaluation.protocol['name']}"
        )
    protocol = parse_protocol(evaluation.protocol) if evaluation else None
    for _ in range(changes.ROUNDS):
        ledger = finished(client, name)
        entry: dict = {}
        if registration and ledger.registration(version.version) != registration:
            entry["registration"] = dataclasses.asdict(registration)
        if evaluation and protocol and folder:
            is_attempt = attempt and ledger.champion != version.version
            against = (ledger.champion or "") if is_attempt else None
            new = evidence.stored(evaluation, protocol, against, folder)
            known = [
                e.against for e in ledger.evaluations(version.version) if e.digest == new.digest
            ]
            if new.against not in known and (is_attempt or not known):
                entry["evaluation"] = dataclasses.asdict(new)
        if not entry:
            break
        entry["action"] = "register" if "registration" in entry else "evaluate"
        cards.append(client, ledger, version, reason=reason, **entry)
    else:
        raise changes.busy(name)
    if evaluation and protocol:
        figures = evidence.figure_tags(
            ledger, version, evaluation, protocol.base_hash, rules.base_hash_of(ledger)
        )
        tag(client, version, figures)


def _rewrite_report(
    client: "MlflowClient",
    version: Version,
    ledger: Ledger,
    folder: Path,
    checkpoint: str | Path,
    lineage: Lineage,
) -> None:
    """Render the report of an evaluation again with everything known about the version."""
    from rrf.evaluation.reports.report import write_report  # a page for people: no step needs it
    from rrf.registry import links

    flow_run = FlowRun.from_tags(version.tags)
    pages = links.version_links(version.name, version.version)
    stored = evidence.place(Evaluation.load(folder).digest)
    write_report(
        folder,
        lineage,
        curves=store.metric_history(version.run_id),
        champion=_champion_on_same_states(client, ledger, Evaluation.load(folder)),
        config=read_yaml(Path(checkpoint) / "config.yaml"),
        subject=f"{version.name} version {version.version}",
        links=pages | links.report_links(version.run_id, lineage, flow_run, stored=stored),
    )


def _champion_on_same_states(
    client: "MlflowClient", ledger: Ledger, evaluation: Evaluation
) -> Evaluation | None:
    """The champion's evaluation on the same initial states, if one is stored."""
    if not ledger.champion:
        return None
    champion = find(f"{ledger.name}/{ledger.champion}", client)
    for stored in ledger.evaluations(champion.version):
        if stored.protocol_hash == evaluation.protocol_hash and stored.digest != evaluation.digest:
            try:
                return evidence.load(client, champion, stored)
            except OSError:
                return None  # deleted: the report is made without it
    return None
