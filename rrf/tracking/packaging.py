"""Package a checkpoint as an MLflow model: models-from-code, a tensor signature, explicit
requirements, no pickle.
"""

import importlib.metadata
import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rrf import workspace
from rrf.runners.checkpoints.deployable import copy_deployable
from rrf.runners.checkpoints.deployed import deployed_class

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature

CHECKPOINT = "checkpoint"  # the name of the artifact and of its directory
MODEL_TYPE = "policy"
RESET = "reset"  # imported by models registered up to November 2026
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
            f"no MLflow run '{run_id}' at {workspace.tracking_uri()}; give the run that trained "
            f"{checkpoint}, which is named in its run.json"
        ) from error
    complete = f"tags.checkpoint_digest = '{digest}' AND status = 'READY'"
    if known := client.search_logged_models([experiment], complete, max_results=1):
        return known[0]
    (scratch / CHECKPOINT).mkdir()
    copy_deployable(checkpoint, scratch / CHECKPOINT)
    logged = client.create_logged_model(
        experiment, "policy", run_id, tags={"checkpoint_digest": digest}, model_type=MODEL_TYPE
    )
    _save(checkpoint, scratch, run_id, logged.model_id)
    client.log_model_artifacts(logged.model_id, str(scratch / "model"))
    return client.finalize_logged_model(logged.model_id, "READY")


def _save(checkpoint: str | Path, scratch: Path, run_id: str, model_id: str) -> None:
    import mlflow.pyfunc
    from mlflow.models import Model

    environment = logging.getLogger("mlflow.utils.environment")
    level = environment.level
    environment.setLevel(logging.ERROR)  # silences a warning about pip, which is not needed here
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # advice to let MLflow infer a signature
            mlflow.pyfunc.save_model(
                str(scratch / "model"),
                python_model=str(Path(__file__).parent / "policy_model.py"),
                artifacts={CHECKPOINT: str(scratch / CHECKPOINT)},
                signature=signature(checkpoint),
                pip_requirements=requirements(),
                mlflow_model=Model(run_id=run_id, model_id=model_id),
            )
    finally:
        environment.setLevel(level)
