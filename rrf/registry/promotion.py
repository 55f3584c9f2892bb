"""The champion of a model: promote, roll back, withdraw, and say which gate rules the model.

@candidate is the version registered last (`rrf.registry.registration`), @champion the one to use,
and @previous the one that a rollback returns to. A promotion needs a complete lineage, and the
model's own gate must pass the version: the verdict is computed again from the evaluations in the
store (`rrf.registry.rules`). It does its work in this order:

    finish what a dead process left behind -> check -> tag the version -> ledger -> aliases

Writing the ledger entry commits the promotion (`rrf.registry.changes`). If a process is killed
before that, neither champion nor ledger has changed. If it is killed afterwards, the next change of
the model completes its work. So running the command again always ends in the same state, and of two
machines that change a model at once, one comes second and checks again. The descriptions are
written at the very end, because they are computed from the rest (`rrf.registry.descriptions`).
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rrf.evaluation.gates.verdicts import Verdict
from rrf.mlflow_store import store
from rrf.registry import approvals, changes, evidence, rules
from rrf.registry import ledger as ledgers
from rrf.registry.client import connect
from rrf.registry.entries import Approval, Entry, ModelGate
from rrf.registry.ledger import Ledger
from rrf.registry.rules import NotPromotedError, check_promotable
from rrf.registry.versions import Version, check_exists, exists, find, versions_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from rrf.evaluation.gates.gate import GateCfg
    from rrf.registry.lineage_graph import Training


def promote(name: str, version: str, unrevoke: str | None = None) -> Entry:
    """Make a version the champion; returns the ledger entry.

    The model's gate judges the version by what the store holds. The verdict is written to the
    version's tags, even if the promotion is then refused. Promoting the current champion again
    changes nothing.

    Args:
        name: The registered model.
        version: The version.
        unrevoke: Why a version that was rolled back or withdrawn, or one like it
            (`rrf.registry.likeness`), may be champion.

    Raises:
        AwaitingApprovalError: If others must approve it first; they have been asked for it then.
        NotPromotedError: If the gate does not pass it, its lineage is incomplete, or it is revoked.
        ValueError: If the model has no gate, an evaluation is missing, the ledger is damaged, or
            tags or files of the version are not those that were registered.
    """
    from rrf.registry import cards  # only here: it reads much

    client = connect()
    with changing(client, name):
        for _ in range(changes.ROUNDS):
            ledger = finished(client, name)
            candidate = find(f"{name}/{version}", client)
            if ledger.champion == version:
                if unrevoke and _is_allowed_anew(client, ledger, candidate, unrevoke):
                    continue
                return next(e for e in reversed(ledger.entries) if e.champion == version)
            verdict = passing(client, ledger, candidate, unrevoke)
            if verdict is None or not approvals.are_given(client, ledger, candidate, verdict):
                continue
            success = verdict.success["rate"]
            entry = cards.append(
                client,
                ledger,
                candidate,
                action="promote",
                champion=version,
                previous=ledger.champion,
                checkpoint_digest=candidate.checkpoint_digest,
                verdict_digest=verdict.digest,
                protocol_hash=verdict.protocol_hash,
                reason=f"gate {verdict.gate}: {verdict.outcome}, success {success:.3f}",
            )
            if entry:
                return entry
    raise changes.busy(name)


def passing(
    client: "MlflowClient",
    ledger: Ledger,
    candidate: Version,
    unrevoke: str | None,
    command: str = "promote",
) -> Verdict | None:
    """The verdict of a version that robots may use; None if the ledger has changed meanwhile.

    Raises like `promote`, but asks for no approvals. `command` is what a refusal says to type, of
    `rrf models`.
    """
    from rrf.registry import likeness, lineage_graph, loading, taints  # only here: they read much

    versions = versions_of(client, ledger.name)
    rules.check_registered(ledger, candidate)
    trainings = lineage_graph.trainings_of(client, candidate, versions)
    if tainted := taints.problem_in(trainings):
        raise NotPromotedError(
            f"{candidate} is not promoted: {tainted}; train it again without that, or take "
            f"it out of {taints.FILE}"
        )
    if revocation := likeness.revocation(client, ledger, versions, candidate, trainings):
        _unrevoke(client, ledger, candidate, trainings, revocation, unrevoke, command)
        return None
    verdict = rules.judge(client, ledger, versions, candidate)
    tag(client, candidate, evidence.verdict_tags(verdict))
    check_promotable(ledger, candidate, verdict)
    loading.check_files(client, candidate)
    return verdict


def _is_allowed_anew(
    client: "MlflowClient", ledger: Ledger, champion: Version, reason: str
) -> bool:
    """Allow a champion that stands on what is revoked; returns whether there was anything to do."""
    from rrf.registry import lineage_graph, standing

    versions = versions_of(client, ledger.name)
    trainings = lineage_graph.trainings_of(client, champion, versions)
    if why := standing.inherited(client, ledger, champion, trainings):
        _unrevoke(client, ledger, champion, trainings, why, reason)
    return bool(why)


def _unrevoke(
    client: "MlflowClient",
    ledger: Ledger,
    candidate: Version,
    trainings: Sequence["tuple[Training, str]"],
    revocation: str,
    reason: str | None,
    command: str = "promote",
) -> None:
    from rrf.registry import standing

    name, version = ledger.name, candidate.version
    if not (reason or "").strip():
        raise NotPromotedError(
            f"'{name}' version {version} is not {command}d: {revocation}; if that does not speak "
            f"against it: rrf models {command} {name} {version} --unrevoke --reason '...'"
        )
    reaching = standing.revocations(client, ledger, candidate, trainings)
    allows = [entry.hash for entry, _ in reaching if entry.model != name]
    facts = {"version": version, "allows": allows, "reason": reason}
    changes.append(client, ledger, action="unrevoke", **facts)


def approve(approval: Approval) -> Entry:
    """Write an approval to the ledger; returns the entry. Who has approved a request does not do it
    twice.

    Raises:
        ValueError: If it is of a request that is over, by somebody who may not approve, or by the
            one who asked.
    """
    client, name = connect(), approval.model
    check_exists(client, name)
    with changing(client, name):
        for _ in range(changes.ROUNDS):
            ledger = finished(client, name)
            given = {
                (e.approval["stage"], e.approval["key"]): e for e in ledger.entries if e.approval
            }
            if entry := given.get((approval.stage, approval.key)):
                return entry
            approvals.check_current(ledger, approval)
            entry = changes.append(
                client,
                ledger,
                action="approve",
                version=approval.version,
                approval=dataclasses.asdict(approval),
                reason=approval.reason,
            )
            if entry:
                return entry
    raise changes.busy(name)


def rollback(name: str, reason: str, version: str | None = None) -> Entry:
    """Return to the previous champion; returns the ledger entry.

    The version that is left is revoked: it is not promoted again until somebody says why it may be
    (`promote`).

    Args:
        name: The registered model.
        reason: The reason for the rollback, kept in the ledger.
        version: The champion to leave. If given, running the command twice rolls back only once.

    Raises:
        ValueError: Without a reason, or if there is no previous champion, or it stands on data
            that is tainted or on a version that was revoked.
    """
    from rrf.registry import standing  # only here: it reads much

    if not reason.strip():
        raise ValueError("a rollback needs a reason; give one with --reason '...'")
    client = connect()
    with changing(client, name):
        for _ in range(changes.ROUNDS):
            ledger = finished(client, name)
            champions = ledger.champions
            if version is not None and version in ledger.revoked and ledger.champion != version:
                return ledger.last("rollback", version=version)
            if version is not None and ledger.champion != version:
                raise ValueError(
                    f"the champion of '{name}' is version {ledger.champion or 'none'}, not "
                    f"{version}"
                )
            left = [each for each in champions if each != champions[-1]]
            if not left:
                raise ValueError(
                    f"'{name}' has no previous champion to roll back to; see: rrf models ledger "
                    f"{name}"
                )
            if why := standing.barred(client, ledger, find(f"{name}/{left[-1]}", client)):
                raise ValueError(
                    f"'{name}' is not rolled back to version {left[-1]}: {why}; leave it without "
                    f"a champion: rrf models withdraw {name} --reason '...'; "
                    f"{standing.how_to_allow(name, left[-1])}"
                )
            entry = changes.append(
                client,
                ledger,
                action="rollback",
                version=champions[-1],
                champion=left[-1],
                previous=left[-2] if len(left) > 1 else None,
                checkpoint_digest=ledger.checkpoint_of(left[-1]),
                reason=reason,
            )
            if entry:
                return entry
            version = version or champions[-1]  # another machine may have rolled it back meanwhile
    raise changes.busy(name)


def withdraw(name: str, reason: str) -> Entry:
    """Leave a model without a champion; returns the ledger entry.

    The champion is revoked, as by a rollback, and fetching, serving and playing "the champion" are
    refused with the reason until another version is promoted. Withdrawing again changes nothing.

    Raises:
        ValueError: Without a reason, or if there is no champion.
    """
    if not reason.strip():
        raise ValueError("a withdrawal needs a reason; give one with --reason '...'")
    client = connect()
    with changing(client, name):
        for _ in range(changes.ROUNDS):
            ledger = finished(client, name)
            if ledger.withdrawn:
                return ledger.withdrawn
            if not ledger.champion:
                raise ValueError(f"'{name}' has no champion to withdraw")
            entry = changes.append(
                client,
                ledger,
                action="withdraw",
                version=ledger.champion,
                champion=None,
                previous=None,
                checkpoint_digest=None,
                reason=reason,
            )
            if entry:
                return entry
    raise changes.busy(name)


def rule(name: str, file: str | Path, reason: str) -> Entry:
    """Make a gate the one that rules a model; returns the ledger entry.

    The whole gate is recorded, so later edits of the file change nothing. Recording the same gate
    again changes nothing either.

    Raises:
        ValueError: Without a reason, for a gate that cannot be read, or for an unknown model.
    """
    if not reason.strip():
        raise ValueError("a change of gate needs a reason; give one with --reason '...'")
    client, gate = connect(), rules.model_gate(file)
    with changing(client, name):
        ledger = record_gate(client, name, gate, reason)
    return ledger.last("gate")


def record_gate(
    client: "MlflowClient", name: str, gate: ModelGate, reason: str, first: bool = False
) -> Ledger:
    """Record a gate, `first` only if none is on record; returns the ledger after that."""
    for _ in range(changes.ROUNDS):
        ledger = finished(client, name)
        if ledger.gate and (first or ledger.gate.hash == gate.hash):
            return ledger
        changes.append(client, ledger, action="gate", gate=dataclasses.asdict(gate), reason=reason)
    raise changes.busy(name)


def gate_of(name: str) -> ModelGate | None:
    """The gate that rules a model; None if none does yet.

    Raises:
        ValueError: If the ledger is damaged, or MLflow's aliases differ from it.
    """
    client = connect()
    return changes.agreed(client, name).gate if exists(client, name) else None


def other_gate(name: str, file: str | Path) -> str:
    """Why candidates for `name` that the gate in this file judges cannot be promoted, or "":
    another gate rules the model.
    """
    client = connect()
    return rules.other_gate(changes.agreed(client, name), file) if exists(client, name) else ""


def check_recordable(name: str, file: str | Path) -> None:
    """Raise ValueError if no gate rules the model yet and this one cannot be recorded as its first
    one: it cannot be read, or lies outside the workspace.
    """
    if gate_of(name) is None:
        rules.model_gate(file)


def ledger_of(name: str) -> Ledger:
    """The ledger of a model. Raises ValueError if there is no such model, or it was edited."""
    client = connect()
    check_exists(client, name)
    return ledgers.read(client, name)


def rivals(name: str, in_trial: bool = False) -> dict[str, Version]:
    """The versions that candidates are compared with, or those in trials on a robot: "champion",
    and "best", the best champion so far if that is another one. Empty without a champion.
    """
    client = connect()
    if not exists(client, name):
        return {}
    ledger = changes.agreed(client, name)
    gate = rules.trial_gate_of(ledger) if in_trial else rules.gate_of(ledger)
    return rules.rivals(ledger, versions_of(client, name), gate)


def trial_verdict(name: str, checkpoint_digest: str, gate: "GateCfg") -> Verdict | None:
    """What the gate for trials that `gate` names says about the version with this checkpoint; None
    if it names none, the model's gate another one, or no trial against the champion is stored.
    """
    client = connect()
    if gate.trial is None or not exists(client, name):
        return None
    ledger = changes.agreed(client, name)
    ruling, version = rules.trial_gate_of(ledger), ledger.version_of(checkpoint_digest)
    if version is None or ruling is None or ruling.hash != gate.trial.hash:
        return None
    candidate = find(f"{name}/{version}", client)
    return rules.trial_verdict(client, ledger, versions_of(client, name), candidate)


def attempt_of(name: str, checkpoint_digest: str) -> int:
    """Which candidate this is that the model's gate judges against its current champion."""
    client = connect()
    if not exists(client, name):
        return 1
    return rules.attempt_of(changes.agreed(client, name), checkpoint_digest)


