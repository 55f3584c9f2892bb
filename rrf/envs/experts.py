"""Meta-World's scripted experts, one per task, asked once per action."""

import warnings

import numpy as np


class Expert:
    """The scripted expert of one task. Make a new one for each episode; some remember what they
    did.
    """

    def __init__(self, task: str):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from metaworld.policies import ENV_POLICY_MAP
        self._policy = ENV_POLICY_MAP[task]()

    def action(self, observation: np.ndarray) -> np.ndarray:
        """float32 [4] in [-1, 1] for float64 [39] (`MetaWorldVecEnv.expert_observation`)."""
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # the experts warn of every command they leave to the clipping below
            action = self._policy.get_action(observation)
        return np.clip(np.asarray(action, np.float64), -1.0, 1.0).astype(np.float32)
