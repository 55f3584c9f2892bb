"""Load a registered policy into this process: checked first, and with the installed code only."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rrf.tracking import packaging, policy_model
from rrf.tracking.fetching import fetch

if TYPE_CHECKING:
    from mlflow.pyfunc import PyFuncModel


def load_policy(reference: str, device: str = "cpu") -> "PyFuncModel":
    """The policy of a registered version, as an MLflow model with the method `predict`.

    It is used like the result of `mlflow.pyfunc.load_model`. But nothing that came with the
    artifact is run, and nothing is interpreted before its digest has been compared with the one in
    the registry.

    Args:
        reference: Like "NAME@champion", "models:/NAME@champion" or "NAME/3".
        device: The device on which the policy runs.

    Raises:
        ValueError: If there is no such version, or its files are not those that were registered.
        OSError: If the artifacts are gone or cannot be reached.
    """
    import mlflow.pyfunc
    from mlflow.models import Model

    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Path(scratch) / "checkpoint"
        version = fetch(reference, checkpoint)
        description = Model(run_id=version.run_id, signature=packaging.signature(checkpoint))
        model = policy_model.load(checkpoint, device)
    mlflow.pyfunc.add_to_model(description, loader_module=packaging.LOADER)
    return mlflow.pyfunc.PyFuncModel(description, model)
