"""The model registry: register, promote, roll back. Every alias is set through here.

@candidate is the version registered last, @champion the one to use, and @previous the one that a
rollback returns to. A promotion needs a complete lineage, and the model's own gate must pass the
version: the verdict is computed again from the evaluations in the store (`rrf.tracking.rules`). It
does its work in this order:

    finish what a dead process left behind -> check -> tag the version -> ledger -> aliases

Writing the ledger entry commits the promotion (`rrf.tracking.changes`). If a process is killed
before that, neither champion nor ledger has changed. If it is killed afterwards, the next change of
the model completes its work. So running the command again always ends in the same state, and of two
machines that change a model at once, one comes second and checks again. The descriptions are
written at the very end, because they are computed from the rest (`rrf.tracking.descriptions`).
"""

import contextlib
import dataclasses
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rrf.config import read_yaml
from rrf.envs.configs import task_id
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.results import EvaluationReport
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.tracking import changes, descriptions, evidence, packaging, rules, standing, store
from rrf.tracking import ledger as ledgers
from rrf.tracking.admission import LINEAGE, NotPromotedError, check_promotable
from rrf.tracking.fetching import fetch
from rrf.tracking.flow_run import FlowRun
from rrf.tracking.ledger import Entry, ModelGate
from rrf.tracking.lineage import flat
from rrf.tracking.standing import Standing
from rrf.tracking.training_facts import training_tags
from rrf.tracking.versions import (
    Version,
    champion,
    exists,
    find,
    ledger,
    problems,
    versions,
    versions_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = [
    "NotPromotedError",
    "attempt_of",
    "champion",
    "check_recordable",
    "check_task",
    "fetch",
    "find",
    "gate_of",
    "ledger",
    "note_verdict",
    "other_gate",
    "problems",
    "promote",
    "register",
    "revoked",
    "rivals",
    "rollback",
    "rule",
    "store_evaluation",
    "version_of",
    "versions",
]

log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def register(
    checkpoint: str | Path,
    name: str,
    run_id: str,
    lineage: Mapping,
    evaluation: str | Path | None = None,
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
            dataset.
        evaluation: The directory written by `rrf eval`; it is stored with the run.
        flow_run: The Prefect flow run that registers the version; by default the one that started
            this process, if any.
        gate: The gate that rules the model from now on, if none does.

    Raises:
        ValueError: For a name with invalid characters, a model of another task, an unknown run, a
            damaged checkpoint, or an evaluation of another checkpoint.
    """
    check_task(name, lineage)
    digest = deployable_digest(checkpoint)
    tags = {f"{LINEAGE}{key}": _text(value) for key, value in flat(lineage).items()}
    tags |= training_tags(checkpoint)
    if flow_run := flow_run or FlowRun.from_environment():
        tags |= flow_run.tags()
    report = None if evaluation is None else EvaluationReport.load(evaluation)
    if report is not None:
        evidence.check_is_of(report, digest)
    client = store.connect()
    with _changing(client, name):
        _create_model(client, name)
        now = _settled(client, name)
        if gate:
            first = rules.model_gate(gate)
            now = _record_gate(client, name, first, "the gate of its first candidate", first=True)
        version = _version_with(client, name, digest) or _add_version(
            client, name, checkpoint, run_id, digest
        )
        _tag(client, name, version, tags)
        if evaluation is not None and report is not None:
            registered = find(f"{name}/{version}", client)
            best = find(f"{name}/{now.champion}", client) if now.champion else None
            config, folder = read_yaml(Path(checkpoint) / "config.yaml"), Path(evaluation)
            evidence.rewrite_report(client, registered, best, folder, report, config, lineage)
            evidence.store(client, registered, folder, report.digest)
            _tag(client, name, version, _evaluation_tags(now, registered, report, attempt=True))
        changes.set_aliases(client, name, candidate=version)
    return version


def version_of(checkpoint: str | Path, name: str) -> str | None:
    """The version of a model that holds this checkpoint; None if there is none."""
    client = store.connect()
    if not exists(client, name):
        return None
    return _version_with(client, name, deployable_digest(checkpoint))


def _version_with(client: "MlflowClient", name: str, digest: str) -> str | None:
    """The first version of a model with this checkpoint."""
    known = [v.version for v in versions_of(client, name) if v.checkpoint_digest == digest]
    return known[-1] if known else None


def _add_version(
    client: "MlflowClient", name: str, checkpoint: str | Path, run_id: str, digest: str
) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        model = packaging.log_model(client, checkpoint, run_id, digest, Path(scratch))
    tags = {"checkpoint_digest": digest}
    made = client.create_model_version(
        name, model.artifact_location, run_id, tags=tags, model_id=model.model_id
    )
    first = _version_with(client, name, digest)
    if first is None or first == str(made.version):
        return str(made.version)
    client.delete_model_version(name, str(made.version))  # another machine was faster
    return first


def store_evaluation(name: str, version: str, evaluation: str | Path, attempt: bool) -> None:
    """Store an evaluation of a version that is registered already.

    Args:
        name: The registered model.
        version: The version.
        evaluation: The directory written by `rrf eval`.
        attempt: Whether it is an attempt to become champion, and not only an evaluation that
            candidates are compared with.

    Raises:
        ValueError: If it is of another checkpoint.
    """
    client, report = store.connect(), EvaluationReport.load(evaluation)
    with _changing(client, name):
        found = find(f"{name}/{version}", client)
        evidence.check_is_of(report, found.checkpoint_digest)
        now = standing.believed(client, name)
        evidence.store(client, found, Path(evaluation), report.digest)
        _tag(client, name, version, _evaluation_tags(now, found, report, attempt))


def _evaluation_tags(
    now: Standing, version: Version, report: EvaluationReport, attempt: bool
) -> dict[str, str]:
    is_attempt = attempt and now.champion != version.version
    against = (now.champion or "") if is_attempt else None
    return evidence.evaluation_tags(version, report, rules.base_hash_of(now), against)


def check_task(name: str, lineage: Mapping) -> None:
    """Raise ValueError if a policy with this lineage must not become a version of model `name`.

    The name may contain only certain characters. All versions of a model must be trained on the
    same simulated task, because a new champion replaces the old one. A module in front of the task
    id does not matter: "my_tasks:MyTask-v0" is the same task as "MyTask-v0".
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"model name {name!r} may contain only letters, digits, '.', '_' and '-', and must "
            "begin with a letter or digit"
        )
    mine = flat(lineage).get("environment.task")
    client = store.connect()
    if mine is None or not exists(client, name):
        return
    tags = [version.tags for version in versions_of(client, name)]
    told = {task for each in tags if (task := each.get(f"{LINEAGE}environment.task"))}
    mine, theirs = task_id(mine), {task_id(task) for task in told}
    if theirs and mine not in theirs:
        proposed = f"{name}-{re.sub('[^a-z0-9]+', '-', mine.lower())}"
        raise ValueError(
            f"'{name}' holds policies for {', '.join(sorted(theirs))}, but this one was trained on "
            f"{mine}; give another name, e.g. {proposed}"
        )


def gate_of(name: str) -> ModelGate | None:
    """The gate that rules a model; None if none does yet.

    Raises:
        ValueError: If the ledger is damaged, or MLflow's aliases differ from it.
    """
    client = store.connect()
    return standing.read(client, name).gate if exists(client, name) else None


def other_gate(name: str, file: str | Path) -> str:
    """Why candidates for `name` that this gate judges cannot be promoted, or "": another gate
    rules the model.
    """
    client = store.connect()
    return rules.differing(standing.read(client, name), file) if exists(client, name) else ""


def check_recordable(name: str, file: str | Path) -> None:
    """Raise ValueError if no gate rules the model yet and this one cannot be recorded as its first
    one: it cannot be read, or lies outside the workspace.
    """
    if gate_of(name) is None:
        rules.model_gate(file)


def rule(name: str, file: str | Path, reason: str) -> Entry:
    """Make a gate the one that rules a model; returns the ledger entry.

    The whole gate is recorded, so later edits of the file change nothing. Recording the same gate
    again changes nothing either.

    Raises:
        ValueError: Without a reason, for a gate that cannot be read, or for an unknown model.
    """
    if not reason.strip():
        raise ValueError("a change of gate needs a reason; give one with --reason '...'")
    client, gate = store.connect(), rules.model_gate(file)
    with _changing(client, name):
        now = _record_gate(client, name, gate, reason)
    return next(entry for entry in reversed(now.entries) if entry.gate)


def _record_gate(
    client: "MlflowClient", name: str, gate: ModelGate, reason: str, first: bool = False
) -> Standing:
    """Record a gate, `first` only if none is on record; returns what the ledger says then."""
    for _ in range(changes.ROUNDS):
        now = _settled(client, name)
        if now.gate and (first or now.gate.hash == gate.hash):
            return now
        facts = {"gate": dataclasses.asdict(gate), "reason": reason}
        entry = ledgers.next_entry(now.entries, action="gate", **facts)
        changes.append(client, name, entry)
    raise changes.busy(name)


def revoked(name: str) -> dict[str, str]:
    """Versions that were rolled back and may not be promoted again -> the reason."""
    return ledgers.revoked(ledger(name))


def rivals(name: str) -> dict[str, Version]:
    """The versions that candidates are compared with: "champion", and "best", the best champion so
    far if that is another one. Empty without a champion.
    """
    client = store.connect()
    if not exists(client, name):
        return {}
    return rules.rivals(standing.read(client, name), versions_of(client, name))


def attempt_of(name: str, checkpoint_digest: str) -> int:
    """Which candidate this is that the model's gate judges against its current champion."""
    client = store.connect()
    if not exists(client, name):
        return 1
    now = standing.read(client, name)
    return rules.attempt_of(now, versions_of(client, name), checkpoint_digest)


def note_verdict(name: str, version: str, verdict: Verdict) -> None:
    """Write a verdict to the tags of a version, if the model's gate gave it; changes no alias."""
    client = store.connect()
    with _changing(client, name):
        gate = standing.believed(client, name).gate
        if gate and gate.hash == verdict.gate_hash:
            _tag(client, name, version, evidence.verdict_tags(verdict))


def promote(name: str, version: str, unrevoke: str | None = None) -> Entry:
    """Make a version the champion; returns the ledger entry.

    The model's gate judges the version by what the store holds. The verdict is written to the
    version's tags, even if the promotion is then refused. Promoting the current champion again
    changes nothing.

    Args:
        name: The registered model.
        version: The version.
        unrevoke: Why a version that was rolled back may be champion again.

    Raises:
        NotPromotedError: If the gate does not pass it, its lineage is incomplete, or it was rolled
            back.
        ValueError: If the model has no gate, an evaluation is missing, or the ledger is damaged.
    """
    client = store.connect()
    with _changing(client, name):
        for _ in range(changes.ROUNDS):
            now = _settled(client, name)
            chosen = find(f"{name}/{version}", client)
            if now.champion == version:
                return next(e for e in reversed(now.entries) if e.champion == version)
            if version in now.revoked:
                _unrevoke(client, now, version, unrevoke)
                continue
            verdict = rules.judge(client, now, versions_of(client, name), chosen)
            _tag(client, name, version, evidence.verdict_tags(verdict))
            gate = rules.gate_of(now)
            assert gate is not None  # it has just judged
            check_promotable(chosen, verdict, gate)
            reason = (
                f"gate {verdict.gate}: {verdict.outcome}, success {verdict.success['rate']:.3f}"
            )
            entry = ledgers.next_entry(
                now.entries,
                action="promote",
                version=version,
                champion=version,
                previous=now.champion,
                checkpoint_digest=chosen.checkpoint_digest,
                verdict_digest=verdict.digest,
                protocol_hash=verdict.protocol_hash,
                reason=reason,
            )
            if changes.append(client, name, entry):
                return entry
    raise changes.busy(name)


def _unrevoke(client: "MlflowClient", now: Standing, version: str, reason: str | None) -> None:
    if not (reason or "").strip():
        raise NotPromotedError(
            f"'{now.name}' version {version} was rolled back ({now.revoked[version]}) and is not "
            f"promoted again; if that is over: rrf models promote {now.name} {version} --unrevoke "
            "--reason '...'"
        )
    entry = ledgers.next_entry(now.entries, action="unrevoke", version=version, reason=reason)
    changes.append(client, now.name, entry)


def rollback(name: str, reason: str, version: str | None = None) -> Entry:
    """Return to the previous champion; returns the ledger entry.

    The version that is left is revoked: it is not promoted again until somebody says why it may be
    (`promote`).

    Args:
        name: The registered model.
        reason: The reason for the rollback, kept in the ledger.
        version: The champion to leave. If given, running the command twice rolls back only once.

    Raises:
        ValueError: Without a reason, or if there is no previous champion.
    """
    if not reason.strip():
        raise ValueError("a rollback needs a reason; give one with --reason '...'")
    client = store.connect()
    with _changing(client, name):
        for _ in range(changes.ROUNDS):
            now = _settled(client, name)
            stack = ledgers.champions(now.entries)
            if version is not None and version in now.revoked and stack[-1:] != [version]:
                is_it = (e for e in reversed(now.entries) if e.action == "rollback")
                return next(e for e in is_it if e.version == version)
            if version is not None and stack[-1:] != [version]:
                raise ValueError(
                    f"the champion of '{name}' is version {now.champion or 'none'}, not {version}"
                )
            if len(stack) < 2:
                raise ValueError(
                    f"'{name}' has no previous champion to roll back to; see: rrf models ledger "
                    f"{name}"
                )
            entry = ledgers.next_entry(
                now.entries,
                action="rollback",
                version=stack[-1],
                champion=stack[-2],
                previous=stack[-3] if len(stack) > 2 else None,
                checkpoint_digest=find(f"{name}/{stack[-2]}", client).checkpoint_digest,
                reason=reason,
            )
            if changes.append(client, name, entry):
                return entry
            version = version or stack[-1]  # another machine may have rolled it back meanwhile
    raise changes.busy(name)


@contextlib.contextmanager
def _changing(client: "MlflowClient", name: str) -> Iterator[None]:
    """Let one process of this workspace change a model; then refresh the descriptions."""
    with store.lock(f"registry-{name}"):
        try:
            yield
        except ValueError:  # a refusal too may have written a verdict to the version's tags
            descriptions.refresh(client, name)
            raise
        descriptions.refresh(client, name)


def _settled(client: "MlflowClient", name: str) -> Standing:
    """Finish what a dead process left behind and set the aliases; returns what the ledger says."""
    if not exists(client, name):
        raise ValueError(f"there is no model '{name}'; see: rrf models list")
    changes.finish(client, name)
    now, differences = standing.compare(client, name)
    for difference in differences:
        log.warning("%s; it is put right now", difference)
    if differences:
        changes.set_aliases(client, name)
    return now


def _tag(client: "MlflowClient", name: str, version: str, tags: Mapping[str, str]) -> None:
    current = client.get_model_version(name, version).tags
    for key, value in tags.items():
        if current.get(key) != value:
            client.set_model_version_tag(name, version, key, value)


def _create_model(client: "MlflowClient", name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        if not exists(client, name):
            client.create_registered_model(name)
    except MlflowException as error:  # another machine was faster
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _text(value) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
