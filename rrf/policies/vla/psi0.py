"""A policy in two parts that can run apart, at different rates.

    System 2: images + instruction -> backbone -> compressor -> features [B, T, W]      (see)
    System 1: features + their age + state (+ one camera) -> tokens -> head -> chunk    (act)

System 2 sees at a low rate, System 1 acts at a high one on the newest features that it has. Between
them go plain arrays and nothing else. `sample` is both at once, with features of age 0; where
episodes are played, features may be older (`Psi0PolicyCfg.feature_period`). In training each row's
features have an age of their own (`rrf.runners.supervised.aged_frames`), and one backward pass
trains both parts. The split is that of Figure's Helix and of Psi-0's hierarchy on a humanoid.

The names of weights tell whose they are: `rrf.policies.vla.psi0_configs.SYSTEM2` and `SYSTEM1`.

Legend: B rows, T feature vectors, W their width, S tokens that System 1 reads, H steps in an action
chunk, A action dimension.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from rrf.data.dataset.history import as_seen
from rrf.data.schema import Observation
from rrf.networks.encoders import ImageEncoder
from rrf.networks.vlm.backbone import Features
from rrf.networks.vlm.images import fitted
from rrf.policies.policy import Evaluation, Generators, Sample, check_observation
from rrf.policies.vla.context import Context, SeenObservation
from rrf.policies.vla.flow_matching import time_embedding
from rrf.policies.vla.psi0_configs import Psi0PolicyCfg
from rrf.policies.vla.psi0_parts import Compressor, TokenSource
from rrf.policies.vla.vlm import VLMPolicy

AGE, FEATURES = "feature_age_s", "features"  # of a sample's `replay`
_TIME_FEATURES = 32


class Psi0Policy(VLMPolicy):
    """Implements `rrf.policies.policy.Policy`; `see` and `act` are the seam between its parts.

    A sample's `replay` has the age of the features, and the features themselves if they were given
    or System 2 is frozen: `evaluate` then takes them as they are.
    """

    cfg: Psi0PolicyCfg

    def __init__(
        self, cfg: Psi0PolicyCfg, norm_stats: Mapping[str, Mapping], assets: Path | None = None
    ):
        super().__init__(cfg, norm_stats, assets)
        self.feature_period, self.max_age_steps = cfg.feature_period, cfg.max_age_steps
        self.control_hz = cfg.control_hz
        if cfg.freezes_system2:
            for part in self._system2():
                part.requires_grad_(False)

    def _add_parts(self) -> tuple[TokenSource, int]:
        cfg, width = self.cfg, self.cfg.feature_width
        if cfg.has_system2:
            self.compressor = Compressor(
                self.backbone.width, cfg.feature_tokens, width, cfg.pooling
            )
        num_tokens = cfg.feature_tokens + 1  # that of the age
        if cfg.has_system1:
            self.age_encoder = nn.Linear(_TIME_FEATURES, width)
            if cfg.fast_view:
                view, num_tokens = cfg.fast_view, num_tokens + 1
                self.fast_encoder = ImageEncoder(view.encoder, view.image.size, width)
                self.fast_projection = nn.Linear(view.encoder.out_features, width)
        return TokenSource(width), num_tokens * width

    def _system2(self) -> list[nn.Module]:
        return [self.backbone, *([self.compressor] if self.cfg.has_system2 else [])]

    def train(self, mode: bool = True) -> typing.Self:
        super().train(mode)
        if self.cfg.freezes_system2:
            for part in self._system2():
                part.eval()
        return self

    def held_too_long(self, steps: int) -> str | None:
        """See `rrf.data.dataset.history.LooksSeldom`."""
        return self.cfg.held_too_long(steps)

    @property
    def _dtype(self) -> torch.dtype:
        """That of features on their way."""
        return getattr(torch, self.cfg.feature_dtype)

    @property
    def feature_shape(self) -> tuple[int, int]:
        """(T, W)."""
        return self.cfg.feature_tokens, self.cfg.feature_width

    @torch.no_grad()
    def see(self, observation: Observation) -> np.ndarray:
        """What System 2 says of an observation's images and instruction, [B, T, W] in
        `feature_dtype`. The state is not read.

        Raises:
            ValueError: If images differ from the training data in shape or dtype, or for System 1
                alone.
        """
        return self._see(observation).to(self._dtype).cpu().numpy()

    @torch.no_grad()
    def act(
        self,
        features: np.ndarray,
        ages_s: np.ndarray | Sequence[float],
        observation: Observation,
        generator: Generators = None,
        greedy: bool = False,
    ) -> Sample:
        """What System 1 does, given features.

        Args:
            features: What `see` returned, maybe elsewhere, [B, T, W].
            ages_s: How long ago the images were taken that the features are of, in s, [B].
            observation: The present. Of its images, only that of `fast_view` is read.
            generator: As in `sample`.
            greedy: As in `sample`.

        Raises:
            ValueError: For features of another shape or dtype, or not finite; for ages that are
                negative, not finite or above `max_feature_age_s`; for an observation that differs
                from the training data; for System 2 alone.
        """
        given_btw = self._checked(features, len(observation))
        return self._act(given_btw, self._ages(ages_s, observation), observation, generator, greedy)

    @torch.no_grad()
    def sample(
        self,
        observation: Observation,
        generator: Generators = None,
        greedy: bool = False,
    ) -> Sample:
        """See `rrf.policies.policy.Policy.sample`."""
        features_btw, ages_b = self._see(observation), self._ages_of(observation)
        sample = self._act(features_btw, ages_b, observation, generator, greedy)
        if not self.cfg.freezes_system2:
            del sample.replay[FEATURES]
        return sample

    def evaluate(self, observation: Observation, replay: dict[str, torch.Tensor]) -> Evaluation:
        """See `rrf.policies.policy.Policy.evaluate`. Features in `replay` get no gradient; without
        them System 2 sees again what it saw."""
        features_btw = replay.get(FEATURES)
        if features_btw is None:
            features_btw = self._see(observation)
        ages_b = replay[AGE].to(self.device)
        context = self._context(features_btw.to(self.device).float(), ages_b, observation)
        return self._evaluate(context, replay)

    def context(self, observation: Observation) -> Context:
        """What the head sees of an observation, with gradient to System 2 if it is trained."""
        return self._context(self._see(observation), self._ages_of(observation), observation)

    def _see(self, observation: Observation) -> torch.Tensor:
        """The features as System 1 receives them, float32 [B, T, W]."""
        self.cfg.require_system2()
        state = np.zeros((len(observation), self.cfg.seen_state_dim), np.float32)
        seen = dataclasses.replace(as_seen(observation), state=state)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.cfg.freezes_system2):
            features_btw = self.compressor(super().context(seen).features).float()
        if self._dtype == torch.float32:
            return features_btw
        rounded_btw = features_btw.to(self._dtype).float()
        return features_btw + (rounded_btw - features_btw).detach()  # the gradient passes

    def _act(
        self,
        features_btw: torch.Tensor,
        ages_b: torch.Tensor,
        observation: Observation,
        generator: Generators,
        greedy: bool,
    ) -> Sample:
        context = self._context(features_btw, ages_b, observation)
        sample = self._sample(context, observation, generator, greedy)
        sample.replay |= {AGE: ages_b, FEATURES: features_btw.to(self._dtype)}
        return sample

    def _context(
        self, features_btw: torch.Tensor, ages_b: torch.Tensor, observation: Observation
    ) -> Context:
        """What System 1 reads: the features, then a token of their age, then one of the camera."""
        self.cfg.require_system1()
        age_bw = self.age_encoder(time_embedding(ages_b, _TIME_FEATURES))
        tokens = [features_btw, age_bw[:, None]]
        if self.cfg.fast_view:
            tokens.append(self._fast_token(features_btw, observation))
        tokens_bsw = torch.cat(tokens, 1)
        is_token_bs = torch.ones(tokens_bsw.shape[:2], dtype=torch.bool, device=self.device)
        is_image_bs = is_token_bs.clone()
        is_image_bs[:, features_btw.shape[1]] = False  # the age
        seen = SeenObservation(
            {},
            observation.state,
            observation.instruction,
            features=Features(tokens_bsw, is_token_bs, is_image_bs),
        )
        return super().context(seen)

    def _fast_token(self, features_btw: torch.Tensor, observation: Observation) -> torch.Tensor:
        view, camera = self.cfg.fast_view, self.cfg.fast_camera
        assert view is not None
        assert camera is not None
        check_observation(observation, [camera], self.cfg.image_size, self.cfg.seen_state_dim)
        images = torch.from_numpy(observation.images[camera]).to(self.device)
        images_bhw3 = fitted(images, view.image).permute(0, 2, 3, 1)
        encoded_bf = self.fast_encoder(images_bhw3, features_btw.mean(1))
        return self.fast_projection(encoded_bf)[:, None].float()

    def _pooled(self, context: Context) -> torch.Tensor:
        """All tokens of System 1 one after another, [B, S * W]."""
        return context.features.tokens.flatten(1).float()

    def _ages_of(self, observation: Observation) -> torch.Tensor:
        ago = observation.seen_steps_ago
        ago = np.zeros(len(observation)) if ago is None else ago
        return self._ages(ago / self.cfg.control_hz, observation)

    def _ages(self, ages_s: np.ndarray | Sequence[float], observation: Observation) -> torch.Tensor:
        """Checked ages, float32 [B]."""
        ages_b = np.asarray(ages_s, np.float64)
        if ages_b.shape != (len(observation),):
            raise ValueError(
                f"ages_s has the shape {list(ages_b.shape)}, expected [{len(observation)}]: one "
                "age for each row"
            )
        if len(bad := ages_b[~(np.isfinite(ages_b) & (ages_b >= 0))]):
            raise ValueError(f"features are {bad[0]:g} s old, allowed: 0 or more")
        if (oldest := ages_b.max()) > self.cfg.age_limit_s:
            raise ValueError(
                f"features are {oldest:g} s old, but this policy was trained with features of at "
                f"most {self.cfg.max_feature_age_s:g} s (max_feature_age_s); let System 2 see more "
                "often, or train with a higher limit"
            )
        return self._tensor(ages_b)

    def _checked(self, features: np.ndarray, batch: int) -> torch.Tensor:
        """Features that came from elsewhere, float32 [B, T, W]."""
        shape, dtype = (batch, *self.feature_shape), self.cfg.feature_dtype
        if features.dtype != dtype or features.shape != shape:
            raise ValueError(
                f"features are {features.dtype}{list(features.shape)}, but System 1 was trained on "
                f"{dtype}{list(shape)}"
            )
        if not np.isfinite(features).all():
            row = int(np.argmin(np.isfinite(features).all((1, 2))))
            raise ValueError(
                f"features of row {row} hold NaN or Inf; System 1 does not act on them"
            )
        return self._tensor(features)
