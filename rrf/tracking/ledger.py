"""The promotion ledger: every change of champion, in order, kept in the registry it describes.

MLflow keeps no history of aliases. The ledger does: one tag `ledger.000001`, `ledger.000002`, ...
per change on the registered model, so it travels with the store. Each entry carries the hash of the
one before, and `ledger.head` names the last, so an edited, removed or cut-off entry is noticed. An
entry is the commit point of a change: aliases follow it, and whoever finds them lagging behind a
dead process brings them up (`rrf.tracking.registry`).
"""

import dataclasses
import datetime
import json
import os
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rrf import atomic

if TYPE_CHECKING:
    from mlflow import MlflowClient

PREFIX = "ledger."
HEAD = "ledger.head"
_GENESIS = "0" * 64


@dataclasses.dataclass(frozen=True)
class Entry:
    """One change of champion."""

    index: int  # from 1
    time: str  # ISO 8601, UTC
    action: typing.Literal["promote", "rollback"]
    version: str  # promoted, or rolled back from
    champion: str  # after the change
    previous: str | None  # what a rollback would return to
    checkpoint_digest: str  # of the champion
    verdict_digest: str | None
    protocol_hash: str | None
    reason: str
    actor: str
    parent: str  # hash of the entry before
    hash: str = ""

    def sealed(self) -> "Entry":
        """The entry with its hash."""
        content = dataclasses.asdict(self) | {"hash": ""}
        return dataclasses.replace(self, hash=atomic.digest_of(content))


def read(client: "MlflowClient", name: str) -> list[Entry]:
    """The ledger of a model, oldest first.

    Raises:
        ValueError: Naming the entry that was edited, removed or cut off.
    """
    return parse(name, client.get_registered_model(name).tags)


def parse(name: str, tags: Mapping[str, str]) -> list[Entry]:
    """The ledger in the tags of registered model `name`. Raises ValueError as `read` does."""
    keys = sorted(key for key in tags if key.startswith(PREFIX) and key != HEAD)
    entries: list[Entry] = []
    for position, key in enumerate(keys, start=1):
        if key != _key(position):
            raise ValueError(f"{_damaged(name)}: entry {position} was removed")
        try:
            entry = Entry(**json.loads(tags[key]))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{_damaged(name)}: entry {position} is unreadable ({error})"
            ) from error
        parent = entries[-1].hash if entries else _GENESIS
        if entry.sealed() != entry or entry.parent != parent or entry.index != position:
            raise ValueError(f"{_damaged(name)}: entry {position} was edited")
        entries.append(entry)
    # The head is written after its entry, so a killed process may leave it one behind, never ahead.
    head = tags.get(HEAD)
    if head is not None and head not in [entry.hash for entry in entries[-2:]]:
        raise ValueError(f"{_damaged(name)}: entries after {len(entries)} were cut off")
    return entries


def append(client: "MlflowClient", name: str, entries: list[Entry], **facts) -> Entry:
    """Add an entry after `entries` (all of them, read under the lock) and return it."""
    entry = Entry(
        index=len(entries) + 1,
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        actor=os.environ.get("USER") or f"uid {os.getuid()}",
        parent=entries[-1].hash if entries else _GENESIS,
        **facts,
    ).sealed()
    client.set_registered_model_tag(name, _key(entry.index), json.dumps(dataclasses.asdict(entry)))
    return entry


def set_head(client: "MlflowClient", name: str, entry: Entry) -> None:
    """Record that `entry` is the last."""
    client.set_registered_model_tag(name, HEAD, entry.hash)


def champions(entries: list[Entry]) -> list[str]:
    """The versions a chain of rollbacks would pass through, the present champion last."""
    stack: list[str] = []
    for entry in entries:
        if entry.action == "promote":
            stack.append(entry.champion)
        else:
            stack.pop()
    return stack


def _key(index: int) -> str:
    return f"{PREFIX}{index:06d}"


def _damaged(name: str) -> str:
    return f"the promotion ledger of '{name}' is damaged"
