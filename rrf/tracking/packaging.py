"""A checkpoint as an MLflow model: models-from-code, a tensor signature, explicit requirements, no
pickle.
"""

import importlib.metadata
import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rrf import workspace
from rrf.config import read_yaml
from rrf.data.schema import IMAGE_PREFIX, STATE
from rrf.runners.deployable import copy_deployable, is_control_checkpoint

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature

CHECKPOINT = "checkpoint"  # the name of the artifact, and of the directory it lies in
MODEL_TYPE = "policy"
RESET = "reset"
_REQUIRED = ("rrf", "mlflow", "torch", "tensordict", "numpy", "safetensors", "pydantic", "pyyaml")


def signature(checkpoint: str | Path) -> "ModelSignature":
    """What the policy in a checkpoint sees and answers, with the shapes it was trained on.

    A policy that sees images: observation.images.<camera> uint8 [-1, H, W, 3], observation.state
    float32 [-1, D] and instruction str [-1]; float32 [-1, chunk length, action dimension].
    A state-based one: each observation group it reads, float32 [-1, D], by its name; float32
    [-1, A], and where actions are chosen from a list their numbers, [-1, 1]. Its parameter `reset`
    says that new episodes begin; a policy without memory does not need it.
    """
    if is_control_checkpoint(checkpoint):
        return _control_signature(checkpoint)
    return _chunk_signature(checkpoint)


def _chunk_signature(checkpoint: str | Path) -> "ModelSignature":
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Schema, TensorSpec

    policy = read_yaml(Path(checkpoint) / "config.yaml").get("policy", {})
    try:
        cameras, image_size = policy["cameras"], policy["image_size"]
        state_dim, chunk = policy["state_dim"], (policy["chunk_length"], policy["action_dim"])
    except KeyError as error:
        raise ValueError(f"{checkpoint}/config.yaml has no policy.{error.args[0]}") from error
    height, width = image_size
    images = [
        TensorSpec(np.dtype("uint8"), (-1, height, width, 3), IMAGE_PREFIX + name)
        for name in cameras
    ]
    state = TensorSpec(np.dtype("float32"), (-1, state_dim), STATE)
    instruction = TensorSpec(np.dtype("str"), (-1,), "instruction")
    actions = TensorSpec(np.dtype("float32"), (-1, *chunk))
    return ModelSignature(inputs=Schema([*images, state, instruction]), outputs=Schema([actions]))


def _control_signature(checkpoint: str | Path) -> "ModelSignature":
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ParamSchema, ParamSpec, Schema, TensorSpec

    from rrf.runners.control_checkpoint import load_control_policy

    policy, interface = load_control_policy(checkpoint)
    number = np.dtype("float32")
    groups = [
        TensorSpec(number, (-1, interface.observation_dims[name]), name)
        for name in policy.actor.groups
    ]
    actions = TensorSpec(number, (-1, interface.num_actions))
    reset = ParamSpec(RESET, "boolean", False)
    return ModelSignature(Schema([*groups]), Schema([actions]), ParamSchema([reset]))


def requirements() -> list[str]:
    """The packages a loaded model needs, at the versions installed here."""
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
            f"{checkpoint}, its run.json names it"
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
    environment.setLevel(logging.ERROR)  # it misses pip, which nothing here needs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # hints to let MLflow guess the signature
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
