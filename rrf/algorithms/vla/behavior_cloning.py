"""Behaviour cloning: the policy's own supervised loss on augmented batches.

It can keep a fine-tuned policy close to the one it started from, the reference: with actions drawn
from the reference, log p_reference - log p_policy is an unbiased estimate of the divergence
KL(reference || policy), and its gradient is that of the divergence.

Legend: B batch, 2 down and right, H height, W width, D state dimension.
"""

import copy
import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from rrf.algorithms.vla.configs import AugmentationCfg, BehaviorCloningCfg
from rrf.data.dataset.history import camera_of
from rrf.data.schema import STATE, Batch, Observation
from rrf.networks.vlm.build import has_adapters, without_adapters
from rrf.policies.policy import Policy


def augment(
    batch: Batch, cfg: AugmentationCfg, state_std: np.ndarray, rng: np.random.Generator
) -> Batch:
    """A copy of `batch` with shifted and tinted images and noisy states. Actions and padding are
    shared.

    All randomness comes from `rng`. Past images of a camera (`rrf.data.dataset.history`) are
    changed like its present one. `state_std` is the standard deviation of the state, [D], or of
    each row's robot, [B, D].
    """
    observation = batch.observation
    cameras = dict.fromkeys(camera_of(name) for name in observation.images)
    drawn = {name: _offsets(len(observation), cfg.shift_px, rng) for name in cameras}
    images = {
        name: shifted(images_bhw3, cfg.shift_px, drawn[camera_of(name)])
        for name, images_bhw3 in observation.images.items()
    }
    if cfg.color:
        tints = {name: _tints(len(observation), cfg.color, rng) for name in cameras}
        images = {name: tinted(value, *tints[camera_of(name)]) for name, value in images.items()}
    noise_bd = rng.standard_normal(observation.state.shape, dtype=np.float32)
    repeats = observation.state.shape[1] // state_std.shape[-1]  # the present state, and past ones
    std = np.tile(state_std, repeats).astype(np.float32)
    state = observation.state + np.float32(cfg.state_noise) * std * noise_bd
    return dataclasses.replace(
        batch, observation=dataclasses.replace(observation, images=images, state=state)
    )


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


def tinted(images_bhw3: np.ndarray, gain_b3: np.ndarray, added_b3: np.ndarray) -> np.ndarray:
    """Each image, uint8, with its colours multiplied by `gain_b3`, and `added_b3` of 255 added."""
    values = images_bhw3 * gain_b3[:, None, None] + 255 * added_b3[:, None, None]
    return values.clip(0, 255).astype(np.uint8)


def _offsets(batch: int, shift_px: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-shift_px, shift_px, size=(2, batch), endpoint=True)


def _tints(batch: int, color: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """What each image's colours, [B, 3], are multiplied by, and what share of 255 is added."""
    gain, added = rng.uniform(-color, color, size=(2, batch, 3)).astype(np.float32)
    return 1 + gain, added / 2


class BehaviorCloning:
    """Has a single verb, `loss`. The loop, the optimizer and logging belong to the runner.

    Args:
        cfg: Its config.
        policy: The policy to train, as it is at the beginning of the training.
        norm_stats: The statistics with which the policy normalises, those of several robots by tag.
    """

    def __init__(self, cfg: BehaviorCloningCfg, policy: Policy, norm_stats: Mapping[str, Mapping]):
        self.cfg = cfg
        self.policy = policy
        by_robot = norm_stats if STATE not in norm_stats else {None: norm_stats}
        self._state_std = {
            robot: np.asarray(stats[STATE]["std"], dtype=np.float32)
            for robot, stats in by_robot.items()
        }
        self._reference: Policy | None = None
        if cfg.kl_coef:
            assert isinstance(policy, nn.Module)
            if not has_adapters(policy):
                self._reference = copy.deepcopy(policy).eval().requires_grad_(False)

    def loss(
        self, batch: Batch, rng: np.random.Generator | None = None
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The loss, a scalar with gradient, and its metrics. Without `rng`, neither augmentation
        nor divergence."""
        if rng is None:
            return self.policy.loss(batch)
        if self.cfg.augmentation is not None:
            std = self._std_of(batch.observation)
            batch = augment(batch, self.cfg.augmentation, std, rng)
        loss, metrics = self.policy.loss(batch)
        if self.cfg.kl_coef:
            divergence = self.divergence(batch.observation)
            loss = loss + self.cfg.kl_coef * divergence
            metrics = {**metrics, "loss/kl": divergence.item()}
        return loss, metrics

    def _std_of(self, observation: Observation) -> np.ndarray:
        """The standard deviation of the state, [D], or [B, D] with zeros for what is padded."""
        if observation.robots is None:
            return self._state_std[None]
        std_bd = np.zeros_like(observation.state)
        for row, robot in enumerate(observation.robots):
            std_d = self._state_std[robot]
            std_bd[row, : len(std_d)] = std_d
        return std_bd

    def divergence(self, observation: Observation) -> torch.Tensor:
        """The estimated divergence from the reference, in nats per element of a chunk."""
        drawn, log_prob = self._drawn_from_reference(observation)
        return (log_prob - self.policy.evaluate(observation, drawn).log_prob).mean()

    @torch.no_grad()
    def _drawn_from_reference(
        self, observation: Observation
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        if self._reference is not None:
            sample = self._reference.sample(observation)
        else:
            assert isinstance(self.policy, nn.Module)
            with without_adapters(self.policy):
                sample = self.policy.sample(observation)
        assert sample.log_prob is not None, "the run's config asks for a head with a density"
        return sample.replay, sample.log_prob
