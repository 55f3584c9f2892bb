"""The model registry: register, promote, roll back. Every alias is set here and nowhere else.

@candidate is the version registered last, @champion the one to use, and @previous the one that a
rollback returns to. A promotion needs a complete lineage and a passing verdict on this very
checkpoint and evaluation, compared with the current champion. A promotion holds one lock and does
its work in this order:

    settle aliases a dead process left behind -> check -> tag the version -> ledger -> aliases

Writing the ledger entry commits the promotion. If a process is killed before that, neither champion
nor ledger has changed. If it is killed afterwards, the next change of the model completes its work.
So running the command again always ends in the same state. The descriptions are written at the very
end, because they are computed from the rest (`rrf.tracking.descriptions`).
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rrf.envs.configs import task_id
from rrf.evaluation.gates.verdicts import Verdict
from rrf.evaluation.results import EvaluationReport
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.tracking import descriptions, evidence, packaging, store
from rrf.tracking import ledger as ledgers
from rrf.tracking.admission import LINEAGE, check_promotable, check_verdict_is_of
from rrf.tracking.fetching import fetch
from rrf.tracking.flow_run import FlowRun
from rrf.tracking.ledger import Entry
from rrf.tracking.lineage import flat
from rrf.tracking.training_facts import training_tags
from rrf.tracking.versions import (
    CANDIDATE,
    CHAMPION,
    PREVIOUS,
    champion,
    exists,
    find,
    ledger,
    versions,
    versions_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = [
    "champion",
    "check_task",
    "fetch",
    "find",
    "ledger",
    "note_verdict",
    "promote",
    "register",
    "rollback",
    "versions",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def register(
    checkpoint: str | Path,
    name: str,
    run_id: str,
    lineage: Mapping,
    evaluation: str | Path | None = None,
    flow_run: FlowRun | None = None,
) -> str:
    """Make a checkpoint a version of `name` and @candidate; returns the version.

    Registering the same checkpoint again does not create a new version; it brings the lineage and
    the evaluation of the existing version up to date.

    Args:
        checkpoint: A checkpoint directory; only its deployable part is logged.
        name: The registered model.
        run_id: The MLflow run that trained the checkpoint.
        lineage: From `collect_lineage`, or from `environment_lineage` for training without a
            dataset.
        evaluation: The directory written by `rrf eval`; its report is attached to the run.
        flow_run: The Prefect flow run that registers the version; by default the one that started
            this process, if any.

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
    if evaluation is not None:
        tags |= evidence.evaluation_tags(EvaluationReport.load(evaluation), digest)
    client = store.connect()
    with _changing(client, name):
        _create_model(client, name)
        known = [v for v in versions_of(client, name) if v.checkpoint_digest == digest]
        if known:
            version = known[0].version
        else:
            with tempfile.TemporaryDirectory() as scratch:
                model = packaging.log_model(client, checkpoint, run_id, digest, Path(scratch))
            made = client.create_model_version(
                name,
                model.artifact_location,
                run_id,
                tags={"checkpoint_digest": digest},
                model_id=model.model_id,
            )
            version = str(made.version)
        _tag(client, name, version, tags)
        if evaluation is not None:
            registered = find(f"{name}/{version}", client)
            evidence.attach(client, registered, Path(evaluation), checkpoint, lineage)
        stack = ledgers.champions(ledgers.read(client, name))
        _set_aliases(client, name, stack, candidate=version)
    return version


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


def note_verdict(name: str, version: str, verdict: Verdict) -> None:
    """Write a verdict to the tags of a version; changes no alias.

    Raises:
        ValueError: For a verdict on another checkpoint or evaluation.
    """
    client = store.connect()
    with _changing(client, name):
        check_verdict_is_of(find(f"{name}/{version}", client), verdict)
        _tag(client, name, version, evidence.verdict_tags(verdict))


