"""Use a registered policy on this machine: fetch its checkpoint, load it, or let MLflow load it.

`fetch` downloads only the checkpoint, checks it against its manifest and the registry, and moves it
into place atomically. `load_policy` runs nothing that came with the artifacts.

For `mlflow.pyfunc.load_model`, MLflow's model server, and everything else of MLflow that loads
models, this is also the "loader module" that `MLmodel` names: MLflow calls `_load_pyfunc`. So the
code that loads a policy is that of the installed package, and before a file of the checkpoint is
interpreted, the checkpoint is compared with its digest in the registry that MLflow uses.

MLflow itself reads `MLmodel` first, and imports whatever module and whatever code that file names.
Somebody who can write to the artifact store can therefore make MLflow run code before it comes
here. `load_policy` does not have this weakness.
"""

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rrf import atomic, workspace
from rrf.config import read_yaml
from rrf.mlflow_store import artifacts
from rrf.registry import origin, packaging
from rrf.registry.client import connect
from rrf.registry.packaging import PLACE, Fingerprint
from rrf.registry.versions import CHECKPOINT_DIGEST, Version, find
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.checkpoints.deployed import Deployed, deployed_class

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.pyfunc import PyFuncModel

_log = logging.getLogger(__name__)
DIGEST_VARIABLE = "RRF_CHECKPOINT_DIGEST"
"""The digest that a policy must have where no registry can be asked, e.g. in a container."""
_VERSION_FILE = "registered_model_meta"  # MLflow writes it when it downloads a registered version


def fetch(reference: str, out: str | Path, documents: Mapping[str, bytes] | None = None) -> Version:
    """Write the deployable checkpoint of a registered version to the directory `out`.

    Args:
        reference: Like "NAME@champion", "models:/NAME@champion" or "NAME/3".
        out: The directory; a checkpoint in it is replaced.
        documents: File name -> content, of what is put beside it (`rrf.registry.origin`).

    Raises:
        ValueError: If there is no such version, a file was changed, or `out` holds something other
            than a checkpoint.
        OSError: If the artifacts are gone or cannot be reached.
    """
    out = Path(out)
    _check_replaceable(out)
    client = connect()
    version = find(reference, client)
    with atomic.directory(out) as root:
        _copy(client, version, root)
        origin.write(root, version, documents or {})
    return version


def fetched(version: Version) -> Path:
    """The checkpoint of a version in this workspace, which is fetched. Raises as `fetch` does."""
    path = workspace.state() / "fetched" / f"{version.name}-{version.version}"
    fetch(f"{version.name}/{version.version}", path)
    return path


def check_files(client: "MlflowClient", version: Version) -> None:
    """Raise what `fetch` would raise for a version."""
    with tempfile.TemporaryDirectory() as scratch:
        _copy(client, version, Path(scratch))


def _copy(client: "MlflowClient", version: Version, root: Path) -> None:
    """Copy the checked checkpoint of a version into the empty directory `root`."""
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    fingerprint = packaging.version_fingerprint(client, version.name, version.version)
    uri = client.get_model_version_download_uri(version.name, version.version)
    _refuse_links(uri)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            downloaded = download_artifacts(
                artifact_uri=f"{uri}/{PLACE}",
                dst_path=scratch,
                tracking_uri=workspace.tracking_uri(),
            )
        except MlflowException as error:
            raise OSError(
                f"the artifacts of {version} at {uri} cannot be read: {error}"
                + artifacts.advice(workspace.tracking_uri())
            ) from error
        fingerprint.checked_copy(Path(downloaded), root)


