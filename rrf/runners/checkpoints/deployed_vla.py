"""A deployed policy that sees images: numpy arrays in, greedy action chunks out.

Legend: B observations, H W height and width, D width of the state, C steps in a chunk, A width of
an action.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rrf.config import read_yaml
from rrf.data.dataset.history import Past
from rrf.data.schema import IMAGE_PREFIX, STATE, Observation
from rrf.policies.policy import ResumablePolicy
from rrf.runners.checkpoints.checkpoint import CONFIG
from rrf.runners.checkpoints.deployed import Signature, Tensor
from rrf.runners.checkpoints.placement import Placement, load_policy

_INSTRUCTION = "instruction"


class DeployedVLA:
    """The policy in a checkpoint."""

    has_memory = False

    def __init__(self, checkpoint: str | Path, device: str | Placement = "cpu"):
        """
        Raises:
            ValueError: Like `rrf.runners.checkpoints.checkpoint.load_policy`.
        """
        self._policy = load_policy(checkpoint, device)

    @staticmethod
    def signature(checkpoint: str | Path) -> Signature:
        """See `Deployed.signature`.

        The inputs are observation.images.<camera> uint8 [B, H, W, 3], observation.state float32
        [B, D] and instruction str [B]; with past frames, the views and states of
        `rrf.data.dataset.history`. The output is float32 [B, C, A].
        """
        policy = read_yaml(Path(checkpoint) / CONFIG).get("policy", {})
        try:
            cameras, (height, width) = policy["cameras"], policy["image_size"]
            past = Past.of(policy)
            state = Tensor("float32", (-1, policy["state_dim"] * (1 + past.states)), STATE)
            actions = Tensor("float32", (-1, policy["chunk_length"], policy["action_dim"]))
        except KeyError as error:
            raise ValueError(
                f"{checkpoint}/{CONFIG} has no field policy.{error.args[0]}"
            ) from error
        images = [
            Tensor("uint8", (-1, height, width, 3), IMAGE_PREFIX + name)
            for name in past.views(cameras)
        ]
        return Signature((*images, state, Tensor("str", (-1,), _INSTRUCTION)), actions, past=past)

    def answer(self, inputs: Mapping[str, np.ndarray], params: Mapping[str, bool]) -> np.ndarray:
        """Action chunks, float32 [B, C, A]; see `Deployed.answer`."""
        return self._policy.sample(_observation(inputs), greedy=True).actions  # type: ignore[operator]

    def resume(
        self, inputs: Mapping[str, np.ndarray], running: np.ndarray, num_frozen: int
    ) -> np.ndarray:
        """Action chunks, float32 [B, C, A]; see `Deployed.resume`."""
        if not isinstance(self._policy, ResumablePolicy):
            raise NotImplementedError(
                f"{type(self._policy).__name__} cannot continue a running chunk"
            )
        return self._policy.resume(_observation(inputs), running, num_frozen, greedy=True)


def _observation(inputs: Mapping[str, np.ndarray]) -> Observation:
    images = {
        name.removeprefix(IMAGE_PREFIX): np.asarray(value)
        for name, value in inputs.items()
        if name.startswith(IMAGE_PREFIX)
    }
    instruction = [str(sentence) for sentence in inputs[_INSTRUCTION]]
    return Observation(images, np.asarray(inputs[STATE]), instruction)