def promote(name: str, version: str, verdict: Verdict | None) -> Entry:
    """Make a version the champion; returns the ledger entry.

    The verdict is written to the version's tags, even if the promotion is then refused. Promoting
    the current champion again changes nothing.

    Raises:
        ValueError: Without a verdict; for a verdict that does not pass or belongs to another
            checkpoint, evaluation or champion; for an incomplete lineage; for a damaged ledger.
    """
    if verdict is None:
        raise ValueError(
            f"'{name}' version {version} has no verdict; evaluate it with `rrf eval --gate`, then "
            "promote it with --verdict verdict-GATE.json"
        )
    client = store.connect()
    with _changing(client, name):
        entries = _settle(client, name)
        chosen = find(f"{name}/{version}", client)
        check_verdict_is_of(chosen, verdict)
        _tag(client, name, version, evidence.verdict_tags(verdict))
        stack = ledgers.champions(entries)
        if stack and stack[-1] == version:
            return next(e for e in reversed(entries) if e.champion == version)
        check_promotable(chosen, verdict, find(f"{name}/{stack[-1]}", client) if stack else None)
        entry = ledgers.append(
            client,
            name,
            entries,
            action="promote",
            version=version,
            champion=version,
            previous=stack[-1] if stack else None,
            checkpoint_digest=chosen.checkpoint_digest,
            verdict_digest=verdict.digest,
            protocol_hash=verdict.protocol_hash,
            reason=f"gate {verdict.gate}: {verdict.outcome}, success {verdict.success['rate']:.3f}",
        )
        _settle(client, name)
    return entry


def rollback(name: str, reason: str, version: str | None = None) -> Entry:
    """Return to the previous champion; returns the ledger entry.

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
        entries = _settle(client, name)
        stack = ledgers.champions(entries)
        last = entries[-1] if entries else None
        if version is not None and last and last.action == "rollback" and last.version == version:
            return last
        if version is not None and stack[-1:] != [version]:
            raise ValueError(
                f"the champion of '{name}' is version {(stack or ['none'])[-1]}, not {version}"
            )
        if len(stack) < 2:
            raise ValueError(
                f"'{name}' has no previous champion to roll back to; see: rrf models ledger {name}"
            )
        chosen = find(f"{name}/{stack[-2]}", client)
        entry = ledgers.append(
            client,
            name,
            entries,
            action="rollback",
            version=stack[-1],
            champion=stack[-2],
            previous=stack[-3] if len(stack) > 2 else None,
            checkpoint_digest=chosen.checkpoint_digest,
            verdict_digest=None,
            protocol_hash=None,
            reason=reason,
        )
        _settle(client, name)
    return entry


@contextlib.contextmanager
def _changing(client: "MlflowClient", name: str) -> Iterator[None]:
    """Hold the lock of a model while the block changes it; then refresh the descriptions."""
    with store.lock(f"registry-{name}"):
        try:
            yield
        except ValueError:  # a refusal too may have written a verdict to the version's tags
            descriptions.refresh(client, name)
            raise
        descriptions.refresh(client, name)


def _settle(client: "MlflowClient", name: str) -> list[Entry]:
    """Set the ledger's head and the aliases to what the ledger says; returns the ledger."""
    if not exists(client, name):
        raise ValueError(f"there is no model '{name}'; see: rrf models list")
    entries = ledgers.read(client, name)
    if entries:
        ledgers.set_head(client, name, entries[-1])
        _set_aliases(client, name, ledgers.champions(entries))
    return entries


def _set_aliases(
    client: "MlflowClient", name: str, stack: list[str], candidate: str | None = None
) -> None:
    current = {alias: str(v) for alias, v in client.get_registered_model(name).aliases.items()}
    wanted = {PREVIOUS: (stack[-2:-1] or [None])[0], CHAMPION: (stack[-1:] or [None])[0]}
    if candidate is None or candidate == wanted[CHAMPION]:
        candidate = current.get(CANDIDATE)
    wanted[CANDIDATE] = None if candidate == wanted[CHAMPION] else candidate
    for alias, version in wanted.items():
        if version is None and alias in current:
            client.delete_registered_model_alias(name, alias)
        elif version is not None and current.get(alias) != version:
            client.set_registered_model_alias(name, alias, version)


def _tag(client: "MlflowClient", name: str, version: str, tags: Mapping[str, str]) -> None:
    current = client.get_model_version(name, version).tags
    for key, value in tags.items():
        if current.get(key) != value:
            client.set_model_version_tag(name, version, key, value)


def _create_model(client: "MlflowClient", name: str) -> None:
    if not exists(client, name):
        client.create_registered_model(name)


def _text(value) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
