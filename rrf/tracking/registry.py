"""The model registry: register, promote, roll back. Every alias is set here and nowhere else.

@candidate is the version registered last, @champion the one to use, @previous what a rollback
returns to. A promotion needs a passing verdict for this very checkpoint and evaluation, against the
champion of this moment, and a complete lineage. All of it happens under one lock, in this order:

    settle aliases a dead process left behind -> check -> tag the version -> ledger -> aliases

The ledger entry is the commit. A process killed before it changed nothing that counts, one killed
after it is finished by whoever comes next, so running the command again always ends in the same
state. Last of all the descriptions are written, which follow from the rest
(`rrf.tracking.descriptions`).
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

    The same checkpoint registered again is the same version; its lineage and evaluation are brought
    up to date.

    Args:
        checkpoint: A checkpoint directory; only its deployable part is logged.
        name: The registered model.
        run_id: The MLflow run that trained it.
        lineage: From `collect_lineage`, or `environment_lineage` for what read no dataset.
        evaluation: The directory written by `rrf eval`; its report is attached to the run.
        flow_run: The flow run of Prefect that does it; by default the one that started this
            process, if one did.

    Raises:
        ValueError: For a name with odd characters, a model of another task, an unknown run, a
            damaged checkpoint, or an evaluation of another one.
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
    """Raise ValueError for a name with odd characters, or if the versions of `name` learned another
    simulated task than what the lineage is of: a champion is replaced by one that does the same.
    The module before the id of a task, "my_tasks:MyTask-v0", makes it no other one.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"model name {name!r} may hold letters, digits, '.', '_' and '-' only")
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
            f"'{name}' holds policies of {', '.join(sorted(theirs))}, this one was trained on "
            f"{mine}; give another name, e.g. {proposed}"
        )


def note_verdict(name: str, version: str, verdict: Verdict) -> None:
    """Write a gate's answer to a version's tags; changes no alias.

    Raises:
        ValueError: For one that belongs to another checkpoint or evaluation.
    """
    client = store.connect()
    with _changing(client, name):
        check_verdict_is_of(find(f"{name}/{version}", client), verdict)
        _tag(client, name, version, evidence.verdict_tags(verdict))


def promote(name: str, version: str, verdict: Verdict | None) -> Entry:
    """Make a version the champion; returns the ledger entry. Promoting the champion again changes
    nothing.

    The verdict is written to the version's tags, also when it refuses.

    Raises:
        ValueError: Without a verdict, with one that does not pass or belongs to another checkpoint,
            evaluation or champion, with incomplete lineage, or with a damaged ledger.
    """
    if verdict is None:
        raise ValueError(
            f"'{name}' version {version} has no verdict; evaluate it and run the gate, then "
            "promote with "
            "--verdict verdict-GATE.json"
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
        reason: Why, for the ledger.
        version: The champion that has to go. Given, running the command twice rolls back once.

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
    """Hold the lock of a model; the block may change it, and then its descriptions follow."""
    with store.lock(f"registry-{name}"):
        try:
            yield
        except ValueError:  # refused, and the verdict that says why is on the version
            descriptions.refresh(client, name)
            raise
        descriptions.refresh(client, name)


def _settle(client: "MlflowClient", name: str) -> list[Entry]:
    """Bring head and aliases to where the ledger says they are; returns the ledger."""
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
