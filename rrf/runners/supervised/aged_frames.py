"""Frames for a policy whose System 2 looked some steps ago (`rrf.policies.vla.psi0`).

Each row's age is drawn anew, evenly from 0 to the policy's limit, and ends at the episode's first
frame, as in episodes that are played. It depends only on the seed and on which frames are read
together, so that a resumed training, other processes and a validation draw the same ones.
"""

import dataclasses

import numpy as np

from rrf.data.dataset.history import seen_at
from rrf.data.schema import Batch
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.psi0_configs import Psi0PolicyCfg
from rrf.runners.supervised.frames import Frames, Split, WrappedFrames


class AgedFrames(WrappedFrames):
    """See the module.

    Args:
        frames: The frames.
        cameras: What System 2 sees.
        max_steps: The highest age, in steps.
        seed: Of the ages.
        min_steps: The lowest age, but for the beginning of an episode.
    """

    def __init__(
        self, frames: Frames, cameras: list[str], max_steps: int, seed: int, min_steps: int = 0
    ):
        super().__init__(frames)
        self._cameras, self._seed = cameras, seed
        self._range = (min_steps, max_steps)

    def batch(self, indices: np.ndarray) -> Batch:
        batch = self._frames.batch(indices)
        rng = np.random.default_rng([self._seed, *indices])
        drawn = rng.integers(*self._range, size=len(indices), endpoint=True)
        ago = np.minimum(drawn, self._frames.steps_since_start(indices))
        shown = self._frames.batch(indices - ago).observation.images
        images = {camera: shown[camera] for camera in self._cameras}
        return dataclasses.replace(batch, observation=seen_at(batch.observation, images, ago))


def with_ages(split: Split, policy: PolicyCfg, seed: int) -> Split:
    """The frames for this policy; the same ones, if it is none of two parts."""
    if not isinstance(policy, Psi0PolicyCfg):
        return split

    def aged(frames: Frames) -> AgedFrames:
        return AgedFrames(frames, policy.cameras, policy.max_age_steps, seed)

    validation = aged(split.validation) if split.validation else None
    return dataclasses.replace(split, training=aged(split.training), validation=validation)
