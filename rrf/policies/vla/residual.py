"""A frozen policy with an actor that adds a bounded correction to its chunks.

observation -> base (frozen) ─┬─ features, state ─┐
                              └─ greedy chunk ────┴─ actor -> x ;  action = chunk + scale tanh(x)

The base acts greedily, so that its chunk is a function of the observation, and all randomness is
the actor's. Residuals on learned policies: Policy Decorator (arXiv:2412.13630) and, on action
chunks, ResFiT (arXiv:2509.19301). What the base sees is taken from its own forward pass, so that
the actor needs no images.

Legend: B batch, H steps in an action chunk, A action dimension, O what the actor reads.
"""

import math
import typing
from collections.abc import Mapping

import torch
from torch import nn

from rrf.data.dataset.history import Past, past_of
from rrf.data.schema import Batch, Observation
from rrf.envs.control_env import Interface
from rrf.policies.control.off_policy_actors import SACActor, TanhGaussian
from rrf.policies.policy import Evaluation, FeaturePolicy, Generators, Policy, Sample
from rrf.policies.vla.action_heads import episode_rows, partly_persistent, to_normal, uniform_rows
from rrf.policies.vla.residual_configs import ResidualVLACfg

_GROUP = "actor"
_BASE_STREAM = 0x0BA5E5  # separates the stream that draws which episodes the base plays alone


class ResidualVLA(nn.Module):
    """Implements `rrf.policies.policy.Policy`.

    A sample's `replay` has what the actor read, `seen` [B, O], and what it chose, `residual`
    [B, H * A] in [-1, 1].
    """

    num_values = 0

    def __init__(self, cfg: ResidualVLACfg, norm_stats: Mapping, base: Policy | None = None):
        """
        Args:
            cfg: Its config, with a base.
            norm_stats: The content of norm_stats.json.
            base: The policy to correct; None to build it.

        Raises:
            ValueError: If the base does not say what it sees.
        """
        super().__init__()
        cfg.require_dims()
        assert cfg.base is not None
        base = cfg.base.build(norm_stats) if base is None else base
        assert isinstance(base, nn.Module)
        if not isinstance(base, FeaturePolicy):
            raise ValueError(
                f"a {type(cfg.base).__name__} does not tell its features, which a residual needs; "
                "use a CompactVLACfg or a VLMPolicyCfg, or give the policy `sample_and_features` "
                "(rrf.policies.policy.FeaturePolicy)"
            )
        self.cfg = cfg
        self.base: typing.Any = base.requires_grad_(False)  # a FeaturePolicy
        self.chunk_length, self.action_dim = cfg.chunk_length, cfg.action_dim
        self.noise_factor = 1.0
        num_elements = self.chunk_length * self.action_dim
        self.interface = Interface({_GROUP: base.num_features + num_elements}, num_elements)
        """What the actor and its critics see and choose."""
        self.actor: SACActor = cfg.actor.build(self.interface)
        output = self.actor.backbone.layers[self.actor.backbone.output]
        nn.init.zeros_(output.weight)
        nn.init.zeros_(output.bias)
        with torch.no_grad():
            output.bias[num_elements:] = math.log(cfg.initial_std)

    @property
    def past(self) -> Past:
        return past_of(self.base)

    @property
    def is_executed(self) -> torch.Tensor:
        return self.base.is_executed

    def see(self, observation: Observation) -> tuple[torch.Tensor, Sample]:
        """What the actor reads, float32 [B, O], and the base's greedy choice, which ends it."""
        sample, features = self.base.sample_and_features(observation, None, greedy=True)
        chunk = torch.from_numpy(sample.actions).to(features).flatten(1)
        return torch.cat([features, chunk], 1), sample

    @torch.no_grad()
    def sample(
        self, observation: Observation, generator: Generators = None, greedy: bool = False
    ) -> Sample:
        seen, chosen = self.see(observation)
        shape = (self.chunk_length, self.action_dim)
        policy = self._distribution(seen)
        residual = policy.mode
        if not greedy:
            uniforms = uniform_rows(len(seen), residual.shape[1], generator, seen.device)
            noise = to_normal(uniforms).unflatten(1, shape)
            noise = partly_persistent(noise, self.cfg.persistent_share, generator)
            residual, _ = policy.sample_with_log_prob(noise.flatten(1))
            if self.cfg.base_share:
                drawn = episode_rows(len(seen), 1, generator, _BASE_STREAM, seen.device)
                residual = residual.masked_fill(drawn < self.cfg.base_share, 0.0)
        added = residual.unflatten(1, shape) * self.cfg.scale
        return Sample(
            actions=chosen.actions + added.cpu().numpy(),
            log_prob=None,
            replay={"seen": seen, "residual": residual},
        )

    def evaluate(self, observation: Observation, replay: dict[str, torch.Tensor]) -> Evaluation:
        raise NotImplementedError(
            "a residual is trained off-policy (ResidualSACRunnerCfg), not by policy gradients"
        )

    def set_noise_factor(self, factor: float) -> None:
        self.noise_factor = factor

    def blocks(self) -> list[nn.Module]:
        return self.base.blocks()

    def assets(self) -> dict[str, str]:
        return self.base.assets()

    def loss(self, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        raise NotImplementedError(
            "a residual does not imitate; fine-tune its base, and train a residual on the result"
        )

    def _distribution(self, seen: torch.Tensor) -> TanhGaussian:
        policy = self.actor.distribution(self.actor(seen))
        log_std = policy.log_std + math.log(self.noise_factor)
        return TanhGaussian(policy.mean, log_std)
