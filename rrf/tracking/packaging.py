"""Package a checkpoint as an MLflow model: files that are data, a tensor signature, and explicit
requirements. The model contains no code and no pickle; `LOADER` loads it.
"""

import importlib.metadata
import logging
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rrf import atomic, workspace
from rrf.runners.checkpoints.deployable import copy_deployable
from rrf.runners.checkpoints.deployed import deployed_class
from rrf.tracking.fingerprint import CHECKPOINT_DIGEST, MANIFEST_DIGEST

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature

PLACE = "artifacts/checkpoint"  # of the checkpoint, in the model
LOADER = "rrf.tracking.policy_model"  # the module that MLflow calls to load a policy
MODEL_TYPE = "policy"
_REQUIRED = ("rrf", "mlflow", "torch", "tensordict", "numpy", "safetensors", "pydantic", "pyyaml")


def signature(checkpoint: str | Path) -> "ModelSignature":
    """The inputs and outputs of the policy in a checkpoint, with the shapes it was trained on.

    See `signature` of the classes in `rrf.runners.checkpoints.deployed.DEPLOYED`.
    """
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ParamSchema, ParamSpec, Schema, TensorSpec

    found = deployed_class(checkpoint).signature(checkpoint)
    inputs, outputs = (
        Schema([TensorSpec(np.dtype(one.dtype), one.shape, one.name) for one in tensors])
        for tensors in (found.inputs, [found.output])
    )
    params = [ParamSpec(name, "boolean", default) for name, default in found.params.items()]
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
    if known := _complete(client, experiment, digest):
        return known
    copy = scratch / "model" / PLACE
    copy.mkdir(parents=True)
    copy_deployable(checkpoint, copy)
    tags = {
        CHECKPOINT_DIGEST: digest,
        MANIFEST_DIGEST: atomic.sha256(copy / atomic.MANIFEST),
    }
    logged = client.create_logged_model(
        experiment, "policy", run_id, tags=tags, model_type=MODEL_TYPE
    )
    _describe(checkpoint, scratch, run_id, logged.model_id)
    client.log_model_artifacts(logged.model_id, str(scratch / "model"))
    return client.finalize_logged_model(logged.model_id, "READY")


def _complete(client: "MlflowClient", experiment: str, digest: str) -> "LoggedModel | None":
    """A logged model of this checkpoint whose artifacts have all arrived.

    MLflow's filter cannot ask for the status: SQLite finds nothing, PostgreSQL refuses.
    """
    wanted = f"tags.{CHECKPOINT_DIGEST} = '{digest}'"
    found = client.search_logged_models([experiment], wanted)
    return next((model for model in found if str(model.status) == "READY"), None)


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
