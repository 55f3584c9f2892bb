"""Brings the recordings of a dataset to this machine."""

from pathlib import Path

from rrf.data.formats.source_path import HUB, hub_commit, is_remote, local_path
from rrf.data.transport.download import OnProgress, download, read_record
from rrf.data.transport.hub import HubDataset
from rrf.data.transport.s3 import S3Prefix


def fetch(path: str, on_progress: OnProgress = lambda progress: None) -> Path:
    """Bring the recordings at `path`, a dataset's `source.path`, to this machine; returns their
    path.

    Local recordings stay where they are. Remote recordings are copied, or their copy is brought up
    to date. A commit of the hub never changes, so its copy is used without asking the hub.

    Raises ValueError and OSError as `download` does.
    """
    out = local_path(path)
    if not is_remote(path):
        return out
    if not path.startswith(HUB):
        return download(S3Prefix(path), out, on_progress=on_progress).out
    repo_id, commit = hub_commit(path)
    if (read_record(out) or {}).get("revision") != commit:
        download(HubDataset(repo_id, commit), out, on_progress=on_progress)
    return out
