"""The artifacts of a store, by addresses in which there is no machine and no folder of one.

MLflow writes the address of every artifact into its database. `rrf-artifacts:/EXPERIMENT/...` says
only where an artifact lies below a root. Whoever reads it finds the root by the store:

a server            its proxy for artifacts (`mlflow-artifacts:`)
a SQLite file       the folder mlartifacts beside the file
another database    .rrf/mlartifacts of the workspace
any database        $RRF_ARTIFACT_ROOT, if it is set: a folder or e.g. s3://BUCKET/PREFIX

So a store can be moved and copied together with its folder, and it can be read through a server at
the same time. MLflow finds `repository` by an entry point in pyproject.toml.
"""

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlparse
from urllib.request import url2pathname

from rrf import workspace

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

SCHEME = "rrf-artifacts"
ROOT_VARIABLE = "RRF_ARTIFACT_ROOT"
_PROXY = "mlflow-artifacts"
SQLITE = "sqlite:///"


def address(folder: str = "") -> str:
    """The address to write into a database for a folder below the root."""
    return f"{SCHEME}:/{quote(folder)}"


def root(tracking_uri: str) -> str:
    """Where the artifacts of a database lie, as a URI that MLflow knows."""
    if named := os.environ.get(ROOT_VARIABLE):
        return named if "://" in named else Path(named).absolute().as_uri()
    if tracking_uri.startswith(SQLITE):
        return Path(tracking_uri.removeprefix(SQLITE)).absolute().parent.as_uri() + "/mlartifacts"
    return (workspace.state() / "mlartifacts").as_uri()


def resolve(uri: str, tracking_uri: str) -> str:
    """An address in a store, as one that says where to read; other addresses stay as they are.

    Raises:
        ValueError: If the address leads out of the root.
    """
    parts = urlparse(uri)
    if parts.scheme != SCHEME:
        return uri
    if ".." in PurePosixPath(unquote(parts.path)).parts:
        raise ValueError(f"{uri} leads out of the folder of artifacts; the store was tampered with")
    if tracking_uri.startswith(workspace.SERVERS):
        return f"{_PROXY}:{parts.path}"
    return root(tracking_uri).rstrip("/") + parts.path.rstrip("/")


def advice(tracking_uri: str) -> str:
    """What to add to the message about artifacts that are not where they should be."""
    if tracking_uri.startswith((SQLITE, *workspace.SERVERS)) or os.environ.get(ROOT_VARIABLE):
        return ""
    return (
        f"; if another workspace wrote them, name a folder or a bucket that both use in "
        f"{ROOT_VARIABLE}, or use the database through an MLflow server"
    )


def local_folder(uri: str, tracking_uri: str) -> Path | None:
    """The folder of an address if it is on this machine."""
    parts = urlparse(resolve(uri, tracking_uri))
    return Path(url2pathname(parts.path)) if parts.scheme in ("", "file") else None


def repository(
    artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None
) -> "ArtifactRepository":
    """What MLflow reads and writes the artifacts at an address with."""
    import mlflow
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    if tracking_uri is None and mlflow.is_tracking_uri_set():
        tracking_uri = mlflow.get_tracking_uri()
    tracking_uri = tracking_uri or workspace.tracking_uri()
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # A server whose bucket could sign addresses sends clients there, where only it may reach it.
    for direction in ("UPLOAD", "DOWNLOAD"):
        os.environ.setdefault(f"MLFLOW_ENABLE_PROXY_MULTIPART_{direction}", "false")
    return get_artifact_repository(resolve(artifact_uri, tracking_uri), tracking_uri, registry_uri)
