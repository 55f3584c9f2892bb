"""A deployed policy that sees images: numpy arrays in, greedy action chunks out.

Legend: B observations, H W height and width, D width of the state, C steps in a chunk, A width of
an action, T feature vectors of width F.
"""

import dataclasses
import typing
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

_INSTRUCTION, _FEATURES, _AGE = "instruction", "features", "feature_age_s"


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

        Of a policy in two parts, System 2 takes images and instruction and answers with features
        [B, T, F]. System 1 takes features, their age in s float64 [B], the state and maybe a
        camera, and answers with actions.
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
        text = Tensor("str", (-1,), _INSTRUCTION)
        systems = {}
        if tokens := policy.get("feature_tokens"):
            shape = (-1, tokens, policy["feature_width"])
            features = Tensor(policy["feature_dtype"], shape, _FEATURES)
            view = policy.get("fast_view")
            camera = IMAGE_PREFIX + (view["camera"] or cameras[0]) if view else None
            fast = [image for image in images if image.name == camera]
            given = (features, Tensor("float64", (-1,), _AGE), state, *fast)
            systems = {
                2: Signature((*images, text), dataclasses.replace(features, name=None)),
                1: Signature(given, actions, past=past),
            }
        return Signature((*images, state, text), actions, past=past, systems=systems)

    def answer(self, inputs: Mapping[str, np.ndarray], params: Mapping[str, bool]) -> np.ndarray:
        """Action chunks, float32 [B, C, A]; see `Deployed.answer`. Features for the inputs of
        System 2 alone."""
        policy: typing.Any = self._policy
        observation = _observation(inputs)
        if _FEATURES in inputs:
            given = (inputs[_FEATURES], inputs[_AGE], observation)
            return policy.act(*given, greedy=True).actions
        if STATE not in inputs:
            return policy.see(observation)
        return policy.sample(observation, greedy=True).actions

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
    num_rows = len(next(iter(inputs.values())))
    instruction = [str(sentence) for sentence in inputs.get(_INSTRUCTION, [""] * num_rows)]
    return Observation(images, np.asarray(inputs.get(STATE, np.zeros((num_rows, 0)))), instruction)
