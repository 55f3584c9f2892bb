"""Explain and mend a damaged ledger, wrong aliases and tags, without inventing history.

What the chain of hashes proves stays: the entries up to the first damaged one. The rest is moved
aside (tags `damaged.<ledger tag>.<beginning of its digest>`) for people to read. An entry says
which hashes are gone and why somebody mended it. The champion is then the one of the last entry
that is proved; nothing promotes a version again that only a damaged entry calls champion. A
champion that somebody has deleted in MLflow is recorded as lost, and the one before it takes its
place. Tags of versions that contradict the ledger are written again from it and from the stored
evaluations, and a model that stands where a change is written is renamed.
"""

import dataclasses
import hashlib
from typing import TYPE_CHECKING

from rrf import atomic
from rrf.registry import changes, evidence, promotion
from rrf.registry import ledger as ledgers
from rrf.registry.client import connect
from rrf.registry.ledger import Ledger
from rrf.registry.versions import (
    CHECKPOINT_DIGEST,
    Version,
    contradictions,
    model_named,
    versions_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ASIDE = "damaged."
_MOVED = ".moved-aside"
_UNKNOWN = "-"
_MOST_LOST = 40  # hashes that one entry has room for


@dataclasses.dataclass(frozen=True)
class Damage:
    """What is wrong with the ledger and the aliases of a model."""

    proved: Ledger
    """The entries that are proved."""
    findings: list[str]
    """A sentence for each thing that is wrong; empty if nothing is."""
    unproved: dict[str, str]
    """Tags of the ledger that come after the proved entries -> their value."""
    lost: list[str]
    """Hashes of entries that are gone, as far as they are known."""
    deleted: list[str]
    """Champions whose versions were deleted in MLflow."""
    edited: list[Version]
    """Versions whose tags contradict the ledger."""
    in_the_way: str | None
    """A registered model that stands where the next change is written."""

    @property
    def champion(self) -> str | None:
        """The champion after a repair."""
        kept = [v for v in self.proved.champions if v not in self.deleted]
        return kept[-1] if kept else None


def examine(client: "MlflowClient", name: str) -> Damage:
    """Find out what is wrong with a model's ledger and aliases; changes nothing."""
    seen, model = ledgers.remembered(name), client.get_registered_model(name)
    ledger, broken = ledgers.proved(name, model.tags)
    proved_keys = {ledgers.key_of(entry.index) for entry in ledger.entries}
    unproved = {
        key: value
        for key, value in model.tags.items()
        if key.startswith(ledgers.PREFIX) and key != ledgers.HEAD and key not in proved_keys
    }
    head = model.tags.get(ledgers.HEAD)
    findings = [broken] if broken else []
    if unproved:
        findings.append(f"{len(unproved)} entries are not proved: {', '.join(sorted(unproved))}")
    if head and head not in ledger.hashes and not unproved:
        findings.append(f"the head is {head[:12]}, an entry that was removed")
    if seen and seen not in ledger.hashes and not unproved:
        findings.append(f"this workspace has seen entry {seen[:12]}, which was removed")
    moved = {key: value for key, value in model.tags.items() if key.startswith(_ASIDE)}
    hashes = [head, seen, *map(_hash_of, [*unproved.values(), *moved.values()])]
    lost = [hash for hash in dict.fromkeys(hashes) if hash and hash not in ledger.hashes]
    if moved and lost and not findings:
        findings.append("an earlier repair was interrupted")
    deleted = changes.deleted_champions(client, ledger)
    findings += [changes.deletion(name, version) for version in deleted]
    edited = []
    for version in versions_of(client, name):
        if differences := contradictions(ledger, version):
            findings += differences
            edited.append(version)
    in_the_way = None
    try:
        changes.check_way(client, ledger)
    except changes.ReservedError as error:
        findings.append(str(error).partition("; to move")[0])
        in_the_way = error.model
    for alias, (current, expected) in changes.differing_aliases(model, ledger).items():
        findings.append(
            f"@{alias} is version {current or 'none'}, but {expected or 'none'} by the entries "
            "that are proved"
        )
    return Damage(ledger, findings, unproved, lost, deleted, edited, in_the_way)


def repair(name: str, reason: str) -> Damage:
    """Mend the ledger and the aliases of a model; returns what was wrong.

    A killed repair is completed by the next one. If nothing is wrong, nothing changes.

    Raises:
        ValueError: Without a reason, or if this user may not sign a repair; then nothing changes.
    """
    if not reason.strip():
        raise ValueError("a repair needs a reason; give one with --reason '...'")
    client = connect()
    with promotion.changing(client, name):
        damage = examine(client, name)
        if not damage.findings:
            return damage
        records = _facts(damage)
        for facts in records[:1]:
            changes.draft(damage.proved, action="repair", reason=reason, **facts)
        for key, value in damage.unproved.items():
            digest = hashlib.sha256(value.encode()).hexdigest()[:8]
            client.set_registered_model_tag(name, f"{_ASIDE}{key}.{digest}", value)
            client.delete_registered_model_tag(name, key)
        if damage.in_the_way:
            _move_aside(client, damage.in_the_way)
        if records:
            _record(client, damage, records, reason)
        changes.finish(client, name)
        changes.set_aliases(client, name)
        for version in damage.edited:
            _write_tags(client, damage.proved, version)
    return damage


def _facts(damage: Damage) -> list[dict]:
    """What the entries of a repair hold, one after the other; none if only aliases, tags or a model
    in the way are wrong.
    """
    if not (damage.lost or damage.unproved or damage.deleted):
        return []
    lost = damage.lost or ([_UNKNOWN] if damage.unproved else [])
    begins = range(0, len(lost), _MOST_LOST)
    records: list[dict] = [{"lost": lost[begin : begin + _MOST_LOST]} for begin in begins]
    records = records or [{}]
    if damage.deleted:
        champion = damage.champion
        records[0] |= {
            "deleted": damage.deleted,
            "champion": champion,
            "checkpoint_digest": damage.proved.checkpoint_of(champion) if champion else None,
        }
    return records


def _record(client: "MlflowClient", damage: Damage, records: list[dict], reason: str) -> None:
    ledger = damage.proved
    if ledgers.HEAD in client.get_registered_model(ledger.name).tags:
        client.delete_registered_model_tag(ledger.name, ledgers.HEAD)
    ledgers.remember(ledger.name, ledger.end if ledger.entries else None)
    for facts in records:
        if not changes.append(client, ledger, action="repair", reason=reason, **facts):
            raise OSError(
                f"'{ledger.name}' was changed by another process meanwhile; run the repair again"
            )
        ledger = ledgers.read(client, ledger.name)


def _move_aside(client: "MlflowClient", model: str) -> None:
    """Rename what stands where a change is written."""
    free = (f"{model}{_MOVED}{number}" for number in ("", *map("-{}".format, range(2, 1000))))
    name = next(name for name in free if model_named(client, name) is None)
    client.rename_registered_model(model, name)


def _write_tags(client: "MlflowClient", ledger: Ledger, version: Version) -> None:
    """Write the tags of a version from the ledger, and its figures from the evaluation that they
    named, or else from the last one.
    """
    tags = {CHECKPOINT_DIGEST: ledger.checkpoint_of(version.version)}
    version = dataclasses.replace(version, tags=version.tags | tags)
    evaluations = ledger.evaluations(version.version)
    if evaluations:
        shown = version.tags.get("evaluation.digest")
        named = next((e for e in evaluations if e.digest == shown), evaluations[-1])
        tags |= evidence.figures(evidence.load(client, version, named))
    promotion.tag(client, version, tags)


def _hash_of(text: str) -> str | None:
    try:
        return str(atomic.parse_json(text)["hash"])
    except (ValueError, KeyError, TypeError):
        return None
