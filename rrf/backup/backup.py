"""Write and restore a backup: what is copied in which order, and where it goes back to.

While others go on working, what refers is copied before what it refers to:

    what this workspace has seen of the ledgers -> Prefect's database -> MLflow's database
    -> the files of .rrf/ (links to them, at one moment) -> artifacts that are elsewhere

So everything that a copied database names is in the copy; what came later than it is merely more.
Not in a backup is what is elsewhere by design: code and configs (git), recordings and datasets (DVC
remotes), and what can be had again (`snapshot.LEFT_OUT`).
"""

import contextlib
import dataclasses
import datetime
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import rrf
from rrf import atomic, workspace
from rrf.backup import archive, databases, snapshot
from rrf.backup.databases import SQLITE, Database
from rrf.mlflow_store import artifacts

_STATE, _ARTIFACTS = "state", "artifacts"
_DUMPS = {SQLITE: "sqlite", databases.POSTGRESQL: "pgdump"}
_MEMORY = "ledgers"


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a backup holds."""

    created: str
    """When it was begun, ISO 8601 in UTC."""
    databases: dict[str, str | None]
    """`mlflow` and `prefect` -> sqlite or postgresql; None if there was none here."""
    num_files: int
    size: int
    """Of the file, in bytes."""


def write(file: Path, with_login: bool = False) -> Contents:
    """Copy the state of the workspace into a new file, which appears when it is whole.

    Args:
        file: What to write.
        with_login: Also the login of the workspace's servers, a secret.

    Raises:
        ValueError: If `file` exists or lies in `.rrf/`, another backup is being made, or a part of
            the state is elsewhere.
        OSError: If something cannot be read or written.
    """
    file, state = file.absolute(), workspace.state()
    if file.exists():
        raise ValueError(f"{file} exists; name another file, nothing is overwritten")
    if file.is_relative_to(state.absolute()):
        raise ValueError(f"{file} lies in {state}, which is to be copied; name a file elsewhere")
    if not state.is_dir():
        raise ValueError(f"there is no {state}: nothing to back up in {workspace.home()}")
    busy = f"another backup of {workspace.home()} is being made; wait for it"
    with atomic.resumable(state / "backup", busy) as scratch, atomic.file(file) as part:
        for leftover in scratch.iterdir():
            atomic.remove(leftover)
        writer = archive.Writer(part)
        try:
            return _write(writer, scratch, with_login)
        finally:
            writer.abandon()


def _write(writer: archive.Writer, scratch: Path, with_login: bool) -> Contents:
    state = workspace.state()
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    memory = scratch / _MEMORY
    if (state / _MEMORY).is_dir():
        shutil.copytree(state / _MEMORY, memory)
    known = {"prefect": databases.prefect(), "mlflow": databases.mlflow()}
    kinds: dict[str, str | None] = {}
    for name, database in known.items():
        is_here = database is not None and not (database.kind == SQLITE and database.is_empty())
        kinds[name] = database.kind if database and is_here else None
        if database and is_here:
            dumped = scratch / _dump(name, database)
            database.dump(dumped)
            writer.add(f"databases/{dumped.name}", dumped)
            dumped.unlink()
    names = set(snapshot.LEFT_OUT) - ({snapshot.LOGIN} if with_login else set())
    skipped = {state / name for name in {*names, _MEMORY}}
    books = databases.books(state)
    copied = [*known.values(), *books]
    skipped |= {path for database in copied if database for path in database.files}
    snapshot.link(state, scratch / _STATE, skipped)
    for book in books:
        book.dump(scratch / _STATE / book.path.relative_to(state.absolute()))
    if memory.is_dir():
        memory.rename(scratch / _STATE / _MEMORY)
    for path in _files(scratch / _STATE):
        writer.add(path.relative_to(scratch).as_posix(), path)
    if (root := _artifacts_elsewhere(known["mlflow"])) is not None:
        for path in _downloaded(root, scratch / _ARTIFACTS):
            writer.add(path.relative_to(scratch).as_posix(), path)
            path.unlink()
    facts = {"created": created, "rrf": rrf.__version__, "databases": kinds, "store": _store_mark()}
    size = writer.close(**facts)
    return Contents(created, kinds, len(writer.files), size)


def check(file: Path) -> Contents:
    """Read a backup to its end and compare every file with its manifest; writes nothing.

    Raises:
        ValueError: If it is not whole.
    """
    return _contents(archive.unpack(file, None), file)


def restore(file: Path) -> Contents:
    """Make the state of this workspace, which has none yet, what a backup holds.

    Everything is unpacked beside `.rrf/` and checked before anything is put in its place.

    Raises:
        ValueError: If the backup is not whole, there is a state here already, or the store that the
            environment names is of another kind.
        OSError: If something cannot be read or written.
    """
    state = workspace.state()
    if not atomic.is_vacant(state):
        raise ValueError(
            f"there is a state in {state} already; a backup is restored into a workspace without "
            f"one: rrf services down; mv {state} {state}-before"
        )
    with atomic.directory(state) as tmp:
        unpacked = tmp / "backup"
        unpacked.mkdir()
        manifest = archive.unpack(file, unpacked)
        targets = _targets(manifest, file)
        root = _artifacts_elsewhere(databases.mlflow())
        if (unpacked / _ARTIFACTS).is_dir() and root is None and targets["mlflow"]:
            # They were elsewhere, and belong into .rrf now.
            (unpacked / _ARTIFACTS).rename(tmp / "mlartifacts")
        if (unpacked / _STATE).is_dir():
            for path in (unpacked / _STATE).iterdir():
                path.rename(tmp / path.name)
        _rename_memory(tmp / _MEMORY, manifest.get("store"))
        if root is not None and targets["mlflow"]:
            inside = tmp / "mlartifacts"  # they were in .rrf
            for source in (unpacked / _ARTIFACTS, inside):
                if source.is_dir():
                    artifacts.repository(root).log_artifacts(str(source))
                    shutil.rmtree(source)
        for name, database in targets.items():
            if database is None:
                continue
            dumped = unpacked / "databases" / _dump(name, database)
            if database.kind != SQLITE:
                database.restore(dumped)
            elif database.path.is_relative_to(state.absolute()):
                place = tmp / database.path.relative_to(state.absolute())
                place.parent.mkdir(parents=True, exist_ok=True)
                dumped.rename(place)
            else:
                databases.put(database, dumped)
        shutil.rmtree(unpacked)
    return _contents(manifest, file)


def _targets(manifest: dict, file: Path) -> dict[str, Database | None]:
    """The databases to fill, which are empty.

    Raises:
        ValueError: If one is of another kind than the one that was copied, or not empty.
    """
    targets: dict[str, Database | None] = {}
    for name, database in (("prefect", databases.prefect()), ("mlflow", databases.mlflow())):
        kind = manifest.get("databases", {}).get(name)
        targets[name] = None
        if kind is None:
            continue
        variable = {"mlflow": "MLFLOW_TRACKING_URI", "prefect": databases.PREFECT_URL}[name]
        if database is None or database.kind != kind:
            there = "a server" if database is None else database.kind
            raise ValueError(
                f"{file} holds a database of {kind} of {name}, but {variable} names {there} here; "
                f"{_way_to(kind, variable)}"
            )
        if not database.is_empty():
            raise ValueError(
                f"{database.title} at {database.shown} is not empty; a backup is restored into an "
                f"empty one: move it away, or name another in {variable}"
            )
        targets[name] = database
    root = _artifacts_elsewhere(databases.mlflow())
    if root is not None and targets["mlflow"] and artifacts.repository(root).list_artifacts():
        raise ValueError(
            f"there are artifacts at {workspace.shown_uri(root)} already; a backup is restored "
            f"into an empty place: name another in {artifacts.ROOT_VARIABLE}"
        )
    return targets


def _way_to(kind: str, variable: str) -> str:
    if kind == SQLITE:
        return f"unset {variable}"
    return f"make an empty database and name it: export {variable}=postgresql://USER@HOST/NAME"


def _contents(manifest: dict, file: Path) -> Contents:
    try:
        return Contents(
            created=str(manifest["created"]),
            databases=dict(manifest["databases"]),
            num_files=len(manifest["files"]),
            size=file.stat().st_size,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the {atomic.MANIFEST} of {file} lacks {error}") from error


def _dump(name: str, database: Database) -> str:
    try:
        return f"{name}.{_DUMPS[database.kind]}"
    except KeyError:
        raise ValueError(
            f"{database.title} is of {database.kind}, which rrf cannot back up; use its own tools"
        ) from None


def _artifacts_elsewhere(database: Database | None) -> str | None:
    """Where MLflow's artifacts are, if that is not in `.rrf/` and no server's affair."""
    if database is None:
        return None
    root = artifacts.root(workspace.tracking_uri())
    parts = urlparse(root)
    if parts.scheme == "file":
        folder = Path(url2pathname(parts.path))
        if folder.is_relative_to(workspace.state().absolute()):
            return None
    return root


def _downloaded(root: str, folder: Path) -> Iterator[Path]:
    """Every artifact below `root`, one after the other, in `folder`."""
    repository = artifacts.repository(root)

    def below(place: str | None) -> Iterator[str]:
        for entry in repository.list_artifacts(place):
            if entry.is_dir:
                yield from below(entry.path)
            else:
                yield entry.path

    folder.mkdir()
    for name in below(None):
        with contextlib.suppress(FileNotFoundError):  # removed since it was listed
            yield Path(repository.download_artifacts(name, str(folder)))


def _rename_memory(folder: Path, store_mark: str | None) -> None:
    """What a workspace has seen of a ledger is kept by the address of the store, which may differ
    here.
    """
    for path in folder.glob(f"*-{store_mark}") if store_mark else ():
        path.rename(path.with_name(path.name.removesuffix(str(store_mark)) + _store_mark()))


def _store_mark() -> str:
    return hashlib.sha256(workspace.tracking_uri().encode()).hexdigest()[:16]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