def revocation_of(name: str, version: str) -> str:
    """Why a version is not promoted unless somebody allows it, whatever the gate says, or ""."""
    from rrf.registry import likeness, lineage_graph

    client = connect()
    ledger, candidate = changes.agreed(client, name), find(f"{name}/{version}", client)
    versions = versions_of(client, name)
    trainings = lineage_graph.trainings_of(client, candidate, versions)
    return likeness.revocation(client, ledger, versions, candidate, trainings)


def note_verdict(name: str, version: str, verdict: Verdict) -> None:
    """Write a verdict to the tags of a version, if the model's gate gave it; changes no alias."""
    client = connect()
    with changing(client, name):
        gate = ledgers.read(client, name).gate
        if gate and gate.hash == verdict.gate_hash:
            tag(client, find(f"{name}/{version}", client), evidence.verdict_tags(verdict))


@contextlib.contextmanager
def changing(client: "MlflowClient", name: str) -> Iterator[None]:
    """Let one process of this workspace change a model; then refresh the descriptions."""
    from rrf.registry import descriptions  # only for people: no change depends on them

    with store.lock(f"registry-{name}"):
        try:
            yield
        except ValueError:  # a refusal too may have written a verdict to the version's tags
            descriptions.refresh(client, name)
            raise
        descriptions.refresh(client, name)


def finished(client: "MlflowClient", name: str) -> Ledger:
    """The ledger, after the work of a dead process was finished and the aliases were corrected."""
    from mlflow.exceptions import MlflowException

    try:
        return changes.finish_and_correct(client, name)
    except MlflowException:
        check_exists(client, name)
        raise


def tag(client: "MlflowClient", version: Version, tags: Mapping[str, str]) -> None:
    """Set the tags of a version that differ."""
    current = client.get_model_version(version.name, version.version).tags
    for key, value in tags.items():
        if current.get(key) != value:
            client.set_model_version_tag(version.name, version.version, key, value)
