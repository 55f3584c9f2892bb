"""A published dataset to the Hugging Face hub, with its card and its validation report.

All files go up in one commit, so a dataset is there whole or not at all. Files of an earlier
version that the new one lacks are removed in the same commit. Afterwards the hub is asked what it
holds, and every digest is compared. The tag v3.0 moves to the commit, because lerobot looks for a
tag that names the version of the format.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from rrf.data.dataset import layout
from rrf.data.pages.card import CARD, judgement, render_card
from rrf.data.remedies import again
from rrf.data.transport.hub import HubDataset, explained, listed_digest
from rrf.data.validation.summary import DatasetPlace, read_summary
from rrf.data.validation.validate import HTML_NAME

_GIT_ATTRIBUTES = ".gitattributes"  # the hub's own


@dataclasses.dataclass(frozen=True)
class Pushed:
    """What is on the hub now."""

    page: str  # its address
    revision: str  # the commit
    files: int
    bytes: int


def push(
    place: DatasetPlace,
    repo_id: str,
    is_public: bool = False,
    message: str | None = None,
) -> Pushed:
    """Upload a published dataset to the hub at huggingface.co, or at $HF_ENDPOINT.

    Args:
        place: The dataset; it must have passed validation as it is now.
        repo_id: OWNER/NAME of the dataset on the hub, which is created if there is none.
        is_public: Whether everybody may read a repository that is created now. One that exists
            keeps its visibility.
        message: Of the commit.

    Raises:
        ValueError: If the dataset is not published or was changed since, if nobody is logged in, or
            if the hub refuses.
        ConnectionError: If the hub cannot be reached, or holds something else than was sent.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.utils import disable_progress_bars

    report = judgement(place) if place.is_published else None
    if report is None or not report["passed"] or place.reports is None:
        raise ValueError(
            f"{place.root} is not a published dataset that passed validation as it is now; "
            f"{again(place.root, 'publish it by its name: rrf data stats NAME')}"
        )
    disable_progress_bars()
    api = HfApi()
    page = f"{api.endpoint}/datasets/{repo_id}"
    card = render_card(read_summary(place.root), report, HTML_NAME, repo_id)
    files: dict[str, Path | bytes] = dict(_files(place.root))
    files |= {CARD: card.encode(), HTML_NAME: place.reports / HTML_NAME}
    with _explained(page, repo_id):
        api.create_repo(repo_id, repo_type="dataset", private=not is_public, exist_ok=True)
        there = {file.name for file in HubDataset(repo_id, "main").files()}
        gone = sorted(there - set(files) - {_GIT_ATTRIBUTES})
        done = api.create_commit(
            repo_id,
            [
                *(CommitOperationAdd(name, content) for name, content in files.items()),
                *(CommitOperationDelete(name) for name in gone),
            ],
            commit_message=message or f"{place.name}, sha256 {report['digest'][:12]}",
            repo_type="dataset",
        )
        _check(files, HubDataset(repo_id, done.oid), page)
        _tag(api, repo_id, done.oid)
    sizes = (
        len(item) if isinstance(item, bytes) else item.stat().st_size for item in files.values()
    )
    return Pushed(page, done.oid, len(files), sum(sizes))


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield path.relative_to(root).as_posix(), path


def _check(files: dict[str, Path | bytes], hub: HubDataset, page: str) -> None:
    """Compare what the hub lists with what was sent."""
    listed = {file.name: file for file in hub.files()}
    for name, content in files.items():
        if name not in listed or listed_digest(content, listed[name]) != listed[name].version:
            raise ConnectionError(
                f"{page}: {name} is not what was sent; run the same command again"
            )


def _tag(api, repo_id: str, revision: str) -> None:
    """Let the tag of the format's version name the commit."""
    from huggingface_hub.errors import RevisionNotFoundError

    with contextlib.suppress(RevisionNotFoundError):
        api.delete_tag(repo_id, tag=layout.VERSION, repo_type="dataset")
    api.create_tag(repo_id, tag=layout.VERSION, revision=revision, repo_type="dataset")


@contextlib.contextmanager
def _explained(page: str, repo_id: str) -> Iterator[None]:
    """As `rrf.data.transport.hub.explained`, for one who writes."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        with explained(page, repo_id, layout.VERSION):
            yield
    except ValueError as error:
        cause = error.__cause__
        response = cause.response if isinstance(cause, HfHubHTTPError) else None
        if response is not None and response.status_code in (401, 403):
            raise ValueError(
                f"{page} may not be written by you; type `hf auth login` with a token that may "
                f"write to {repo_id.partition('/')[0]}, or set HF_TOKEN"
            ) from error
        raise
