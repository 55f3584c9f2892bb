"""The files below an `s3://` prefix.

A file is fetched in ranges of one version of its object (If-Match). Its size is checked. Its MD5 is
checked, too, if the etag is the MD5 of the content. It is not if the object was uploaded in parts
or is encrypted with the user's own keys.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from rrf.data.files import RemotePath, contents_below
from rrf.data.transport.download import RemoteFile

_RANGE_BYTES = 8 << 20


class S3Prefix:
    """Everything below s3://bucket/prefix."""

    revision: str | None = None

    def __init__(self, url: str):
        self._root = RemotePath(url.rstrip("/"))
        self.url = str(self._root)

    def files(self) -> list[RemoteFile]:
        """All objects. Raises ValueError if there are none."""
        contents = contents_below(self._root)
        return [RemoteFile(name, entry.size, entry.etag) for name, entry in contents.items()]

    def fetch(self, file: RemoteFile, path: Path, on_bytes: Callable[[int], None]) -> None:
        """See `Remote.fetch`."""
        remote = RemotePath(f"{self.url}/{file.name}")
        with path.open("ab") as local, remote.open(num_blocks=0) as source:
            if remote.content().etag != file.version:  # from here on all ranges are of one version
                raise ValueError(
                    f"{remote} was replaced since it was listed; run the same command again"
                )
            source.seek(local.tell())
            while data := source.read(max(0, min(_RANGE_BYTES, file.size - local.tell()))):
                local.write(data)
                local.flush()
                on_bytes(len(data))
        if path.stat().st_size != file.size or not _has_content(path, remote, file.version):
            path.unlink()
            raise ValueError(
                f"{remote}: what arrived is not what is listed (size or MD5 differ); run the same "
                "command again"
            )


def _has_content(path: Path, remote: RemotePath, etag: str) -> bool:
    """Whether the file's MD5 is the etag, or the etag is not an MD5."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    return digest == etag or not remote.has_md5_etag()
