"""The MLflow model of a policy (models-from-code): logged as it is, run when the model is loaded.

Weights come from the checkpoint directory logged beside it, by safetensors; nothing is unpickled.
Inputs and outputs are those of `rrf.tracking.packaging.signature`.
"""

from typing import Any

import mlflow.models
import mlflow.pyfunc


class PolicyModel(mlflow.pyfunc.PythonModel):
    """Answers observations with the greedy actions of the policy in the checkpoint."""

    # MLflow would like type hints to guess a signature from; this model is logged with one.
    _skip_type_hint_validation = True

    policy: Any

    def load_context(self, context):
        from rrf.runners.checkpoints.deployed import deployed_class

        checkpoint = context.artifacts["checkpoint"]
        self.policy = deployed_class(checkpoint)(checkpoint)

    def predict(self, context, model_input, params=None):
        return self.policy.answer(model_input, params or {})


mlflow.models.set_model(PolicyModel())
