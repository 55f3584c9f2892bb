"""Where a fetched policy came from, and whether its version may still be used.

`rrf models fetch` puts into the checkpoint a folder `registry/` with `origin.json` (model, version,
store) and the card and bill of materials of the version. Nothing of it is a part of the policy: no
digest covers it, and it is not registered again.

A version that was withdrawn or rolled back must not drive a robot from a copy either. The registry
is asked: the store of this workspace or of MLFLOW_TRACKING_URI, or else the recorded one if it is a
file on this machine. A server that only the folder names is not asked, because a folder may come
from anybody. Where nobody can be asked, the policy is used, and a line says so.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rrf import atomic, workspace
from rrf.mlflow_store import store
from rrf.mlflow_store.artifacts import SQLITE
from rrf.registry import ledger as ledgers
from rrf.registry import listing
from rrf.registry.standing import standing_of
from rrf.registry.versions import Version
from rrf.runners.checkpoints.deployable import REGISTRY, deployable_digest

FILE = "origin.json"
_TRACKING = "MLFLOW_TRACKING_URI"


class RevokedError(ValueError):
    """A policy whose version was withdrawn or rolled back."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """The version that a fetched checkpoint is."""

    model: str
    version: str
    store: str
    """The address of the store, without user and password."""


def write(checkpoint: Path, version: Version, documents: Mapping[str, bytes]) -> None:
    """Note in a checkpoint that was just fetched which version it is, beside its documents."""
    facts = {key: v for key, v in atomic.read_manifest(checkpoint).items() if key != "files"}
    origin = Origin(version.name, version.version, workspace.shown_uri(workspace.tracking_uri()))
    folder = checkpoint / REGISTRY
    atomic.write_json(folder / FILE, dataclasses.asdict(origin))
    for name, content in documents.items():
        atomic.write_bytes(folder / name, content)
    atomic.write_manifest(checkpoint, **facts)


def read(checkpoint: str | Path) -> Origin | None:
    """Which version a checkpoint was fetched as; None if it was not fetched.

    Raises:
        ValueError: If the file that says so is damaged.
    """
    file = Path(checkpoint) / REGISTRY / FILE
    if not file.is_file():
        return None
    try:
        facts = atomic.parse_json(file.read_text())
        if not all(isinstance(value, str) for value in facts.values()):
            raise TypeError("a value is no text")
        origin = Origin(**facts)
        if "/" in origin.model or not atomic.is_plain_name(origin.model):
            raise ValueError(f"{origin.model!r} is no name of a model")
        return origin
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged ({error}); fetch the policy again") from error


def check(checkpoint: str | Path, allow_withdrawn: bool, say: Callable[[str], None]) -> None:
    """Ask whether a checkpoint that was fetched may still be used.

    Args:
        checkpoint: Its folder.
        allow_withdrawn: Go on with a version that must not be used any more.
        say: Called with a line if that is done, or if nobody can be asked.

    Raises:
        RevokedError: If its version was withdrawn or rolled back.
    """
    if origin := read(checkpoint):
        check_version(origin, deployable_digest(checkpoint), allow_withdrawn, say)


def check_version(
    origin: Origin, digest: str, allow_withdrawn: bool, say: Callable[[str], None]
) -> None:
    """Ask whether a version whose checkpoint has this digest may still be used; see `check`."""
    try:
        why = asker(origin, digest)(origin.model, origin.version)
    except (ValueError, OSError) as error:
        what = f"{origin.model} version {origin.version}"
        say(f"warning: nobody says whether {what} is still allowed: {error}")
        return
    if why and not allow_withdrawn:
        raise RevokedError(
            f"{why}; to use it all the same: --allow-withdrawn, or rrf.load_policy(..., "
            "allow_withdrawn=True)"
        )
    if why:
        say(f"warning: {why}; it is used all the same")


def asker(origin: Origin, digest: str) -> Callable[[str, str], str]:
    """What says, whenever it is asked, why a version whose checkpoint has this digest must not be
    used any more, or "". It raises ValueError or OSError if nobody can be asked; its arguments are
    model and version.
    """

    def ask(*_: str) -> str:
        with _asking(origin.store):
            return _revocation(origin, digest)

    return ask


@contextlib.contextmanager
def _asking(recorded: str) -> Iterator[None]:
    """Within the block, the store to ask is that of this workspace."""
    named = os.environ.get(_TRACKING)
    is_here = recorded.startswith(SQLITE) and store.is_made(recorded)
    if named or not is_here or recorded == workspace.tracking_uri():
        yield
        return
    os.environ[_TRACKING] = recorded
    try:
        yield
    finally:
        del os.environ[_TRACKING]


def _revocation(origin: Origin, digest: str) -> str:
    """Why a version must not be used, or ""; raises ValueError or OSError if nobody knows it."""
    uri = workspace.tracking_uri()
    advice = f"it came from {origin.store}; name its store in {_TRACKING}"
    if not store.is_made(uri):
        raise OSError(f"there is no store at {workspace.shown_uri(uri)}; {advice}")
    client = listing.connect()
    if origin.model not in listing.models():
        raise ValueError(f"{workspace.shown_uri(uri)} has no model '{origin.model}'; {advice}")
    ledger = ledgers.read(client, origin.model)
    if ledger.checkpoint_of(origin.version) != digest:
        raise ValueError(
            f"{workspace.shown_uri(uri)} has another policy as {origin.model} version "
            f"{origin.version}; {advice}"
        )
    return standing_of(origin.model, origin.version)
