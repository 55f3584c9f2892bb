"""Package a checkpoint as an MLflow model, and check the files of such a model.

The model has files that are data, a tensor signature, and explicit requirements; no code and no
pickle. `LOADER` loads it. The registry knows its files by two digests, which are tags:

checkpoint_digest   digest of the deployable files, on the version and on its logged model
                    (`rrf.runners.checkpoints.deployable`)
manifest_digest     SHA-256 of manifest.json, on the logged model; it covers the kind of policy, the
                    step and the lineage

Files are copied to a place where nobody else writes, and the copy is checked. So files that are
exchanged in the store at that moment cannot get past the check.
"""

import dataclasses
import importlib.metadata
import logging
import re
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rrf import atomic, workspace
from rrf.registry import changes
from rrf.registry.versions import CHECKPOINT_DIGEST
from rrf.runners.checkpoints.deployable import copy_deployable
from rrf.runners.checkpoints.deployed import deployed_class

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature

PLACE = "artifacts/checkpoint"  # of the checkpoint, in the model
LOADER = "rrf.registry.loading"  # the module that MLflow calls to load a policy
MODEL_TYPE = "policy"
MANIFEST_DIGEST = "manifest_digest"
_LOADER_TAG = "loader"
_OF_LOGGED_MODEL = re.compile(r"/models/(m-\w+)/artifacts")  # MLflow's database keeps no other link
_REQUIRED = ("rrf", "mlflow", "torch", "tensordict", "numpy", "safetensors", "pydantic", "pyyaml")


def signature(checkpoint: str | Path) -> "ModelSignature":
    """The inputs and outputs of the policy in a checkpoint, with the shapes it was trained on.

    See `signature` of the classes in `rrf.runners.checkpoints.deployed.DEPLOYED`.
    """
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ParamSchema, ParamSpec, Schema, TensorSpec

    policy = deployed_class(checkpoint).signature(checkpoint)
    inputs, outputs = (
        Schema(
            [TensorSpec(np.dtype(tensor.dtype), tensor.shape, tensor.name) for tensor in tensors]
        )
        for tensors in (policy.inputs, [policy.output])
    )
    params = [ParamSpec(name, "boolean", default) for name, default in policy.params.items()]
    return ModelSignature(inputs, outputs, ParamSchema([*params]) if params else None)  # type: ignore[arg-type]


def requirements() -> list[str]:
    """The packages that a loaded model needs, pinned to the versions installed here."""
    return [f"{name}=={importlib.metadata.version(name)}" for name in _REQUIRED]


def log_model(
    client: "MlflowClient", checkpoint: str | Path, run_id: str, digest: str, scratch: Path
) -> "LoggedModel":
    """Log the deployable part of `checkpoint` as a model of the run.

    A model with the same checkpoint digest that is already complete is reused.

    Raises:
        ValueError: If there is no such run.
    """
    from mlflow.exceptions import MlflowException

    try:
        experiment = client.get_run(run_id).info.experiment_id
    except MlflowException as error:
        raise ValueError(
            f"no MLflow run '{run_id}' at {workspace.shown_uri(workspace.tracking_uri())}; give "
            f"the run that trained {checkpoint}, which is named in its run.json"
        ) from error
    if complete := _complete(client, experiment, digest):
        return complete
    copy = scratch / "model" / PLACE
    copy.mkdir(parents=True)
    copy_deployable(checkpoint, copy)
    tags = {
        CHECKPOINT_DIGEST: digest,
        MANIFEST_DIGEST: atomic.sha256(copy / atomic.MANIFEST),
        _LOADER_TAG: LOADER,
    }
    logged = client.create_logged_model(
        experiment, "policy", run_id, tags=tags, model_type=MODEL_TYPE
    )
    _describe(checkpoint, scratch, run_id, logged.model_id)
    client.log_model_artifacts(logged.model_id, str(scratch / "model"))
    return client.finalize_logged_model(logged.model_id, "READY")


def _complete(client: "MlflowClient", experiment: str, digest: str) -> "LoggedModel | None":
    """A logged model of this checkpoint, for this loader, whose artifacts have all arrived.

    MLflow's filter cannot ask for the status: SQLite finds nothing, PostgreSQL refuses.
    """
    wanted = f"tags.{CHECKPOINT_DIGEST} = '{digest}' AND tags.{_LOADER_TAG} = '{LOADER}'"
    models = client.search_logged_models([experiment], wanted)
    return next((model for model in models if str(model.status) == "READY"), None)


