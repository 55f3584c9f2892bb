"""The MLflow model of a policy (models-from-code): logged as it is, run when the model is loaded.

Weights come from the checkpoint directory logged beside it, by safetensors; nothing is unpickled.
Inputs and outputs are those of `rrf.tracking.packaging.signature`.
"""

from typing import Any

import mlflow.models
import mlflow.pyfunc
import numpy as np


class PolicyModel(mlflow.pyfunc.PythonModel):
    """Answers observations with the greedy action chunks of the policy in the checkpoint."""

    # MLflow would like type hints to guess a signature from; this model is logged with one.
    _skip_type_hint_validation = True

    policy: Any

    def load_context(self, context):
        from rrf.runners.checkpoint import load_policy

        self.policy = load_policy(context.artifacts["checkpoint"])

    def predict(self, context, model_input, params=None):
        from rrf.data.schema import IMAGE_PREFIX, STATE, Observation

        images = {
            name.removeprefix(IMAGE_PREFIX): np.asarray(value)
            for name, value in model_input.items()
            if name.startswith(IMAGE_PREFIX)
        }
        instruction = [str(sentence) for sentence in model_input["instruction"]]
        observation = Observation(images, np.asarray(model_input[STATE]), instruction)
        return self.policy.sample(observation, greedy=True).actions


mlflow.models.set_model(PolicyModel())
