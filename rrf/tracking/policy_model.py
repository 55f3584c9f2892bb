"""The MLflow model of a policy (models-from-code): logged as it is, run when the model is loaded.

Weights come from the checkpoint directory logged beside it, by safetensors; nothing is unpickled.
Inputs and outputs are those of `rrf.tracking.packaging.signature`.
"""

from typing import Any

import mlflow.models
import mlflow.pyfunc
import numpy as np


class PolicyModel(mlflow.pyfunc.PythonModel):
    """Answers observations with the greedy actions of the policy in the checkpoint."""

    # MLflow would like type hints to guess a signature from; this model is logged with one.
    _skip_type_hint_validation = True

    policy: Any

    def load_context(self, context):
        from rrf.runners.deployable import is_control_checkpoint

        checkpoint = context.artifacts["checkpoint"]
        if is_control_checkpoint(checkpoint):
            from rrf.runners.deployed_control import DeployedControl

            self.policy = DeployedControl(checkpoint)
            self._answer = self._control
        else:
            from rrf.runners.checkpoint import load_policy

            self.policy = load_policy(checkpoint)
            self._answer = self._chunk

    def predict(self, context, model_input, params=None):
        return self._answer(model_input, params or {})

    def _chunk(self, model_input, params):
        from rrf.data.schema import IMAGE_PREFIX, STATE, Observation

        images = {
            name.removeprefix(IMAGE_PREFIX): np.asarray(value)
            for name, value in model_input.items()
            if name.startswith(IMAGE_PREFIX)
        }
        instruction = [str(sentence) for sentence in model_input["instruction"]]
        observation = Observation(images, np.asarray(model_input[STATE]), instruction)
        return self.policy.sample(observation, greedy=True).actions

    def _control(self, model_input, params):
        from rrf.tracking.packaging import RESET

        groups = {name: np.asarray(value) for name, value in model_input.items()}
        return self.policy.act(groups, reset=bool(params.get(RESET, False)))


mlflow.models.set_model(PolicyModel())