def _describe(checkpoint: str | Path, scratch: Path, run_id: str, model_id: str) -> None:
    """Write what MLflow needs beside the checkpoint into `scratch/model`: MLmodel, requirements."""
    import mlflow.pyfunc
    from mlflow.models import Model

    environment = logging.getLogger("mlflow.utils.environment")
    level = environment.level
    environment.setLevel(logging.ERROR)  # silences a warning about pip, which is not needed here
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # advice to let MLflow infer a signature
            mlflow.pyfunc.save_model(
                str(scratch / "description"),
                loader_module=LOADER,
                signature=signature(checkpoint),
                pip_requirements=requirements(),
                mlflow_model=Model(run_id=run_id, model_id=model_id),
            )
    finally:
        environment.setLevel(level)
    shutil.copytree(scratch / "description", scratch / "model", dirs_exist_ok=True)


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What the files of a policy must be."""

    of: str
    """Name of the policy in messages."""
    checkpoint: str
    manifest: str | None = None
    """None if it is not known."""

    def checked_copy(self, checkpoint: Path, out: Path) -> None:
        """Copy a deployable checkpoint into the empty directory `out` and check the copy.

        No file is interpreted before its digest has been compared, except the manifest, which lists
        the digests.

        Raises:
            ValueError: If the files are not those that the registry knows.
        """
        copied = copy_deployable(checkpoint, out)
        if copied != self.checkpoint:
            raise ValueError(
                f"{self.of} was registered as checkpoint {self.checkpoint[:12]}, but its artifacts "
                f"are {copied[:12]}; they were replaced; do not use them"
            )
        if self.manifest and atomic.sha256(out / atomic.MANIFEST) != self.manifest:
            raise ValueError(
                f"{self.of}: the lineage, the step or the kind of policy in {atomic.MANIFEST} was "
                "changed after the model was registered; do not use it"
            )


def logged_model_in(source: str) -> str | None:
    """The id of the logged model from which a version was made, by the source of the version."""
    match = _OF_LOGGED_MODEL.search(source)
    return match[1] if match else None


def version_fingerprint(client: "MlflowClient", name: str, version: str) -> Fingerprint:
    """The fingerprint of a registered version.

    Raises:
        ValueError: If the registry holds no digest for it, or two different ones.
    """
    from mlflow.exceptions import MlflowException

    what = f"{name} version {version}"
    try:
        registered = client.get_model_version(name, version)
        model_id = logged_model_in(registered.source or "")
        logged = logged_model_fingerprint(client, model_id) if model_id else None
    except MlflowException as error:
        raise ValueError(f"{what} cannot be read from the registry: {error}") from error
    digest = registered.tags.get(CHECKPOINT_DIGEST)
    if not digest:
        raise ValueError(
            f"{what} has no tag {CHECKPOINT_DIGEST}, so it was not registered by rrf; register its "
            "checkpoint with: rrf models register CHECKPOINT NAME"
        )
    changes.check_digest(client, name, version, digest)
    if logged and logged.checkpoint != digest:
        raise ValueError(
            f"the registry contradicts itself: {what} is checkpoint {digest[:12]}, but its "
            f"{logged.of} is {logged.checkpoint[:12]}; somebody edited the tag {CHECKPOINT_DIGEST}"
        )
    return Fingerprint(what, digest, logged.manifest if logged else None)


def logged_model_fingerprint(client: "MlflowClient", model_id: str) -> Fingerprint:
    """The fingerprint of a logged model.

    Raises:
        ValueError: If it lacks one of the digests.
        MlflowException: If there is no such model.
    """
    tags = client.get_logged_model(model_id).tags
    for name in (CHECKPOINT_DIGEST, MANIFEST_DIGEST):
        if name not in tags:
            raise ValueError(f"logged model {model_id} has no tag {name}; rrf did not make it")
    return Fingerprint(f"logged model {model_id}", tags[CHECKPOINT_DIGEST], tags[MANIFEST_DIGEST])
