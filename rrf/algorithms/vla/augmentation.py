"""Random augmentation of training batches. All randomness comes from an explicit generator.

Legend: B batch, H height, W width, D state dimension.
"""

import dataclasses

import numpy as np

from rrf.algorithms.vla.configs import AugmentationCfg
from rrf.data.schema import Batch


def augment(
    batch: Batch, cfg: AugmentationCfg, state_std: np.ndarray, rng: np.random.Generator
) -> Batch:
    """A copy of `batch` with shifted images and noisy states. Actions and padding are shared.

    `state_std` is the standard deviation of the state, [D], or of each row's robot, [B, D].
    """
    observation = batch.observation
    images = {
        name: random_shift(images_bhw3, cfg.shift_px, rng)
        for name, images_bhw3 in observation.images.items()
    }
    noise_bd = rng.standard_normal(observation.state.shape, dtype=np.float32)
    state = (
        observation.state + np.float32(cfg.state_noise) * state_std.astype(np.float32) * noise_bd
    )
    return dataclasses.replace(
        batch, observation=dataclasses.replace(observation, images=images, state=state)
    )


def random_shift(images_bhw3: np.ndarray, shift_px: int, rng: np.random.Generator) -> np.ndarray:
    """Each image shifted by its own integer offset in [-shift_px, shift_px]^2; edges repeat."""
    batch, height, width, _ = images_bhw3.shape
    offsets = rng.integers(-shift_px, shift_px, size=(2, batch), endpoint=True)
    margin = [(0, 0), (shift_px, shift_px), (shift_px, shift_px), (0, 0)]
    padded = np.pad(images_bhw3, margin, mode="edge")
    shifted = np.empty_like(images_bhw3)
    for index, (down, right) in enumerate(offsets.T.tolist()):
        top, left = shift_px - down, shift_px - right
        shifted[index] = padded[index, top : top + height, left : left + width]
    return shifted
