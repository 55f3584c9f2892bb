"""What MLflow calls to load a policy (its "loader module"): for `mlflow.pyfunc.load_model`, for
MLflow's model server, and for everything else of MLflow that loads models.

`MLmodel` names this module, so the code that loads a policy is that of the installed package, and
no file of the artifact is run. Before a file of the checkpoint is interpreted, the checkpoint is
compared with its digest in the registry that MLflow uses.

MLflow itself reads `MLmodel` first, and imports whatever module and whatever code that file names.
Somebody who can write to the artifact store can therefore make MLflow run code before it comes
here. `rrf.load_policy` does not have this weakness.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rrf import atomic
from rrf.config import read_yaml
from rrf.runners.checkpoints.deployed import Deployed, deployed_class
from rrf.tracking import fingerprint
from rrf.tracking.fingerprint import Fingerprint
from rrf.tracking.packaging import PLACE

DIGEST_VARIABLE = "RRF_CHECKPOINT_DIGEST"
"""The digest that a policy must have where no registry can be asked, e.g. in a container."""
_VERSION_FILE = "registered_model_meta"  # MLflow writes it when it downloads a registered version


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
        ValueError: If the checkpoint is not the one that the registry knows, or the registry does
            not know it.
    """
    root = Path(path)
    known = _known(root)
    with tempfile.TemporaryDirectory() as scratch:
        known.checked_copy(atomic.inside(root, PLACE, path), Path(scratch))
        return load(Path(scratch))


def _known(root: Path) -> Fingerprint:
    """What the registry knows the model at `root` by."""
    import mlflow
    from mlflow.exceptions import MlflowException

    if digest := os.environ.get(DIGEST_VARIABLE):
        return Fingerprint(str(root), digest)
    client = mlflow.MlflowClient()
    version = read_yaml(root / _VERSION_FILE) if (root / _VERSION_FILE).is_file() else {}
    try:
        if version.get("model_name"):
            return fingerprint.of_version(
                client, str(version["model_name"]), str(version["model_version"])
            )
        return fingerprint.of_logged_model(client, str(read_yaml(root / "MLmodel")["model_id"]))
    except (KeyError, MlflowException, ValueError) as error:
        raise ValueError(
            f"{root} cannot be checked with the registry at {mlflow.get_registry_uri()}: {error}; "
            "set MLFLOW_TRACKING_URI to the store of the model, or, where there is no store, set "
            f"{DIGEST_VARIABLE} to the version's tag {fingerprint.CHECKPOINT_DIGEST}"
        ) from error
