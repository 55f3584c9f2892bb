"""Features of a frozen backbone, computed once for every frame and kept in a memory-mapped file.

A frozen backbone gives the same features in every epoch. With them, training needs neither images
nor the backbone. Two things can be kept of a frame, whichever the head reads:

* pooled: one vector, float32;
* tokens: all tokens in 8 bits with a scale per token (the largest value is 127 times the scale).

The file is found by everything that decides its content: backbone with its weights, prompt,
cameras, pooling, the content of the dataset, and the frames. If any of these changes, features are
computed again. Images must not be augmented, and a prompt must not hold the state.

Legend: N frames, B batch, L tokens of the longest frame, D width.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from rrf import atomic
from rrf.data.dataset.decoded_cache import mapped_images
from rrf.data.schema import Batch
from rrf.networks import tensor_files
from rrf.networks.vlm.backbone import Features
from rrf.policies.vla.context import SeenObservation
from rrf.policies.vla.psi0 import Psi0Policy
from rrf.policies.vla.vlm import VLMPolicy
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.frames import Frames, Split, WrappedFrames

_LEVELS = 127
_MiB = 1 << 20


def with_features(
    split: Split, policy: torch.nn.Module, cfg: SupervisedRunnerCfg, say: Callable[[str], None]
) -> Split:
    """The frames of a split with features instead of images.

    Args:
        split: Frames with images.
        policy: The policy that is to be trained.
        cfg: The config of the run.
        say: Is told the size before the work begins.

    Raises:
        ValueError: If the run has no features that stay the same.
    """
    _require_constant(policy, cfg)
    assert isinstance(policy, VLMPolicy)
    assert cfg.cache_dir is not None
    folder = Path(cfg.cache_dir)

    def cached(frames: Frames | None) -> Frames | None:
        if frames is None:
            return None
        return CachedFrames(frames, policy, folder, cfg.batch_size, say)

    training = cached(split.training)
    assert training is not None
    return dataclasses.replace(split, training=training, validation=cached(split.validation))


def _require_constant(policy: torch.nn.Module, cfg: SupervisedRunnerCfg) -> None:
    reasons = []
    if not isinstance(policy, VLMPolicy):
        reasons.append("the policy has no backbone (policy: VLMPolicyCfg)")
    else:
        backbone, reads = policy.cfg.backbone, policy.cfg.head.reads
        if backbone.tuning != "frozen":
            reasons.append("its backbone is trained (policy.backbone.tuning: frozen)")
        if reads not in ("pooled", "tokens"):
            reasons.append(f"its head reads '{reads}' of the backbone, not features")
        if "{state}" in policy.cfg.prompt:
            reasons.append("its prompt holds the state")
        if cfg.advantage:
            reasons.append("its prompt holds the advantage")
        if isinstance(policy, Psi0Policy):
            reasons.append("it is given features of each age (policy: VLMPolicyCfg has one age)")
        if policy.past:
            reasons.append("it sees past frames (policy.past_images: 0, policy.past_states: 0)")
    augmentation = cfg.algorithm.augmentation
    if augmentation is not None:
        changing = [name for name in ("shift_px", "color") if getattr(augmentation, name)]
        reasons += [f"images are augmented (algorithm.augmentation.{name}: 0)" for name in changing]
    if reasons:
        raise ValueError(
            f"caches_features is true, but features of a frame do not stay the same, or are not "
            f"read: {'; '.join(reasons)}"
        )


class CachedFrames(WrappedFrames):
    """Frames whose observations are `SeenObservation`s; see the module."""

    def __init__(
        self,
        frames: Frames,
        policy: VLMPolicy,
        folder: Path,
        batch_size: int,
        say: Callable[[str], None],
    ):
        super().__init__(frames)
        self._policy = policy
        self._pools = policy.cfg.head.reads == "pooled"
        self._record = self._layout()
        what, content = frames.identity
        size = frames.num_frames * self._record.itemsize
        say(
            f"features of {frames.num_frames} frames, {self._record.itemsize} bytes each: "
            f"{size / _MiB:.1f} MiB in {folder}"
        )
        records = mapped_images(
            folder,
            f"features-{what}-{self._key()}",
            content.replace("-", "."),
            "all",
            (frames.num_frames, 1, 1, self._record.itemsize),
            self._computed,
            at_once=batch_size,
        )
        self._rows = records.reshape(-1).view(self._record)

    def batch(self, indices: np.ndarray) -> Batch:
        state, action, is_pad = self._frames.chunks(indices)
        instruction = self._frames.instructions_of(indices)
        seen = SeenObservation({}, state, instruction, features=self._read(indices))
        return Batch(seen, action, is_pad)

    def _read(self, indices: np.ndarray) -> Features:
        rows = self._rows[indices]
        if self._pools:
            tokens = torch.from_numpy(np.array(rows["pooled"]))[:, None]
            is_token = torch.ones(tokens.shape[:2], dtype=torch.bool)
            return Features(tokens, is_token, ~is_token)
        scaled = rows["tokens"] * rows["scale"].astype(np.float32)[..., None]
        is_token, is_image = (torch.from_numpy(np.array(rows[n])) for n in ("is_token", "is_image"))
        return Features(torch.from_numpy(scaled.astype(np.float32)), is_token, is_image)

    def _layout(self) -> np.dtype:
        """What is kept of a frame."""
        width = self._policy.backbone.width
        if self._pools:
            return np.dtype([("pooled", np.float32, (width,))])
        longest = self._longest()
        return np.dtype(
            [
                ("tokens", np.int8, (longest, width)),
                ("scale", np.float16, (longest,)),
                ("is_token", np.bool_, (longest,)),
                ("is_image", np.bool_, (longest,)),
            ]
        )

    def _longest(self) -> int:
        """The most tokens of a frame: the images are alike, so it is that of an instruction."""
        indices = np.arange(self._frames.num_frames)
        instructions = self._frames.instructions_of(indices)
        _, first = np.unique(instructions, return_index=True)
        return max(self._features(np.array([frame])).tokens.shape[1] for frame in first)

    def _features(self, indices: np.ndarray) -> Features:
        observation = self._frames.batch(indices).observation
        was_training = self._policy.training
        self._policy.eval()
        with torch.no_grad():
            features = self._policy.context(observation).features
        self._policy.train(was_training)
        return features.to(torch.device("cpu"))

    def _computed(self, indices: np.ndarray) -> np.ndarray:
        """The records of frames as bytes, uint8 [B, 1, 1, bytes]."""
        features = self._features(indices)
        rows = np.zeros(len(indices), self._record)
        if self._pools:
            rows["pooled"] = features.pooled(self._policy.cfg.pooling).float().numpy()
        else:
            tokens = features.tokens.float().numpy()
            length = tokens.shape[1]
            scale = np.maximum(np.abs(tokens).max(-1) / _LEVELS, 1e-6).astype(np.float16)
            levels = np.rint(tokens / scale[..., None].astype(np.float32))
            rows["tokens"][:, :length] = np.clip(levels, -_LEVELS, _LEVELS)
            rows["scale"][:, :length] = scale
            rows["is_token"][:, :length] = features.is_token.numpy()
            rows["is_image"][:, :length] = features.is_image.numpy()
        return rows.view(np.uint8).reshape(len(indices), 1, 1, -1)

    def _key(self) -> str:
        """Digest of what decides the features, besides the frames."""
        policy, cfg = self._policy, self._policy.cfg
        facts = {
            "backbone": cfg.backbone.replace(gradient_checkpointing=False).to_dict(),
            "weights": policy.backbone.base_digest or _digest(policy.backbone),
            "prompt": cfg.prompt,
            "cameras": list(cfg.cameras),
            "kept": cfg.pooling if self._pools else "tokens",
        }
        return atomic.digest_of(facts)[:16]


def _digest(module: torch.nn.Module) -> str:
    """SHA-256 of all parameters and buffers."""
    return tensor_files.digest_of(
        {**dict(module.named_parameters()), **dict(module.named_buffers())}
    )
