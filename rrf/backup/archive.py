"""The file of a backup: a tar whose last member says which files it holds, and their SHA-256.

The manifest is the last member, so a file that was cut off has none. Files are written one by one
and never held in memory; reading unpacks only plain files with plain names.
"""

import hashlib
import io
import json
import os
import tarfile
import typing
from collections.abc import Iterator
from pathlib import Path

from rrf import atomic, formats

_BLOCK = 1 << 20
_LONGEST_MANIFEST = 1 << 30


class Writer:
    """Adds files to an archive. `close` writes the manifest."""

    def __init__(self, path: Path):
        path.touch(mode=0o600)  # it may hold the login, and Prefect's secrets
        self._tar = tarfile.open(path, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 (see close)
        self.files: dict[str, str] = {}
        """Name -> SHA-256 of what was added."""
        self._path = path

    def add(self, name: str, path: Path) -> None:
        """Add a file as it is now; what is appended to it meanwhile is left out.

        Raises:
            OSError: If it cannot be read, or becomes shorter meanwhile.
        """
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = (
                facts.st_size,
                facts.st_mtime,
                facts.st_mode & 0o777,
            )
            hashing = _Hashing(file)
            try:
                self._tar.addfile(member, typing.cast(typing.IO[bytes], hashing))
            except OSError as error:
                if error.errno is not None:
                    raise
                raise OSError(f"{path} was cut off while it was copied; try again") from error
        self.files[name] = hashing.digest

    def close(self, **facts) -> int:
        """Write the manifest with `facts` (plain data), and the end of the archive.

        Returns:
            The size of the archive in bytes.
        """
        manifest = {**formats.BACKUP.mark, **facts, "files": self.files}
        content = json.dumps(manifest, indent=1, allow_nan=False).encode()
        member = tarfile.TarInfo(atomic.MANIFEST)
        member.size = len(content)
        self._tar.addfile(member, io.BytesIO(content))
        self._tar.close()
        return self._path.stat().st_size

    def abandon(self) -> None:
        """Close the file, if it is not closed yet; without a manifest it is none."""
        if self._tar.fileobj is not None:
            self._tar.fileobj.close()


def unpack(path: Path, target: Path | None) -> dict:
    """Check every file of an archive, and write them below the folder `target` unless it is None.

    Returns:
        The manifest.

    Raises:
        ValueError: If it is no backup, is cut off, or a file differs from the manifest; what was
            written until then is not to be used.
    """
    found: dict[str, str] = {}
    manifest: dict | None = None
    try:
        with tarfile.open(path, "r:") as tar:
            for member, file in _members(tar, path):
                if manifest is not None:
                    raise ValueError(f"{path} goes on after its {atomic.MANIFEST}; do not use it")
                if member.name == atomic.MANIFEST:
                    manifest = _manifest(file.read(_LONGEST_MANIFEST), path)
                    continue
                if member.name in found:
                    raise ValueError(f"{path} holds {member.name} twice; do not use it")
                place = target and atomic.inside(target, member.name, str(path))
                found[member.name] = _copy(file, place, member)
    except tarfile.TarError as error:
        raise ValueError(f"{path} is no whole backup ({error}); take another copy") from error
    if manifest is None:
        raise ValueError(f"{path} has no {atomic.MANIFEST}: no backup, or cut off; take another")
    _compare(found, manifest["files"], path)
    return manifest


def _members(
    tar: tarfile.TarFile, path: Path
) -> Iterator[tuple[tarfile.TarInfo, typing.IO[bytes]]]:
    for member in tar:
        file = tar.extractfile(member) if member.isreg() else None
        if file is None or not atomic.is_plain_name(member.name):
            raise ValueError(
                f"{path} holds {member.name!r}, which is not the plain name of a plain file; rrf "
                "has not written it, do not use it"
            )
        yield member, file


def _manifest(content: bytes, path: Path) -> dict:
    try:
        data = atomic.parse_json(content)
        if not isinstance(data, dict) or not isinstance(data.get("files"), dict):
            raise ValueError("it lists no files")
    except ValueError as error:
        raise ValueError(f"the {atomic.MANIFEST} of {path} is damaged ({error})") from error
    return formats.BACKUP.read(data, f"{path}:{atomic.MANIFEST}")


def _copy(file: typing.IO[bytes], place: Path | None, member: tarfile.TarInfo) -> str:
    """Read a member to its end; returns its SHA-256."""
    hashing = _Hashing(file)
    if place is None:
        while hashing.read(_BLOCK):
            pass
        return hashing.digest
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch(mode=0o600, exist_ok=False)
    with place.open("wb") as target:
        while block := hashing.read(_BLOCK):
            target.write(block)
    place.chmod(member.mode & 0o777)
    os.utime(place, (member.mtime, member.mtime))
    return hashing.digest


def _compare(found: dict[str, str], listed: dict[str, str], path: Path) -> None:
    for name in sorted({*found, *listed}):
        if name not in found:
            raise ValueError(f"{path} lacks {name}, which its {atomic.MANIFEST} lists")
        if found[name] != listed.get(name):
            why = "was changed" if name in listed else f"is not in its {atomic.MANIFEST}"
            raise ValueError(f"{path}: {name} {why}; do not use this file, take another backup")


class _Hashing:
    """A file that is read, and the SHA-256 of what was read of it."""

    def __init__(self, file: typing.IO[bytes]):
        self._file, self._hash = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._hash.update(block)
        return block

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
