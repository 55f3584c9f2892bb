"""Fetch a registered policy to this machine.

It is downloaded, checked against its manifest and its registry entry, and then moved into place
atomically. Only the checkpoint is downloaded, none of the files that MLflow keeps beside it.
"""

import re
import tempfile
from pathlib import Path

from rrf import atomic, workspace
from rrf.tracking import artifacts, fingerprint, packaging, store
from rrf.tracking.versions import Version, find

_REFERENCE = re.compile(r"[^/@]+(@[^/@]+|/[0-9]+)")


def fetch(reference: str, out: str | Path) -> Version:
    """Write the deployable checkpoint of a registered version to the directory `out`.

    `reference` is like "NAME@champion", "models:/NAME@champion" or "NAME/3".

    Raises:
        ValueError: If there is no such version, a file was changed, or `out` holds something other
            than a checkpoint.
        OSError: If the artifacts are gone or cannot be reached.
    """
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    out = Path(out)
    _check_replaceable(out)
    client = store.connect()
    version = find(reference, client)
    known = fingerprint.of_version(client, version.name, version.version)
    uri = client.get_model_version_download_uri(version.name, version.version)
    _refuse_links(uri)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            downloaded = download_artifacts(
                artifact_uri=f"{uri}/{packaging.PLACE}",
                dst_path=scratch,
                tracking_uri=workspace.tracking_uri(),
            )
        except MlflowException as error:
            raise OSError(
                f"the artifacts of {reference} at {uri} cannot be read: {error}"
                + artifacts.advice(workspace.tracking_uri())
            ) from error
        with atomic.directory(out) as root:
            known.checked_copy(Path(downloaded), root)
    return version


def is_reference(text: str) -> bool:
    """Whether `text` names a registered version ("NAME@alias", "NAME/3", "models:/...").

    Without "models:/", an existing path is not a reference.
    """
    if text.startswith("models:/"):
        return True
    return bool(_REFERENCE.fullmatch(text)) and not Path(text).exists()


def _check_replaceable(out: Path) -> None:
    if out.is_file() or (
        out.is_dir() and any(out.iterdir()) and not (out / atomic.MANIFEST).is_file()
    ):
        raise ValueError(f"'{out}' exists and is not a checkpoint; give another --out")


def _refuse_links(uri: str) -> None:
    """Raise ValueError if artifacts on this machine contain a symbolic link.

    MLflow follows symbolic links when it copies artifacts.
    """
    if folder := artifacts.local_folder(uri, workspace.tracking_uri()):
        atomic.refuse_links(atomic.inside(folder, packaging.PLACE, uri))
