"""Random augmentation of training batches. All randomness comes from an explicit generator.

Legend: B batch, 2 down and right, H height, W width, D state dimension.
"""

import dataclasses

import numpy as np

from rrf.algorithms.vla.configs import AugmentationCfg
from rrf.data.dataset.history import camera_of
from rrf.data.schema import Batch


def augment(
    batch: Batch, cfg: AugmentationCfg, state_std: np.ndarray, rng: np.random.Generator
) -> Batch:
    """A copy of `batch` with shifted images and noisy states. Actions and padding are shared.

    Past images of a camera (`rrf.data.dataset.history`) are shifted like its present one.
    `state_std` is the standard deviation of the state, [D], or of each row's robot, [B, D].
    """
    observation = batch.observation
    cameras = dict.fromkeys(camera_of(name) for name in observation.images)
    drawn = {name: _offsets(len(observation), cfg.shift_px, rng) for name in cameras}
    images = {
        name: shifted(images_bhw3, cfg.shift_px, drawn[camera_of(name)])
        for name, images_bhw3 in observation.images.items()
    }
    noise_bd = rng.standard_normal(observation.state.shape, dtype=np.float32)
    repeats = observation.state.shape[1] // state_std.shape[-1]  # the present state, and past ones
    std = np.tile(state_std, repeats).astype(np.float32)
    state = observation.state + np.float32(cfg.state_noise) * std * noise_bd
    return dataclasses.replace(
        batch, observation=dataclasses.replace(observation, images=images, state=state)
    )


def random_shift(images_bhw3: np.ndarray, shift_px: int, rng: np.random.Generator) -> np.ndarray:
    """Each image shifted by its own integer offset in [-shift_px, shift_px]^2; edges repeat."""
    return shifted(images_bhw3, shift_px, _offsets(len(images_bhw3), shift_px, rng))


def shifted(images_bhw3: np.ndarray, shift_px: int, offsets_2b: np.ndarray) -> np.ndarray:
    """Each image shifted down and right by its offset in [-shift_px, shift_px]; edges repeat."""
    _, height, width, _ = images_bhw3.shape
    margin = [(0, 0), (shift_px, shift_px), (shift_px, shift_px), (0, 0)]
    padded = np.pad(images_bhw3, margin, mode="edge")
    moved = np.empty_like(images_bhw3)
    for index, (down, right) in enumerate(offsets_2b.T.tolist()):
        top, left = shift_px - down, shift_px - right
        moved[index] = padded[index, top : top + height, left : left + width]
    return moved


def _offsets(batch: int, shift_px: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-shift_px, shift_px, size=(2, batch), endpoint=True)
