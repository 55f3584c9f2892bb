"""Augmentation: what moves, what does not, and where its randomness comes from."""

import numpy as np
import pytest

from rrf.algorithms import AugmentationCfg, BehaviorCloningCfg
from rrf.algorithms.vla.behavior_cloning import augment, shifted, tinted
from rrf.data.schema import Batch, Observation


class RecordingPolicy:
    """Keeps the batch it was given."""

    def loss(self, batch):
        self.batch = batch
        return batch.observation.state.sum(), {}


def make_batch() -> Batch:
    rng = np.random.default_rng(0)
    images = {"front": rng.integers(0, 256, (4, 6, 6, 3), dtype=np.uint8)}
    observation = Observation(images, np.zeros((4, 2), np.float32), ["go"] * 4)
    return Batch(observation, np.zeros((4, 2, 2), np.float32), np.zeros((4, 2), bool))


def test_a_shift_moves_the_picture_and_repeats_its_edge():
    image = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1).repeat(3, axis=3)

    moved = shifted(image, 1, np.array([[1], [-1]]))[0, :, :, 0]  # down by one, left by one
    assert moved.tolist() == [[1, 2, 3, 3], [1, 2, 3, 3], [5, 6, 7, 7], [9, 10, 11, 11]]


def test_every_image_has_its_own_offset_within_the_limit():
    images = np.zeros((200, 9, 9, 3), np.uint8)
    images[:, 4, 4] = 255
    observation = Observation({"front": images}, np.zeros((200, 2), np.float32), ["go"] * 200)
    batch = Batch(observation, np.zeros((200, 2, 2), np.float32), np.zeros((200, 2), bool))
    cfg = AugmentationCfg(shift_px=2, state_noise=0.0)
    moved = augment(batch, cfg, np.ones(2), np.random.default_rng(0)).observation.images["front"]
    offsets = {tuple(np.argwhere(picture[..., 0])[0] - 4) for picture in moved}
    assert offsets == {(row, column) for row in range(-2, 3) for column in range(-2, 3)}


def test_each_image_has_a_tint_of_its_own_within_the_limit_and_past_images_have_it_too():
    grey = np.full((500, 2, 2, 3), 100, np.uint8)
    images = {"front": grey, "front@1": grey, "side": grey}
    observation = Observation(images, np.zeros((500, 2), np.float32), ["go"] * 500)
    batch = Batch(observation, np.zeros((500, 2, 2), np.float32), np.zeros((500, 2), bool))
    cfg = AugmentationCfg(shift_px=0, state_noise=0.0, color=0.2)
    seen = augment(batch, cfg, np.ones(2), np.random.default_rng(0)).observation.images
    tints = seen["front"][:, 0, 0].astype(int)
    assert (seen["front"] == tints[:, None, None]).all()
    assert 54 <= tints.min() < 62  # 100 - 20 - 0.1 of 255
    assert 138 < tints.max() <= 146
    assert np.abs(np.corrcoef(tints.T) - np.eye(3)).max() < 0.2
    assert np.array_equal(seen["front@1"], seen["front"])
    assert not np.array_equal(seen["side"], seen["front"])


def test_a_tint_ends_at_black_and_white():
    image = np.array([0, 100, 250], np.uint8).reshape(1, 1, 1, 3)
    tint = np.array([[1.5, 1.5, 1.5]], np.float32), np.array([[-0.1, 0.0, 0.0]], np.float32)
    assert tinted(image, *tint).ravel().tolist() == [0, 150, 255]
    with pytest.raises(ValueError, match=r"color is 1\.5, allowed: 0 to 1"):
        AugmentationCfg(color=1.5)


def test_state_noise_is_measured_in_standard_deviations_of_the_dataset():
    batch = make_batch()
    batch.observation.state = np.zeros((4000, 2), np.float32)
    cfg = AugmentationCfg(shift_px=0, state_noise=0.1)
    noisy = augment(batch, cfg, np.array([1.0, 20.0]), np.random.default_rng(0))
    assert np.allclose(noisy.observation.state.std(axis=0), [0.1, 2.0], rtol=0.05)


def test_the_batch_itself_is_left_alone_and_the_generator_decides_everything():
    batch = make_batch()
    before = batch.observation.images["front"].copy()
    cfg = AugmentationCfg(shift_px=2, state_noise=0.1)
    std = np.ones(2)
    first, again, other = (
        augment(batch, cfg, std, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert np.array_equal(batch.observation.images["front"], before)
    assert np.array_equal(first.observation.state, again.observation.state)
    assert np.array_equal(first.observation.images["front"], again.observation.images["front"])
    assert not np.array_equal(first.observation.state, other.observation.state)


def test_behavior_cloning_augments_only_when_it_is_given_a_generator():
    stats = {"observation.state": {"std": [1.0, 1.0]}}
    batch, policy = make_batch(), RecordingPolicy()
    algorithm = BehaviorCloningCfg(augmentation=AugmentationCfg()).build(policy, stats)
    algorithm.loss(batch)
    assert policy.batch is batch
    algorithm.loss(batch, np.random.default_rng(0))
    assert policy.batch.observation.state.std() > 0
