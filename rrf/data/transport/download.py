"""Copies of remote recordings. A copy is complete or does not exist, and an interrupted download
continues where it stopped.

    <out>.download/          locked while a download runs, removed when it has finished
        <digest>             a file of the remote, complete and checked; named after its content
        <digest>.part        the first bytes of such a file
    <out>/...                the copy, put together from these files once all are there
    <out>/download.json      where it came from: source, revision, and size and version of each file

What has arrived is never fetched again: not after the remote vanished, the disk was full or the
process was killed, and not when only some files of the remote have changed since.
"""

import concurrent.futures
import dataclasses
import errno
import fnmatch
import os
import shutil
import threading
import typing
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from rrf import atomic

RECORD = "download.json"
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib", ".dill")
_NUM_THREADS = 8


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file of a remote."""

    name: str  # relative to the remote, with "/"
    size: int  # bytes
    version: str  # changes with the content


class Remote(typing.Protocol):
    """Recordings in another place."""

    url: str
    """The source that the record of the copy names."""
    revision: str | None
    """The version of the whole remote, if it has one."""

    def files(self) -> list[RemoteFile]:
        """All files. Raises ValueError or OSError, naming the remote."""
        ...

    def fetch(self, file: RemoteFile, path: Path, on_bytes: Callable[[int], None]) -> None:
        """Write a file to `path`, continuing after the bytes that are already there, and check it.

        Args:
            file: The file.
            path: Where to write it. Only this remote puts files beside it.
            on_bytes: Called with the number of bytes that have just arrived.

        Raises:
            ValueError: If what arrived is not what the remote lists; `path` is then removed.
            OSError: If the remote cannot be reached or the disk is full; `path` keeps what has
                arrived.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a download."""

    bytes: int
    total_bytes: int
    files: int
    total_files: int


OnProgress = Callable[[Progress], None]


@dataclasses.dataclass(frozen=True)
class Download:
    """The result of a download."""

    out: Path
    revision: str | None
    files: int
    bytes: int
    fetched: int  # files that were not here before


def download(
    remote: Remote,
    out: str | Path,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    on_progress: OnProgress = lambda progress: None,
) -> Download:
    """Copy a remote to `out`, or bring the copy there up to date.

    Args:
        remote: What to copy.
        out: The directory of the copy.
        include: Patterns such as "data/*"; only files that match one are copied, all by default.
        exclude: Patterns of files that are left out.
        on_progress: Called from several threads as bytes arrive.

    Raises:
        ValueError: If no file is left to copy, for pickles (which are never loaded), for names that
            lead out of `out`, if `out` is something else, or if another process downloads to it.
        OSError: If the remote cannot be reached, which the message names, or if there is not enough
            space; the message then names the space needed.

    After any of these errors, `out` is unchanged and what has arrived is kept.
    """
    out = Path(out)
    record = _own_record(out, remote)
    files = _chosen(remote.files(), remote.url, include, exclude)
    total_bytes = sum(file.size for file in files)
    new = {
        "source": remote.url,
        "revision": remote.revision,
        "files": {entry.name: {"size": entry.size, "version": entry.version} for entry in files},
    }
    if new == record and not _changed(out, files):
        return Download(out, remote.revision, len(files), total_bytes, 0)
    folder = out.with_name(f"{out.name}.download")
    busy = f"another process is downloading to {out} at this moment (it holds {folder})"
    with atomic.resumable(folder, f"{busy}; wait for it to finish, or write elsewhere: --out"):
        _keep(out, folder)
        missing = [file for file in files if not _is_whole(_place(folder, file), file.size)]
        counter = _Counter(files, missing, on_progress)
        counter.add(_arrived_bytes(folder, missing))
        _check_space(folder, counter.remaining_bytes)
        try:
            _fetch_all(remote, missing, folder, counter)
        except OSError as error:
            raise _with_advice(error, folder) from error
        with atomic.directory(out) as tree:
            for file in files:
                _link(_place(folder, file), tree / file.name)
            atomic.write_json(tree / RECORD, new)
    return Download(out, remote.revision, len(files), total_bytes, len(missing))


def read_record(out: Path) -> dict | None:
    """The content of a copy's `download.json`; None if there is no copy."""
    path = out / RECORD
    if not path.is_file():
        return None
    try:
        record = atomic.parse_json(path.read_text())
        for name in record["files"]:
            if not atomic.is_plain_name(name):
                raise ValueError(f"the name {name!r} leads out of the copy")
        return {key: record[key] for key in ("source", "revision", "files")}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); remove {out} and download again") from error


def is_pickle(name: str) -> bool:
    """Whether a file of this name is, or packs, a Python pickle."""
    return any(suffix.lower() in _PICKLES for suffix in PurePosixPath(name).suffixes)


def _own_record(out: Path, remote: Remote) -> dict | None:
    """The record of an earlier download of the same remote; None if there is nothing yet."""
    record = read_record(out)
    if record is None:
        if not atomic.is_vacant(out):
            raise ValueError(
                f"{out} exists but is not a download; move it away, or write elsewhere: --out"
            )
    elif record["source"] != remote.url:
        raise ValueError(
            f"{out} was downloaded from {record['source']}, not from {remote.url}; "
            "write elsewhere: --out"
        )
    return record


