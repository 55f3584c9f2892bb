"""Repositories of the Hugging Face hub, datasets and models, each at one commit.

Every file is checked against the SHA-256 (large files) or git id (others) that the hub lists for
it.
"""

import contextlib
import hashlib
import io
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

from rrf.data.formats.source_path import HUB
from rrf.data.transport.download import RemoteFile

_TIMEOUT_S = 30
_RANGE_BYTES = 1 << 30  # links to large files expire: each range gets a new one
_BLOCK_BYTES = 1 << 18
_TRANSIENT = (408, 429)


class HubRepository:
    """A repository at one commit.

    Args:
        repo_id: OWNER/NAME, as in the repository's address.
        revision: Branch, tag or commit; the main branch by default.
        endpoint: Address of the hub, $HF_ENDPOINT or huggingface.co by default.

    Raises:
        ValueError: If there is no such repository or revision, or it may not be read.
        ConnectionError: If the hub cannot be reached.
    """

    kind: typing.ClassVar[typing.Literal["dataset", "model"]]

    def __init__(self, repo_id: str, revision: str | None = None, endpoint: str | None = None):
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()  # we draw our own
        self.url = f"{HUB}{repo_id}"
        self._repo_id = repo_id
        self._api = HfApi(endpoint)
        folder = "datasets/" if self.kind == "dataset" else ""
        self._page = f"{self._api.endpoint}/{folder}{repo_id}"
        with self._explained(revision):
            info = self._api.repo_info(
                repo_id, revision=revision, repo_type=self.kind, timeout=_TIMEOUT_S
            )
        if info.sha is None:
            raise ValueError(f"{self._page} does not say which commit it is; is it a hub?")
        self.revision: str | None = info.sha

    def files(self) -> list[RemoteFile]:
        """All files of the commit."""
        from huggingface_hub.hf_api import RepoFile

        with self._explained(self.revision):
            tree = self._api.list_repo_tree(
                self._repo_id, recursive=True, revision=self.revision, repo_type=self.kind
            )
            listed = [entry for entry in tree if isinstance(entry, RepoFile)]
        return [
            RemoteFile(file.path, file.size, file.lfs.sha256 if file.lfs else file.blob_id)
            for file in listed
        ]

    def fetch(self, file: RemoteFile, path: Path, on_bytes: Callable[[int], None]) -> None:
        """See `Remote.fetch`.

        Files are fetched in plain ranges, including those that the hub keeps in Xet. Xet's client
        starts every file again, and does not name what goes wrong.
        """
        import httpx

        path.touch()
        with self._explained(self.revision):
            arrived = -1
            while arrived < path.stat().st_size < file.size:
                arrived = path.stat().st_size
                try:
                    self._fetch_range(file, path, on_bytes)
                except httpx.TransportError:  # try again as long as something arrives
                    if path.stat().st_size == arrived:
                        raise
        if path.stat().st_size != file.size or listed_digest(path, file) != file.version:
            path.unlink()
            raise ValueError(
                f"{self._page}: {file.name} is not what the hub lists (its digest differs); run "
                "the same command again"
            )

    def _fetch_range(self, file: RemoteFile, path: Path, on_bytes: Callable[[int], None]) -> None:
        """Append the next bytes of a file to those at `path`."""
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

        url = hf_hub_url(
            self._repo_id,
            file.name,
            repo_type=self.kind,
            revision=self.revision,
            endpoint=self._api.endpoint,
        )
        with path.open("ab") as local:
            first = local.tell()
            last = min(first + _RANGE_BYTES, file.size) - 1
            headers = {"Range": f"bytes={first}-{last}", "Accept-Encoding": "identity"}
            with get_session().stream(
                "GET", url, headers=build_hf_headers(headers=headers), timeout=_TIMEOUT_S
            ) as answer:
                hf_raise_for_status(answer)
                if answer.status_code != 206:  # the hub ignores the range and sends the whole file
                    local.truncate(0)
                    on_bytes(-first)
                for block in answer.iter_bytes(_BLOCK_BYTES):
                    local.write(block)
                    local.flush()
                    on_bytes(len(block))

    def _explained(self, revision: str | None) -> contextlib.AbstractContextManager[None]:
        return explained(self._page, self._repo_id, revision, self.kind)


class HubDataset(HubRepository):
    """A dataset at one commit."""

    kind = "dataset"


class HubModel(HubRepository):
    """A model at one commit."""

    kind = "model"


@contextlib.contextmanager
def explained(
    page: str, repo_id: str, revision: str | None, kind: str = "dataset"
) -> Iterator[None]:
    """Turn the hub's errors within the block into ours, which say what to type.

    Args:
        page: Address of the repository.
        repo_id: OWNER/NAME.
        revision: Branch, tag or commit that is asked for.
        kind: What it holds, for messages.
    """
    import httpx
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError as error:
        raise ValueError(f"'{repo_id}' is not OWNER/NAME ({error})") from error
    except (errors.GatedRepoError, errors.DisabledRepoError) as error:
        raise ValueError(
            f"{page} is gated: accept its terms on that page, then type: hf auth login (or set "
            "HF_TOKEN)"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ValueError(
            f"there is no {kind} {page}, or it is private: check the name, or type: hf auth login"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ValueError(f"{page} has no revision '{revision}'; see {page}/tree/main") from error
    except errors.OfflineModeIsEnabled as error:
        raise ConnectionError(f"{page}: HF_HUB_OFFLINE is set; unset it") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status >= 500 or status in _TRANSIENT:
            raise ConnectionError(f"{page} answers {status}") from error
        raise ValueError(f"{page}: {_without_queries(error)}") from error
    except httpx.HTTPError as error:
        raise ConnectionError(f"{page} cannot be reached: {_without_queries(error)}") from error


def _without_queries(error: Exception) -> str:
    """The text of an error, without the signatures in the addresses of large files."""
    return re.sub(r"\?\S*", "", " ".join(str(error).split()))


def listed_digest(content: Path | bytes, file: RemoteFile) -> str:
    """What the hub would list for `file` if it held this content, a file's or the bytes given."""
    is_large = len(file.version) == 64
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    digest = hashlib.sha256() if is_large else hashlib.sha1(usedforsecurity=False)
    digest.update(b"" if is_large else f"blob {size}\0".encode())
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
