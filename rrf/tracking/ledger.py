"""The promotion ledger: every change of champion, in order, stored in the registry it describes.

MLflow keeps no history of aliases, so the ledger does. Each change is one tag of the registered
model (`ledger.000001`, `ledger.000002`, ...), so the ledger moves together with the store. Each
entry holds the hash of the previous entry, and `ledger.head` names the last one, so edited and
removed entries are detected.

Writing an entry commits the change; the aliases are set afterwards. If a process dies in between,
the next process that changes the model sets them (`rrf.tracking.registry`).
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
    version: str  # the promoted version, or the one that was rolled back
    champion: str  # the champion after the change
    previous: str | None  # the version that a rollback would return to
    checkpoint_digest: str  # of the champion after the change
    verdict_digest: str | None
    protocol_hash: str | None
    reason: str
    actor: str
    parent: str  # hash of the previous entry
    hash: str = ""

    def sealed(self) -> "Entry":
        """The entry with its hash."""
        content = dataclasses.asdict(self) | {"hash": ""}
        return dataclasses.replace(self, hash=atomic.digest_of(content))


def read(client: "MlflowClient", name: str) -> list[Entry]:
    """The ledger of a model, oldest first.

    Raises:
        ValueError: If the ledger is damaged. The message names the entry that was edited, removed
            or cut off.
    """
    return parse(name, client.get_registered_model(name).tags)


def parse(name: str, tags: Mapping[str, str]) -> list[Entry]:
    """The ledger in the tags of registered model `name`. Raises ValueError like `read`."""
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
    # The head is written after its entry. A killed process may leave it one behind, never ahead.
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
    """Record that `entry` is the last one."""
    client.set_registered_model_tag(name, HEAD, entry.hash)


def champions(entries: list[Entry]) -> list[str]:
    """The versions that a chain of rollbacks would pass through, the current champion last."""
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