def _chosen(
    files: list[RemoteFile], url: str, include: Sequence[str], exclude: Sequence[str]
) -> list[RemoteFile]:
    """The files to copy, sorted by name.

    A `download.json` of the remote is left out, because the copy gets its own.
    """
    chosen = []
    for file in sorted(files, key=lambda file: file.name):
        is_wanted = not include or any(fnmatch.fnmatch(file.name, pattern) for pattern in include)
        is_wanted &= not any(fnmatch.fnmatch(file.name, pattern) for pattern in exclude)
        if is_wanted and file.name != RECORD:
            chosen.append(file)
    if not chosen:
        raise ValueError(f"{url} has no files{' of that kind' if include or exclude else ''}")
    pickles = [file.name for file in chosen if is_pickle(file.name)]
    if pickles:
        raise ValueError(
            f"{url} holds pickles ({', '.join(pickles[:3])}{', ...' * (len(pickles) > 3)}), which "
            "run code when they are read and are never loaded; leave them out: "
            + " ".join(sorted({f"--exclude '*{PurePosixPath(name).suffix}'" for name in pickles}))
        )
    names = {file.name for file in chosen}
    for name in sorted(names):
        parts = name.split("/")
        if not atomic.is_plain_name(name):
            raise ValueError(
                f"{url}: the name {name!r} leads out of the copy; leave it out: --exclude"
            )
        above = [*names.intersection("/".join(parts[:end]) for end in range(1, len(parts)))]
        if above:
            raise ValueError(
                f"{url}: {above[0]!r} is a file, but also a directory with {name!r}; leave one "
                "out: --exclude"
            )
    return chosen


def _changed(out: Path, files: list[RemoteFile]) -> bool:
    """Whether files of the copy are missing or truncated."""
    return any(not _is_whole(out / file.name, file.size) for file in files)


def _is_whole(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _keep(out: Path, folder: Path) -> None:
    """Take over the files that the copy at `out` already holds."""
    record = read_record(out)
    for name, facts in record["files"].items() if record else ():
        place = _place(folder, RemoteFile(name, facts["size"], facts["version"]))
        if not place.exists() and _is_whole(out / name, facts["size"]):
            _link(out / name, place)


def _fetch_all(remote: Remote, files: list[RemoteFile], folder: Path, counter: "_Counter") -> None:
    """Fetch files in parallel. The first error stops all."""
    is_stopped = threading.Event()

    def on_bytes(num_bytes: int) -> None:
        if is_stopped.is_set():
            raise InterruptedError("the download was stopped")
        counter.add(num_bytes)

    def fetch(file: RemoteFile) -> None:
        place = _place(folder, file)
        on_bytes(0)
        remote.fetch(file, _part(place), on_bytes)
        assert _part(place).stat().st_size == file.size
        _part(place).rename(place)
        counter.add(0, 1)

    with concurrent.futures.ThreadPoolExecutor(_NUM_THREADS) as executor:
        futures = [executor.submit(fetch, file) for file in files]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
        except BaseException:
            is_stopped.set()
            executor.shutdown(wait=False, cancel_futures=True)
            raise


class _Counter:
    """Counts what has arrived, from any thread, and reports it."""

    def __init__(self, files: list[RemoteFile], missing: list[RemoteFile], on_progress: OnProgress):
        self._total_bytes, self._total_files = sum(file.size for file in files), len(files)
        self._bytes = self._total_bytes - sum(file.size for file in missing)
        self._files = len(files) - len(missing)
        self._on_progress, self._lock = on_progress, threading.Lock()

    @property
    def remaining_bytes(self) -> int:
        """The bytes that have not arrived yet."""
        return self._total_bytes - self._bytes

    def add(self, num_bytes: int, num_files: int = 0) -> None:
        with self._lock:
            self._bytes += num_bytes
            self._files += num_files
            self._on_progress(
                Progress(self._bytes, self._total_bytes, self._files, self._total_files)
            )


def _place(folder: Path, file: RemoteFile) -> Path:
    return folder / atomic.digest_of([file.name, file.size, file.version])[:32]


def _part(place: Path) -> Path:
    return place.with_name(f"{place.name}.part")


def _arrived_bytes(folder: Path, missing: list[RemoteFile]) -> int:
    """The number of bytes that have arrived of incomplete files.

    Incomplete files that have changed on the remote are removed.
    """
    wanted = {_part(_place(folder, file)) for file in missing}
    for part in folder.glob("*.part"):
        if part not in wanted:
            part.unlink()
    return sum(part.stat().st_size for part in wanted if part.is_file())


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            errno.ENOSPC,
            f"no space left to download {needed} bytes: {free} bytes free; nothing was fetched",
            str(folder.parent),
        )


def _with_advice(error: OSError, folder: Path) -> OSError:
    again = f"what has arrived is kept in {folder}; run the same command again to continue"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(folder).free
        return OSError(error.errno, f"no space left: {free} bytes free; {again}", str(folder))
    return type(error)(f"{error}; {again}")


def _link(path: Path, to: Path) -> None:
    """Give the file another name, or copy it if the file system has no hard links."""
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, to)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV):
            raise
        shutil.copyfile(path, to)
