"""The promotion ledger: what a promotion believes, in order, in the store itself.

Which checkpoint each version was registered as, which evaluations are stored with it, every change
of the model's champion and gate: each is one tag of the registered model (`ledger.000001`,
`ledger.000002`, ...), so the ledger moves together with the store. MLflow keeps no history and lets
anybody edit its tags. Therefore each entry names its model and holds the hash of the previous one,
and `ledger.head` names the last one, so edited, removed and copied entries are detected. Each
workspace also remembers the last entry it has seen (`.rrf/ledgers/`): so it notices that the end of
a ledger was removed together with its head.

Writing an entry commits the change. Entries are written by `rrf.registry.changes` only, which makes
sure that two machines never write the same one.

The hashes have no key: whoever may write everything can make a chain of them. Where the workspace
says whose signature counts (`rrf.identity.trust`), an entry must be signed by one of them.
"""

import dataclasses
import datetime
import hashlib
import os
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic, formats, workspace
from rrf.registry import signatures
from rrf.registry.entries import (
    Entry,
    ModelGate,
    Registration,
    StoredEvaluation,
    entry_of,
    is_sealed,
    released_in,
    revoked_in,
    staged_in,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import RegisteredModel

PREFIX = "ledger."
HEAD = "ledger.head"
GENESIS = "0" * 64


class DamagedError(ValueError):
    """A ledger was edited, or entries are missing; `rrf models repair` explains and mends it."""

    def __init__(self, name: str, damage: str):
        super().__init__(
            f"the promotion ledger of '{name}' is damaged: {damage}; to see what can be saved: rrf "
            f"models repair {name}"
        )


@dataclasses.dataclass(frozen=True)
class Ledger:
    """The entries of a model, oldest first, and what follows from them: champions, gate, bans."""

    name: str
    """The registered model."""
    entries: tuple[Entry, ...] = ()

    @property
    def champions(self) -> list[str]:
        """The versions that a chain of rollbacks would pass through, the current champion last. One
        that was revoked is none of them, also where it had been champion before, until it is
        promoted again.
        """
        stack: list[str] = []
        for entry in self.entries:
            if entry.action == "promote" and entry.champion:
                stack.append(entry.champion)
            elif entry.action == "rollback":
                del stack[-1:]
            elif entry.action == "withdraw":
                stack.clear()
            elif entry.deleted:
                stack = [version for version in stack if version not in entry.deleted]
            if entry.revokes:
                stack = [version for version in stack if version != entry.revokes]
        return stack

    @property
    def champion(self) -> str | None:
        """The version to use; None before the first promotion and after a withdrawal."""
        return self.champions[-1] if self.champions else None

    @property
    def previous(self) -> str | None:
        """The champion that a rollback returns to, if there is one."""
        return self.champions[-2] if len(self.champions) > 1 else None

    @property
    def promoted(self) -> set[str]:
        """All versions that have ever been promoted."""
        return {e.champion for e in self.entries if e.action == "promote" and e.champion}

    @property
    def revoked(self) -> "dict[str, Entry]":
        """Versions that were rolled back or withdrawn and not allowed again since -> by what."""
        return revoked_in(self.entries)

    def allows(self, version: str, revocation: Entry) -> bool:
        """Whether somebody has allowed a version after this revocation, in whatever ledger, of
        another one. Up to version 6 of its format, an entry does not say what it was about; then
        what is older by the clock was meant.
        """
        for entry in self.entries:
            if entry.action != "unrevoke" or entry.version != version:
                continue
            if revocation.model == self.name:
                is_meant = revocation.index < entry.index
            elif entry.allows is None:
                is_meant = revocation.time <= entry.time
            else:
                is_meant = revocation.hash in entry.allows
            if is_meant:
                return True
        return False

    @property
    def staged(self) -> Entry | None:
        """The request for approvals that was made last, while the champion is the one of then."""
        return staged_in(self.entries)

    @property
    def release(self) -> Entry | None:
        """The release that runs: a canary, or a shadow."""
        return released_in(self.entries)

    @property
    def withdrawn(self) -> Entry | None:
        """The withdrawal that has left the model without a champion, if one has."""
        if self.champion:
            return None
        return next((e for e in reversed(self.entries) if e.action == "withdraw"), None)

    @property
    def gate(self) -> ModelGate | None:
        """The gate that rules the model; None if none was recorded."""
        gates = [entry.gate for entry in self.entries if entry.gate]
        return ModelGate(**gates[-1]) if gates else None

    def registration(self, version: str) -> Registration | None:
        """What a version was registered as; None if rrf did not register it.

        Its checkpoint never changes. Its lineage is the one it was registered with last.
        """
        entries = [e for e in self.entries if e.version == version and e.registration]
        if not entries:
            return None
        first, last = (Registration(**e.registration or {}) for e in (entries[0], entries[-1]))
        return dataclasses.replace(last, checkpoint_digest=first.checkpoint_digest)

    def checkpoint_of(self, version: str) -> str:
        """The digest of the checkpoint that a version was registered as; "" if it was not."""
        registration = self.registration(version)
        return registration.checkpoint_digest if registration else ""

    def version_of(self, checkpoint_digest: str) -> str | None:
        """The first version that was registered with this checkpoint; None if none was."""
        for entry in self.entries:
            if (entry.registration or {}).get("checkpoint_digest") == checkpoint_digest:
                return entry.version
        return None

    def evaluations(self, version: str) -> list[StoredEvaluation]:
        """The evaluations stored with a version, the oldest first; one that was an attempt against
        several champions comes once for each of them.
        """
        return [
            StoredEvaluation(**entry.evaluation)
            for entry in self.entries
            if entry.version == version and entry.evaluation
        ]

    def documents(self, version: str) -> dict[str, str]:
        """Card and bill of materials of a version, as they were stored last: file name -> SHA-256;
        {} if none are.
        """
        entries = [e for e in self.entries if e.version == version and e.documents]
        return dict(entries[-1].documents or {}) if entries else {}

    @property
    def end(self) -> str:
        """The hash that the next entry names as its parent."""
        return self.entries[-1].hash if self.entries else GENESIS

    @property
    def hashes(self) -> set[str]:
        """The hashes of the entries, and of those that a repair among them has given up."""
        lost = {hash for entry in self.entries for hash in entry.lost or ()}
        return {entry.hash for entry in self.entries} | lost

    def last(self, action: str, **facts: str) -> Entry:
        """The newest entry of a kind with these facts. There must be one."""
        return next(
            entry
            for entry in reversed(self.entries)
            if entry.action == action and all(getattr(entry, k) == v for k, v in facts.items())
        )

    def next_entry(self, **facts: typing.Any) -> Entry:
        """The entry that comes next, with its hash.

        Champion, previous champion and digest stay what they are unless `facts` changes them.

        Args:
            facts: Fields of `Entry`, at least `action` and `reason`.
        """
        last = self.entries[-1] if self.entries else None
        unchanged = {
            "version": None,
            "champion": last.champion if last else None,
            "previous": self.previous,
            "checkpoint_digest": last.checkpoint_digest if last else None,
            "verdict_digest": None,
            "protocol_hash": None,
        }
        return Entry(
            **{
                "model": self.name,
                "index": len(self.entries) + 1,
                "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "actor": os.environ.get("USER") or f"uid {os.getuid()}",
                "parent": self.end,
                **unchanged,
                **facts,
            }
        ).sealed()


def read(client: "MlflowClient", name: str) -> Ledger:
    """The ledger of a model.

    Raises:
        DamagedError: The message names the entry that was edited, removed or cut off.
    """
    return read_model(client, name)[1]


def read_model(client: "MlflowClient", name: str) -> "tuple[RegisteredModel, Ledger]":
    """A registered model and the ledger in its tags. Raises like `read`."""
    seen = remembered(name)  # first: meanwhile another process may see a later end than these tags
    model = client.get_registered_model(name)
    return model, parse(name, model.tags, seen)


def parse(name: str, tags: Mapping[str, str], seen: str | None) -> Ledger:
    """The ledger in the tags of registered model `name`; this workspace remembers its end.

    Args:
        name: The model.
        tags: Its tags.
        seen: What was `remembered` before they were read.

    Raises:
        DamagedError: Like `read`.
    """
    ledger, damage = proved(name, tags)
    if damage:
        raise DamagedError(name, damage)
    # The head is written after its entry. A killed process may leave it behind, never ahead.
    head = tags.get(HEAD)
    if head is not None and head not in ledger.hashes:
        raise DamagedError(name, f"entries after {len(ledger.entries)} were cut off")
    if seen is not None and seen not in ledger.hashes:
        raise DamagedError(
            name, f"an entry that this workspace has seen ({seen[:12]}) is not in it any more"
        )
    if ledger.entries and seen != ledger.end:
        remember(name, ledger.end)
    return ledger


def proved(name: str, tags: Mapping[str, str]) -> tuple[Ledger, str]:
    """The entries up to the first that is damaged, and what is wrong with that one, or "".

    Raises:
        NewerFormatError: If a newer rrf wrote an entry, which is no damage.
    """
    read: list[Entry] = []
    damage, parent = "", GENESIS
    keys = sorted(key for key in tags if key.startswith(PREFIX) and key != HEAD)
    for position, key in enumerate(keys, start=1):
        if key != key_of(position):
            damage = f"entry {position} was removed"
            break
        try:
            entry = entry_of(tags[key], f"entry {position} of the promotion ledger")
            is_whole = is_sealed(tags[key], entry)
        except formats.NewerFormatError:
            raise
        except (ValueError, TypeError) as error:
            damage = f"entry {position} is unreadable ({error})"
            break
        if (entry.parent, entry.index) != (parent, position) or not is_whole:
            damage = f"entry {position} was edited"
            break
        if entry.model != name:
            damage = f"entry {position} was written for model '{entry.model}'"
            break
        read.append(entry)
        parent = entry.hash
    num_trusted, problem = signatures.trusted(name, read)
    if problem:
        read, damage = read[:num_trusted], f"{problem}; {damage}" if damage else problem
    return Ledger(name, tuple(read)), damage


def key_of(index: int) -> str:
    """The tag that holds entry number `index`."""
    return f"{PREFIX}{index:06d}"


def remembered(name: str) -> str | None:
    """The hash of the last entry of this model's ledger that this workspace has seen."""
    file = _memory(name)
    return file.read_text().strip() if file.is_file() else None


def remember(name: str, hash: str | None) -> None:
    """Note the hash of the last entry of this model's ledger; None for a ledger without entries."""
    if hash is None:
        _memory(name).unlink(missing_ok=True)
    else:
        atomic.write_text(_memory(name), hash)


def _memory(name: str) -> Path:
    store = hashlib.sha256(workspace.tracking_uri().encode()).hexdigest()[:16]
    return workspace.state() / "ledgers" / f"{name}-{store}"
