"""The heads of OpenVLA-OFT (arXiv:2502.19645): a chunk in one pass, by L1 regression, diffusion, or
tokens of the language.

The chunk has one slot per step and dimension, step by step. Empty slots are zero vectors; for
diffusion, they hold the noisy actions. The features of a step's slots are joined and read by a
residual MLP; for tokens, the language model's own head reads each of them. The state, and for
diffusion the noise level, are tokens after the images.

The parameters have the names of the published components: `model` or `noise_predictor`,
`proprio_projector`, `noisy_action_projector`.

Legend: B rows, H steps in an action chunk, A action dimension, S = T = H A slots or tokens, D width
of a token, V words of the language, N bins.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from rrf.networks.noise_schedule import ddim_step, denoised, noisy, squared_cosine, visited
from rrf.networks.vlm.backbone import Backbone
from rrf.policies.policy import Generators
from rrf.policies.vla.action_heads import (
    ActionHead,
    GaussianDensity,
    HeadSample,
    to_normal,
    uniform_rows,
)
from rrf.policies.vla.context import Context
from rrf.policies.vla.heads.action_tokens import ActionTokenHead, decoded, draw
from rrf.policies.vla.heads.oft_configs import (
    OFTDiffusionHeadCfg,
    OFTRegressionHeadCfg,
    OFTTokenHeadCfg,
)
from rrf.policies.vla.losses import held, masked_mean, without_absent

_CLIP = 1.0  # what the published heads clip actions to


class ResidualMLP(nn.Module):
    """Layer norm, a layer, residual blocks, layer norm, a layer."""

    def __init__(self, num_blocks: int, in_features: int, hidden: int, out_features: int):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(in_features)
        self.fc1 = nn.Linear(in_features, hidden)
        self.mlp_resnet_blocks = nn.ModuleList(_Block(hidden) for _ in range(num_blocks))
        self.layer_norm2 = nn.LayerNorm(hidden)
        self.fc2 = nn.Linear(hidden, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.fc1(self.layer_norm1(x)))
        for block in self.mlp_resnet_blocks:
            x = block(x)
        return self.fc2(self.layer_norm2(x))


class _Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.ffn = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.ffn(x)


class TokenProjector(nn.Module):
    """Makes a token of a small vector, such as the state."""

    def __init__(self, in_features: int, width: int):
        super().__init__()
        self.fc1 = nn.Linear(in_features, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(functional.gelu(self.fc1(x)))


class NoisePredictor(nn.Module):
    """The residual MLP of the diffusion head, under its published name."""

    def __init__(self, num_blocks: int, in_features: int, hidden: int, out_features: int):
        super().__init__()
        self.mlp_resnet = ResidualMLP(num_blocks, in_features, hidden, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp_resnet(x)


class OFTRegressionHead(GaussianDensity):
    """Predicts the chunk; the density around it is a normal distribution (`GaussianDensity`)."""

    def __init__(
        self,
        cfg: OFTRegressionHeadCfg,
        backbone: Backbone,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
    ):
        super().__init__(cfg, chunk_length, action_dim)
        self.cfg = cfg
        width = backbone.width
        self.model = ResidualMLP(
            cfg.num_blocks, width * action_dim, cfg.hidden_features, action_dim
        )
        self.proprio_projector = TokenProjector(state_dim, width) if cfg.uses_state else None

    def forward(self, features: Context) -> torch.Tensor:
        width, size = features.backbone.width, self.chunk_length * self.action_dim
        slots_bsd = features.state.new_zeros(len(features), size, width)
        state_bnd = state_token(features, self.proprio_projector, self.cfg.clips_state)
        hidden_bsd = features.backbone.fill_slots(features.view, slots_bsd, state_bnd)
        return self.predict(hidden_bsd)

    def predict(self, hidden_bsd: torch.Tensor) -> torch.Tensor:
        """The chunk, float32 [B, H, A], from the features of its slots."""
        # In bfloat16, the density would differ between sampling and training, so use float32.
        with torch.autocast(hidden_bsd.device.type, enabled=False):
            return self.model(hidden_bsd.float().unflatten(1, (self.chunk_length, -1)).flatten(2))

    def loss(
        self, features: Context, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        loss = masked_mean((self(features) - target_bha).abs(), is_pad)
        return loss, {"loss/action_l1": loss.item()}


class OFTDiffusionHead(ActionHead):
    """Denoises the chunk. A greedy chunk starts from zeros instead of noise.

    The settings are those of diffusers' DDIMScheduler with "squaredcos_cap_v2": the action is
    clipped to [-1, 1], no noise is added, and the last step leads to the action.
    """

    levels: torch.Tensor

    def __init__(
        self,
        cfg: OFTDiffusionHeadCfg,
        backbone: Backbone,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
    ):
        super().__init__(chunk_length, action_dim)
        self.cfg = cfg
        width = backbone.width
        self.noise_predictor = NoisePredictor(
            cfg.num_blocks, width * action_dim, cfg.hidden_features, action_dim
        )
        self.noisy_action_projector = TokenProjector(1, width)
        self.proprio_projector = TokenProjector(state_dim, width) if cfg.uses_state else None
        self.register_buffer("levels", squared_cosine(cfg.num_train_steps), persistent=False)

    def sample(self, features: Context, generator: Generators, greedy: bool) -> HeadSample:
        device, shape = self.is_executed.device, (self.chunk_length, self.action_dim)
        x_bha = torch.zeros(len(features), *shape, device=device)
        if not greedy:
            uniforms = uniform_rows(len(features), x_bha[0].numel(), generator, device)
            x_bha = self.without_left_out(to_normal(uniforms).view_as(x_bha))
        images = features.backbone.image_tokens(features.view)  # the same in every step
        indices = visited(self.cfg.num_train_steps, self.cfg.num_denoise_steps)
        levels = [self.levels[index] for index in indices] + [torch.ones((), device=device)]
        for index, level, after in zip(indices, levels, levels[1:], strict=False):
            index_b = torch.full((len(features),), index, device=device)
            noise_bha = self.noise(features, x_bha, index_b, images)
            level_b, next_b = level.expand(len(features)), after.expand(len(features))
            action_bha = denoised(x_bha, noise_bha, level_b, _CLIP)
            x_bha, _ = ddim_step(action_bha, noise_bha, level_b, next_b, eta=0.0)
            x_bha = self.without_left_out(x_bha)
        return HeadSample(x_bha, None, {})

    def evaluate(
        self, features: Context, replay: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError(
            "a diffusion head has no density and cannot be trained by policy gradients; use "
            "OpenVLA-OFT's L1 head, a token head or a flow-matching head"
        )

    def loss(
        self, features: Context, target_bha: torch.Tensor, is_pad: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """The squared error of the noise at one random level per row. Noise and level come from
        torch's global random generator."""
        noise_bha = without_absent(torch.randn_like(target_bha), is_pad)
        shape, device = (len(target_bha),), target_bha.device
        index_b = torch.randint(self.cfg.num_train_steps, shape, device=device)
        x_bha = noisy(held(target_bha, is_pad), noise_bha, self.levels[index_b])
        error_bha = self.noise(features, x_bha, index_b) - noise_bha
        return masked_mean(error_bha.square(), is_pad), {
            "loss/noise_l1": masked_mean(error_bha.detach().abs(), is_pad).item()
        }

    def noise(
        self,
        features: Context,
        x_bha: torch.Tensor,
        index_b: torch.Tensor,
        images: Sequence[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """The predicted noise in a chunk at noise level `index_b`, float32 [B, H, A]; `images` are
        the backbone's `image_tokens`, if they are known."""
        inserted_bnd = level_embedding(index_b, features.backbone.width).unsqueeze(1)
        state_bnd = state_token(features, self.proprio_projector, self.cfg.clips_state)
        if state_bnd is not None:
            inserted_bnd = torch.cat([state_bnd, inserted_bnd], dim=1)
        slots_bsd = self.noisy_action_projector(x_bha.flatten(1).unsqueeze(-1))
        hidden_bsd = features.backbone.fill_slots(features.view, slots_bsd, inserted_bnd, images)
        steps_bhf = hidden_bsd.float().unflatten(1, (self.chunk_length, -1)).flatten(2)
        return self.noise_predictor(steps_bhf).float()


class OFTTokenHead(ActionTokenHead):
    """All action tokens of a chunk at once, each drawn independently of the others given what the
    policy sees: the OpenVLA-OFT that RLinf (arXiv:2510.06710) and SimpleVLA-RL (arXiv:2509.09674)
    train. Its log-probability has one element per token.

    Bins, tokens and the restriction of probabilities to the N tokens are those of
    `ActionTokenHead`. The loss leaves out the end token, which the originals learn too.
    """

    cfg: OFTTokenHeadCfg

    def __init__(
        self,
        cfg: OFTTokenHeadCfg,
        backbone: Backbone,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
    ):
        super().__init__(cfg, backbone, chunk_length, action_dim, state_dim)
        width = backbone.width
        self.proprio_projector = TokenProjector(state_dim, width) if cfg.uses_state else None

    def sample(self, features: Context, generator: Generators, greedy: bool) -> HeadSample:
        """Sample a chunk; `replay` holds the `tokens` [B, T] of the language."""
        size = self.chunk_length * self.action_dim
        log_probs_btn = self.log_probs(self._slot_logits(features))
        uniforms = None
        if not greedy:
            device = self.is_executed.device
            uniforms = uniform_rows(len(features), size, generator, device).flatten()
        words_bt = draw(log_probs_btn.flatten(0, 1), uniforms).view(-1, size)
        if self.is_left_out is not None:
            is_left_out_t = self.is_left_out.repeat(self.chunk_length)
            words_bt = words_bt.masked_fill(is_left_out_t, self.zero)
        tokens_bt = self.first + words_bt
        actions_bt = decoded(tokens_bt, self.end, self.cfg.num_bins).float()
        return HeadSample(
            actions_bt.unflatten(1, (self.chunk_length, self.action_dim)),
            log_probs_btn.gather(-1, words_bt.unsqueeze(-1)).squeeze(-1),
            {"tokens": tokens_bt},
        )

    def logits(self, features: Context, tokens_bt: torch.Tensor) -> torch.Tensor:
        return self._slot_logits(features)  # no token sees another one

    def _slot_logits(self, features: Context) -> torch.Tensor:
        state_bnd = state_token(features, self.proprio_projector, self.cfg.clips_state)
        size = self.chunk_length * self.action_dim
        return features.backbone.slot_logits(features.view, size, state_bnd)


def state_token(
    context: Context, projector: TokenProjector | None, clips: bool
) -> torch.Tensor | None:
    """The state as one token, [B, 1, D]; None without a projector."""
    if projector is None:
        return None
    state_bd = context.state.clamp(-1, 1) if clips else context.state
    return projector(state_bd).unsqueeze(1)


def level_embedding(level_b: torch.Tensor, width: int) -> torch.Tensor:
    """Sines, then cosines, of a noise level at wavelengths from 2 pi to 20,000 pi, [B, D]."""
    half = width // 2
    places = torch.arange(half, device=level_b.device) / (half - 1)
    angles = level_b.float()[:, None] * torch.exp(-math.log(10000.0) * places)
    return torch.cat([angles.sin(), angles.cos()], dim=1)
