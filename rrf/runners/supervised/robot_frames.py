"""Frames of several robots for one policy: each robot's datasets, brought to what the policy sees.

The rows of a batch carry their robot's tag. Images are named as the policy's and have the size that
its backbone sees; images that a robot lacks are black, and the policy hides them. States and
actions are padded with zeros, and what is padded counts as padding in the loss.

Legend: B batch, K steps in an action chunk, D state dimension, A action dimension.
"""

import itertools
from collections.abc import Mapping

import numpy as np
import torch

from rrf.data.dataset.mixture import Mixture
from rrf.data.dataset.reader import LeRobotReader
from rrf.data.schema import Batch, Observation, Schema, Vector
from rrf.networks.vlm.images import fitted
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg


class RobotFrames:
    """The frames of one robot as the policy sees them; a `rrf.data.dataset.mixture.Reader`."""

    state_history = image_history = 0
    history_stride = 1

    def __init__(self, frames: Mixture, tag: str, policy: VLMPolicyCfg):
        self._frames, self._tag, self._policy = frames, tag, policy
        self._shown = dict(zip(policy.cameras, policy.shown_by(tag), strict=True))
        self.root, self.chunk_length = tag, policy.chunk_length

    @property
    def schema(self) -> Schema:
        """What the policy sees. Its fps is 0, as each robot has its own."""
        policy = self._policy
        return Schema(
            fps=0,
            image_size=policy.image_size,
            cameras=tuple(policy.cameras),
            state=Vector(tuple(f"state{d}" for d in range(policy.state_dim)), "the robot's"),
            action=Vector(tuple(f"action{d}" for d in range(policy.action_dim)), "the robot's"),
            has_reward=False,
            has_success=False,
        )

    @property
    def num_frames(self) -> int:
        return self._frames.num_frames

    @property
    def num_episodes(self) -> int:
        return self._frames.num_episodes

    @property
    def instructions(self) -> list[str]:
        return self._frames.instructions

    @property
    def weights(self) -> np.ndarray:
        return self._frames.weights

    @property
    def identity(self) -> tuple[str, str]:
        return self._frames.identity

    def vectors(self, key: str) -> np.ndarray:
        raise NotImplementedError("each robot has statistics of its own")

    def instructions_of(self, indices: np.ndarray) -> list[str]:
        return self._frames.instructions_of(indices)

    def steps_since_start(self, indices: np.ndarray) -> np.ndarray:
        return self._frames.steps_since_start(indices)

    def chunks(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """State [B, D], action [B, K, A] and padding [B, K, A], padded."""
        return self._padded(*self._frames.chunks(indices))

    def batch(self, indices: np.ndarray) -> Batch:
        batch = self._frames.batch(indices)
        seen = batch.observation
        state, action, is_pad = self._padded(seen.state, batch.action, batch.is_pad)
        images = {name: self._image(seen, camera) for name, camera in self._shown.items()}
        observation = Observation(images, state, seen.instruction, robots=[self._tag] * len(seen))
        return Batch(observation, action, is_pad)

    def _image(self, seen: Observation, camera: str | None) -> np.ndarray:
        rule = self._policy.backbone.image.replace(
            keeps=1.0, jpeg_quality=None
        )  # the backbone does that
        if camera is None:
            return np.zeros((len(seen), *rule.size, 3), np.uint8)
        images_b3hw = fitted(torch.from_numpy(seen.images[camera]), rule)
        return np.ascontiguousarray(images_b3hw.permute(0, 2, 3, 1).numpy())

    def _padded(
        self, state: np.ndarray, action: np.ndarray, is_pad: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        missing = self._policy.action_dim - action.shape[2]
        is_pad_bka = np.repeat(is_pad[:, :, None], action.shape[2], axis=2)
        wide = [(0, 0), (0, 0), (0, missing)]
        return (
            np.pad(state, [(0, 0), (0, self._policy.state_dim - state.shape[1])]),
            np.pad(action, wide),
            np.pad(is_pad_bka, wide, constant_values=True),
        )


def robot_split(
    cfg: SupervisedRunnerCfg, opened: Mapping[str, tuple[LeRobotReader, LeRobotReader | None]]
) -> tuple[Mixture, Mixture | None, dict, VLMPolicyCfg, dict[str, range]]:
    """What the fields of a `Split` are for the robots of a supervised config.

    Args:
        cfg: The config; it has `robots`, and a policy that can be trained on several.
        opened: The readers of the training episodes and of the held-out episodes of each dataset.

    Raises:
        ValueError: If datasets of one robot differ, if a robot's config differs from its dataset,
            or if a dataset has no statistics.
    """
    assert isinstance(cfg.policy, VLMPolicyCfg)
    training, validation, norm_stats = {}, {}, {}
    for tag in dict.fromkeys(cfg.robots[name] for name in cfg.datasets):
        names = [name for name in cfg.datasets if cfg.robots[name] == tag]
        readers = [opened[name][0] for name in names]
        try:
            training[tag] = Mixture(readers, [cfg.datasets[name] for name in names])
        except ValueError as error:
            raise ValueError(
                f"the datasets of robot '{tag}' differ, so give them different tags in robots, or "
                f"align them: {error}"
            ) from error
        if held_out := [reader for name in names if (reader := opened[name][1]) is not None]:
            validation[tag] = Mixture(held_out)
        is_published = len(readers) == 1 and cfg.episodes_per_instruction is None
        norm_stats[tag] = (readers[0] if is_published else training[tag]).norm_stats
    policy = cfg.policy.fitted_to_robots({tag: robot.schema for tag, robot in training.items()})

    def mixed(parts: Mapping[str, Mixture]) -> Mixture:
        return Mixture([RobotFrames(frames, tag, policy) for tag, frames in parts.items()])

    starts = [0, *itertools.accumulate(robot.num_frames for robot in validation.values())]
    ranges = [range(*ends) for ends in itertools.pairwise(starts)]
    held = mixed(validation) if validation else None
    return mixed(training), held, norm_stats, policy, dict(zip(validation, ranges, strict=True))
