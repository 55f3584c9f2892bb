"""The episodes of a release, stored with the run of the version that is released.

    releases/<release>/books/<book>.json     what one server has, written again as it grows
    releases/<release>/<digest>.json         what the release was decided by, written once

A server signs what it stores, where the workspace says whose signature counts for `outcome`
(`rrf.identity.trust`). A file that nobody would believe is left out, and named: it must not be able
to keep a bad canary acting. The second file has the episodes of all books; the entry of the ledger
that ends the release names its digest.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import atomic, formats
from rrf.evaluation.gates.release import EpisodeRow, rows_of
from rrf.identity import keys, trust
from rrf.registry import stored_files
from rrf.registry.versions import Version

if TYPE_CHECKING:
    from mlflow import MlflowClient

SIGNED = "outcomes"
"""Purpose of the signature of what a server stores."""
ACTION = "outcome"
_SHOWN = 12
_SIGNATURE = ("key", "signature")


@dataclasses.dataclass(frozen=True)
class Stored:
    """What the servers have stored of a release."""

    rows: list[EpisodeRow]
    books: dict[str, str]
    """Book -> digest of its file."""
    problems: list[str]
    """A line for each file that is left out."""


def place(release: str) -> str:
    """The folder of a release among the artifacts of its version's run."""
    return f"releases/{release[:_SHOWN]}"


def store(
    client: "MlflowClient",
    version: Version,
    release: str,
    book: str,
    rows: Sequence[EpisodeRow],
) -> None:
    """Store what a server has of a release, in the place of what it stored before.

    Raises:
        SigningError: If outcomes need a signature and there is no key.
        OSError: If the store cannot be written.
    """
    content = formats.OUTCOMES.mark | {
        "model": version.name,
        "release": release,
        "book": book,
        "episodes": [dataclasses.asdict(row) for row in rows],
    }
    if trust.load().policy(version.name):
        signer = keys.find()
        content |= {"key": signer.public, "signature": signer.sign(SIGNED, content)}
    _write(client, version, f"{place(release)}/books", f"{book}.json", content)


def load(client: "MlflowClient", version: Version, release: str) -> Stored:
    """What all servers have stored of a release.

    Raises:
        OSError: If the store cannot be read.
    """
    rows, books, problems = [], {}, []
    with tempfile.TemporaryDirectory() as scratch:
        folder = _download(client, version, f"{place(release)}/books", scratch)
        for file in sorted(folder.glob("*.json")) if folder else ():
            where = f"{place(release)}/books/{file.name} of run {version.run_id}"
            try:
                content = atomic.parse_json(file.read_bytes())
                found = _checked(content, version.name, release, file.stem, where)
                books[file.stem] = atomic.digest_of(content)
            except formats.NewerFormatError:
                raise
            except (ValueError, KeyError, TypeError, OSError) as error:
                problems.append(f"{where} is left out: {error}")
                continue
            rows += found
    return Stored(rows, books, problems)


def keep(
    client: "MlflowClient", version: Version, release: str, stored: Stored, facts: dict
) -> str:
    """Store what a release is decided by; returns its digest.

    Args:
        facts: Plain data about the decision.
    """
    content = formats.OUTCOMES.mark | {
        "model": version.name,
        "release": release,
        "books": stored.books,
        "left_out": stored.problems,
        "episodes": [dataclasses.asdict(row) for row in stored.rows],
        **facts,
    }
    digest = atomic.digest_of(content)
    _write(client, version, place(release), f"{digest[:_SHOWN]}.json", content)
    return digest


def kept(client: "MlflowClient", version: Version, release: str, digest: str) -> dict:
    """What a release was decided by, with its episodes as rows.

    Raises:
        ValueError: If it is not what the ledger names.
        OSError: If it cannot be read.
    """
    file = f"{place(release)}/{digest[:_SHOWN]}.json"
    where = f"{file} of run {version.run_id}"
    with tempfile.TemporaryDirectory() as scratch:
        path = _download(client, version, file, scratch)
        if path is None:
            raise OSError(f"{where} is gone, by which the release of {version} was decided")
        content = atomic.parse_json(path.read_bytes(), where)
    if not isinstance(content, dict) or atomic.digest_of(content) != digest:
        raise ValueError(f"{where} is not what the ledger names ({digest[:_SHOWN]}); do not use it")
    content = formats.OUTCOMES.read(content, where)
    return content | {"episodes": rows_of(content["episodes"])}


def _checked(content: dict, model: str, release: str, book: str, where: str) -> list[EpisodeRow]:
    """The episodes of a server's file. Raises ValueError for one that nobody would believe."""
    if not isinstance(content, dict):
        raise ValueError("it is no map of facts")
    # First: who cannot sign must not say that it is of a newer rrf.
    _check_signature(content, model)
    facts = formats.OUTCOMES.read(content, where)
    about = (facts["model"], facts["release"], facts["book"])
    if about != (model, release, book):
        raise ValueError("it is of another model, release or book")
    rows = rows_of(facts["episodes"])
    if any(row.book != book for row in rows):
        raise ValueError("it has episodes of another book")
    return rows


def _check_signature(content: dict, model: str) -> None:
    cfg = trust.load()
    policy = cfg.policy(model)
    if policy is None:
        return
    public, signature = content.get("key"), content.get("signature")
    key = cfg.of(public)
    if key is None or key.revoked:
        raise ValueError(
            f"it is signed by a key that {trust.FILE} does not know or that was revoked"
            if public
            else f"it is not signed, and {trust.FILE} asks for it"
        )
    signed = {name: value for name, value in content.items() if name not in _SIGNATURE}
    if not keys.is_signed(SIGNED, signed, key.public, str(signature)):
        raise ValueError(f"it has a signature that {key.name}'s key did not make")
    allowed = policy.allowed.get(ACTION)
    if allowed is not None and key.name not in allowed:
        raise ValueError(f"it is signed by {key.name}, whose outcomes do not count ({trust.FILE})")


def _write(client: "MlflowClient", version: Version, folder: str, name: str, content: dict) -> None:
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / name
        atomic.write_json(file, content)
        try:
            client.log_artifact(version.run_id, str(file), folder)
        except MlflowException as error:
            raise OSError(f"{folder}/{name} cannot be stored: {error}") from error


def _download(client: "MlflowClient", version: Version, path: str, scratch: str) -> Path | None:
    """A file or folder of the version's run, copied to `scratch`; None if there is none."""
    from mlflow.exceptions import MlflowException

    parent = path.rpartition("/")[0]
    try:
        if all(each.path != path for each in client.list_artifacts(version.run_id, parent)):
            return None
    except MlflowException as error:
        raise OSError(f"{path} of run {version.run_id} cannot be read: {error}") from error
    return stored_files.download(client, version.run_id, path, scratch)