def load_policy(
    reference: str | Path, device: str = "cpu", allow_withdrawn: bool = False
) -> "PyFuncModel":
    """The policy of a registered version, as an MLflow model with the method `predict`.

    It is used like the result of `mlflow.pyfunc.load_model`. But nothing that came with the
    artifact is run, and nothing is interpreted before its digest has been compared with the one in
    the registry.

    Args:
        reference: Like "NAME@champion", "models:/NAME@champion" or "NAME/3", or the folder of a
            checkpoint, e.g. one that was fetched.
        device: The device on which the policy runs.
        allow_withdrawn: Load a version although it was withdrawn or rolled back.

    Raises:
        RevokedError: If the version was withdrawn or rolled back, as far as the registry can be
            asked.
        ValueError: If there is no such version, or its files are not those that were registered.
        OSError: If the artifacts are gone or cannot be reached.
    """
    import mlflow.pyfunc
    from mlflow.models import Model

    with tempfile.TemporaryDirectory() as scratch:
        checkpoint, run_id = Path(reference), None
        if isinstance(reference, Path) or (checkpoint / atomic.MANIFEST).is_file():
            deployable_digest(checkpoint)  # checks the files before one of them is read
        else:
            checkpoint = Path(scratch) / "checkpoint"
            run_id = fetch(reference, checkpoint).run_id
        origin.check(checkpoint, allow_withdrawn, _log.warning)
        description = Model(run_id=run_id, signature=packaging.signature(checkpoint))
        model = load(checkpoint, device)
    mlflow.pyfunc.add_to_model(description, loader_module=packaging.LOADER)
    return mlflow.pyfunc.PyFuncModel(description, model)


class PolicyModel:
    """A policy with the interface that MLflow expects."""

    def __init__(self, policy: Deployed):
        self._policy = policy

    def predict(
        self, model_input: Mapping[str, np.ndarray], params: Mapping[str, bool] | None = None
    ) -> np.ndarray:
        """Greedy actions; see `rrf.runners.checkpoints.deployed.Deployed.answer`."""
        return self._policy.answer(model_input, params or {})


def load(checkpoint: Path, device: str = "cpu") -> PolicyModel:
    """The policy in a checkpoint that has been checked."""
    return PolicyModel(deployed_class(checkpoint)(checkpoint, device))


def _load_pyfunc(path: str) -> PolicyModel:
    """Load the policy of the model at `path`; MLflow calls this.

    Raises:
        ValueError: If the checkpoint is not the one that the registry knows, the registry does not
            know it, or its version must not be used any more.
    """
    import mlflow

    root = Path(path)
    version = read_yaml(root / _VERSION_FILE) if (root / _VERSION_FILE).is_file() else {}
    fingerprint = _fingerprint(root, version)
    if version.get("model_name") and DIGEST_VARIABLE not in os.environ:
        is_now = origin.Origin(
            str(version["model_name"]), str(version["model_version"]), mlflow.get_registry_uri()
        )
        origin.check_version(is_now, fingerprint.checkpoint, False, _log.warning)
    with tempfile.TemporaryDirectory() as scratch:
        fingerprint.checked_copy(atomic.inside(root, PLACE, path), Path(scratch))
        return load(Path(scratch))


def _fingerprint(root: Path, version: Mapping[str, Any]) -> Fingerprint:
    """What the registry knows the model at `root` by; `version` is what MLflow notes of the
    registered version that it is, if any."""
    import mlflow
    from mlflow.exceptions import MlflowException

    if digest := os.environ.get(DIGEST_VARIABLE):
        return Fingerprint(str(root), digest)
    client = mlflow.MlflowClient()
    try:
        if version.get("model_name"):
            return packaging.version_fingerprint(
                client, str(version["model_name"]), str(version["model_version"])
            )
        return packaging.logged_model_fingerprint(
            client, str(read_yaml(root / "MLmodel")["model_id"])
        )
    except (KeyError, MlflowException, ValueError) as error:
        raise ValueError(
            f"{root} cannot be checked with the registry at {mlflow.get_registry_uri()}: {error}; "
            "set MLFLOW_TRACKING_URI to the store of the model, or, where there is no store, set "
            f"{DIGEST_VARIABLE} to the version's tag {CHECKPOINT_DIGEST}"
        ) from error


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
        atomic.refuse_links(atomic.inside(folder, PLACE, uri))
