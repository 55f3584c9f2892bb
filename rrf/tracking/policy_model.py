"""The MLflow model of a policy (models-from-code): MLflow stores this file and runs it on loading.

The weights are read with safetensors from the checkpoint directory that is stored beside it;
nothing is unpickled. Inputs and outputs are those of `rrf.tracking.packaging.signature`.
"""

from typing import Any

import mlflow.models
import mlflow.pyfunc


class PolicyModel(mlflow.pyfunc.PythonModel):
    """Returns the greedy actions of the policy in the checkpoint for given observations."""

    # MLflow asks for type hints to infer a signature; this model is logged with a signature.
    _skip_type_hint_validation = True

    policy: Any

    def load_context(self, context):
        from rrf.runners.checkpoints.deployed import deployed_class

        checkpoint = context.artifacts["checkpoint"]
        self.policy = deployed_class(checkpoint)(checkpoint)

    def predict(self, context, model_input, params=None):
        return self.policy.answer(model_input, params or {})


mlflow.models.set_model(PolicyModel())
