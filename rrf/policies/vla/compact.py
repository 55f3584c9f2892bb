"""The compact vision-language-action policy: small encoders, an MLP that joins them, a head.

images + instruction -> ImageEncoder (FiLM) ─┐
state ─────────────────────────────────────── MLP ─ head -> action chunk
instruction ──────────────────────────────────┘

The policy normalises internally: its inputs and outputs are in physical units.

Legend: B batch, H steps in an action chunk, A action dimension, D state dimension, F features.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rrf.data.dataset.transforms import Normalize
from rrf.data.schema import ACTION, STATE, Batch, Observation
from rrf.networks.encoders import ImageEncoder, InstructionEncoder
from rrf.networks.mlp import MLP
from rrf.policies.policy import Evaluation, Generators, Sample, check_observation
from rrf.policies.vla.configs import CompactVLACfg
from rrf.policies.vla.real_time import RunningChunk


class CompactVLA(nn.Module):
    """Implements `rrf.policies.policy.Policy`. `norm_stats` is the content of norm_stats.json."""

    def __init__(self, cfg: CompactVLACfg, norm_stats: Mapping[str, Mapping]):
        super().__init__()
        self.cfg = cfg
        self.chunk_length, self.action_dim = cfg.chunk_length, cfg.action_dim
        self.normalize_state = Normalize(norm_stats[STATE], mode=cfg.state_normalization)
        self.normalize_action = Normalize(norm_stats[ACTION], mode=cfg.action_normalization)
        self.instruction_encoder = InstructionEncoder(cfg.instruction_encoder)
        text_features = cfg.instruction_encoder.out_features
        if cfg.cameras:
            self.image_encoder = ImageEncoder(cfg.image_encoder, cfg.image_size, text_features)
        self.state_encoder = nn.Linear(cfg.state_dim, cfg.state_features)
        joined = (
            len(cfg.cameras) * cfg.image_encoder.out_features + cfg.state_features + text_features
        )
        self.trunk = MLP(cfg.trunk, joined, cfg.features)
        self.head = cfg.head.build(cfg.features, cfg.chunk_length, cfg.action_dim)
        self.num_values = 0
        if cfg.value_head:
            self.num_values = cfg.chunk_length if cfg.value_head.level == "action" else 1
            self.value_head = MLP(cfg.value_head.mlp, cfg.features, self.num_values)

    @property
    def num_features(self) -> int:
        """See `rrf.policies.policy.FeaturePolicy`."""
        return self.cfg.features + self.cfg.state_dim

    @property
    def device(self) -> torch.device:
        return self.state_encoder.weight.device

    @property
    def is_executed(self) -> torch.Tensor:
        return self.head.is_executed

    def forward(self, observation: Observation) -> torch.Tensor:
        """The joined features of images, state and instruction, [B, F]."""
        check_observation(observation, self.cfg.cameras, self.cfg.image_size, self.cfg.state_dim)
        text_bd = self.instruction_encoder(observation.instruction)
        images = [
            self.image_encoder(torch.from_numpy(observation.images[name]).to(self.device), text_bd)
            for name in self.cfg.cameras
        ]
        state_bd = functional.relu(
            self.state_encoder(self._tensor(self.normalize_state.apply(observation.state)))
        )
        return self.trunk(torch.cat([*images, state_bd, text_bd], dim=1))

    @torch.no_grad()
    def sample(
        self,
        observation: Observation,
        generator: Generators = None,
        greedy: bool = False,
    ) -> Sample:
        return self.sample_and_features(observation, generator, greedy)[0]

    @torch.no_grad()
    def sample_and_features(
        self,
        observation: Observation,
        generator: Generators = None,
        greedy: bool = False,
    ) -> tuple[Sample, torch.Tensor]:
        """See `rrf.policies.policy.FeaturePolicy`: those that the head reads, and the state."""
        features_bf = self(observation)
        actions, log_prob, replay = self.head.sample(features_bf, generator, greedy)
        sample = Sample(
            actions=self.normalize_action.invert(actions.cpu().numpy()),
            log_prob=log_prob,
            replay=replay,
            value=self._value(features_bf),
        )
        state_bd = self._tensor(self.normalize_state.apply(observation.state))
        return sample, torch.cat([features_bf, state_bd], 1)

    @torch.no_grad()
    def resume(
        self,
        observation: Observation,
        running: np.ndarray,
        num_frozen: int,
        generator: Generators = None,
        greedy: bool = False,
    ) -> np.ndarray:
        """See `rrf.policies.policy.ResumablePolicy`."""
        known = RunningChunk(self._tensor(self.normalize_action.apply(running)), num_frozen)
        sample = self.head.resume(self(observation), known, generator, greedy)
        return self.normalize_action.invert(sample.actions.cpu().numpy())

    def evaluate(self, observation: Observation, replay: dict[str, torch.Tensor]) -> Evaluation:
        features_bf = self(observation)
        log_prob, entropy = self.head.evaluate(features_bf, replay)
        return Evaluation(log_prob, entropy, self._value(features_bf))

    def set_noise_factor(self, factor: float) -> None:
        self.head.noise_factor = factor

    def blocks(self) -> list[nn.Module]:
        return []

    def assets(self) -> dict[str, str]:
        return {}

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        target_bha = self._tensor(self.normalize_action.apply(batch.action))
        is_pad_bh = torch.from_numpy(batch.is_pad).to(self.device)
        return self.head.loss(self(batch.observation), target_bha, is_pad_bh)

    def _value(self, features_bf: torch.Tensor) -> torch.Tensor | None:
        if self.cfg.value_head is None:
            return None
        inputs_bf = features_bf.detach() if self.cfg.value_head.detaches else features_bf
        return self.value_head(inputs_bf)

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(self.device)
