"""Files of a dataset that lie on this machine or in object storage.

A reader opens `open_dataset_root(path) / "meta/info.json"` and need not know which. Files in object
storage are read in ranges, as far as they are asked for; nothing is copied whole.

Endpoint and credentials are those of the usual variables (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...
or AWS_PROFILE); FSSPEC_S3_ANON=true reads a public bucket without any.
"""

import contextlib
import dataclasses
import io
import os
import typing
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from rrf import atomic

S3 = "s3://"
_CREDENTIALS = (
    "export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; "
    "for a public bucket: export FSSPEC_S3_ANON=true"
)


@dataclasses.dataclass(frozen=True)
class Content:
    """What a remote file held when it was listed."""

    size: int  # bytes
    etag: str  # changes with the content


@dataclasses.dataclass(frozen=True)
class RemotePath:
    """A place in an S3 bucket, with the part of pathlib's interface that is needed.

    It is only a name: it holds no connection, and may be sent to other processes.
    """

    url: str
    """s3://bucket/prefix"""

    def __post_init__(self):
        bucket, _, key = self.url.removeprefix(S3).partition("/")
        if not self.url.startswith(S3) or not bucket or ".." in key.split("/"):
            raise ValueError(f"'{self.url}' is not s3://bucket/prefix")

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, relative: str | PurePosixPath) -> "RemotePath":
        return RemotePath(f"{self.url.rstrip('/')}/{relative}")

    def __lt__(self, other: "RemotePath") -> bool:
        return self.url < other.url

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def stem(self) -> str:
        return self._pure.stem

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def parent(self) -> "RemotePath":
        return RemotePath(f"{S3}{self._pure.parent}")

    def is_file(self) -> bool:
        """Whether there is an object of this name."""
        return self._type() == "file"

    def is_dir(self) -> bool:
        """Whether there are objects below this name."""
        return self._type() == "directory"

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """The files below that match, sorted; "**" is not supported."""
        for name in _list(self):
            if len(PurePosixPath(name).parts) == len(PurePosixPath(pattern).parts) and (
                PurePosixPath(name).match(pattern)
            ):
                yield self / name

    def rglob(self, pattern: str) -> Iterator["RemotePath"]:
        """The files anywhere below whose end matches, sorted."""
        for name in _list(self):
            if PurePosixPath(name).match(pattern):
                yield self / name

    def open(
        self, mode: str = "rb", block_bytes: int = 1 << 20, num_blocks: int = 32
    ) -> typing.BinaryIO:
        """A seekable file that is read in ranges.

        Args:
            mode: Only "rb".
            block_bytes: Size of the ranges asked for, bytes.
            num_blocks: How many of them are kept, the least recently used goes first; 0 asks for
                exactly what is read and keeps nothing.

        Raises:
            FileNotFoundError: If there is no such object.
            ConnectionError: If it cannot be reached, now or in a later read, or was replaced since.
        """
        if mode != "rb":
            raise ValueError(f"{self}: mode is {mode!r}, only 'rb' is supported")
        with explained(self.url):
            file = _filesystem().open(
                self.url,
                "rb",
                block_size=block_bytes,
                cache_type="blockcache" if num_blocks else "none",
                cache_options={"maxblocks": num_blocks} if num_blocks else {},
            )
        return typing.cast(typing.BinaryIO, _RemoteFile(file, self.url))

    def read_bytes(self) -> bytes:
        """The whole content, by one request."""
        with explained(self.url):
            return _filesystem().cat_file(self.url)

    def read_text(self, encoding: str = "utf-8") -> str:
        """The whole content as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        """Replace the object; it has all of the content, or what it had.

        Raises like `read_bytes`.
        """
        with explained(self.url, "written"):
            _filesystem().pipe_file(self.url, content)

    def create(self, content: bytes) -> bool:
        """Write an object unless there is one, which is left as it is; whether it was written.

        Raises like `read_bytes`.
        """
        from botocore.exceptions import ClientError

        with explained(self.url, "written"):
            try:
                _filesystem().pipe_file(self.url, content, mode="create")
            except (OSError, ClientError) as error:
                if not _was_there(error):
                    raise
                return False
        return True

    def content(self) -> Content:
        """What the object holds at this moment."""
        with explained(self.url):
            return _content(_filesystem().info(self.url))

    def has_md5_etag(self) -> bool:
        """Whether the etag is the MD5 of the content: not if it was uploaded in parts, or encrypted
        with keys of the user's.
        """
        bucket, _, key = self.url.removeprefix(S3).partition("/")
        with explained(self.url):
            head = _filesystem().call_s3("head_object", Bucket=bucket, Key=key)
        is_ours = "SSECustomerAlgorithm" in head
        is_plain = head.get("ServerSideEncryption") in (None, "AES256") and not is_ours
        return is_plain and "-" not in head["ETag"]

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.url.removeprefix(S3))

    def _type(self) -> str | None:
        with explained(self.url):
            try:
                return _filesystem().info(self.url)["type"]
            except FileNotFoundError:
                return None


class _RemoteFile(io.RawIOBase):
    """An open remote file whose errors name it."""

    def __init__(self, file, url: str):
        self._file, self._url = file, url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        with explained(self._url):
            return self._file.read(-1 if size is None else size)

    def readinto(self, buffer) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(position, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def open_dataset_root(path: str | Path | RemotePath) -> Path | RemotePath:
    """The directory of a dataset: s3://bucket/prefix, or a path on this machine.

    Nothing is read. Raises ValueError for what only looks like s3://.
    """
    if isinstance(path, RemotePath):
        return path
    return RemotePath(str(path).rstrip("/")) if str(path).startswith(S3) else Path(path)


def version_of(path: Path | RemotePath) -> str:
    """Changes when the file's content does: its size, and its time or etag."""
    if isinstance(path, RemotePath):
        content = path.content()
        return f"{content.size}:{content.etag}"
    stat = path.stat()
    return f"{stat.st_size}:{stat.st_mtime_ns}"


def versions_below(root: Path | RemotePath) -> dict[str, str]:
    """`version_of` of every file below `root`, by its path relative to it, sorted."""
    if isinstance(root, RemotePath):
        return {name: f"{entry.size}:{entry.etag}" for name, entry in _list(root).items()}
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): version_of(path) for path in files}


def content_digest(root: str | Path | RemotePath, without: Collection[str] = ()) -> str:
    """Hex SHA-256 over the names and contents of all files below `root` but those named in
    `without`; of remote files size and etag stand for the content.
    """
    root = open_dataset_root(root)
    if isinstance(root, RemotePath):
        contents = versions_below(root)
    else:
        files = [path for path in root.rglob("*") if path.is_file()]
        contents = {path.relative_to(root).as_posix(): atomic.sha256(path) for path in files}
    return atomic.digest_of(
        {name: digest for name, digest in contents.items() if name not in without}
    )


def contents_below(root: RemotePath) -> dict[str, Content]:
    """What the objects below `root` hold, by name relative to it, sorted.

    Raises:
        ValueError: If there is no such bucket, or nothing in it begins with `root`.
    """
    entries = _list(root)
    if not entries:
        raise ValueError(f"there is nothing below {root}/; look with: aws s3 ls {root}")
    return entries


@contextlib.contextmanager
def explained(url: str, done: str = "read") -> Iterator[None]:
    """Turn what can go wrong in the block into errors that say what to do, naming `url`; it could
    not be `done`."""
    from aiohttp import ClientError
    from botocore.exceptions import BotoCoreError, NoCredentialsError, PartialCredentialsError

    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {url} (or no such bucket)") from error
    except PermissionError as error:
        raise PermissionError(f"{url} may not be {done} ({error}); {_CREDENTIALS}") from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise ValueError(f"{url}: {error}; {_CREDENTIALS}") from error
    except (BotoCoreError, ClientError, OSError, TimeoutError) as error:
        raise ConnectionError(f"{url} cannot be {done}: {error}") from error


def _was_there(error: BaseException | None) -> bool:
    """Whether a request that asked for no object of that name was refused for that."""
    while error is not None:
        response = getattr(error, "response", None) or {}
        if response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412:
            return True
        if isinstance(error, FileExistsError):
            return True
        error = error.__cause__
    return False


def _list(root: RemotePath) -> dict[str, Content]:
    """The files below, by name relative to `root`. Empty objects that stand for directories are not
    files.
    """
    prefix = f"{root.url.removeprefix(S3).rstrip('/')}/"
    with explained(root.url):
        entries = _filesystem().find(root.url, detail=True)
    assert isinstance(entries, dict)
    return {
        name.removeprefix(prefix): _content(info)
        for name, info in sorted(entries.items())
        if name.startswith(prefix) and info["type"] == "file" and not info["Key"].endswith("/")
    }


def _content(info: dict) -> Content:
    return Content(info["size"], info["ETag"].strip('"'))


def _filesystem() -> typing.Any:
    """The connection of this process (fsspec keeps one for each); listings are not kept."""
    import s3fs

    return s3fs.S3FileSystem(
        endpoint_url=os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"),
        use_listings_cache=False,
        config_kwargs={"retries": {"mode": "standard", "max_attempts": 2}},
    )
