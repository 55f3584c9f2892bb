"""The action expert of pi0 (arXiv:2410.24164) and pi0.5 (arXiv:2504.16054).

The expert is a second, narrower Gemma. Its layer i attends to the keys and values of the backbone's
layer i and to its own tokens; the backbone never attends to the expert. So keys and values are
computed once per observation, and every denoising step and every noise draw reads them.

    pi0:    [state][action 1]...[action H]   a state token sees no action; actions see everything
    pi0.5:  [action 1]...[action H]          the time conditions every norm

The time is Beta(1.5, 1) in training. openpi's sampler adds float32(-1/N) to a float32 time N times,
and the embedding of the time is so fine that actions differ by 1e-4 without the same rounding; so
`share` has it too.

Left out: openpi's dtype rules, by which norms stay in float32 when the layers are in bfloat16.

Legend: B batch, L tokens of the backbone, S tokens of the expert, H steps in an action chunk, A
action dimension of the robot, P padded dimension, W width of the expert.
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional

from rrf.networks.vlm.backbone import Backbone
from rrf.networks.vlm.paligemma.configs import GemmaCfg
from rrf.networks.vlm.paligemma.gemma import Gemma, KeysValues
from rrf.policies.vla.action_heads import output_layer
from rrf.policies.vla.context import Context
from rrf.policies.vla.flow_head import FlowHead
from rrf.policies.vla.flow_matching import ExploreNoiseNet
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg

_BETA = 1.5  # Beta(1.5, 1) has the distribution function t^1.5
_LEAST_SHARE = 0.001


@dataclasses.dataclass
class Prefix:
    """What all denoising steps share."""

    layers: list[KeysValues]
    state_bsw: torch.Tensor  # the state's token, or no token
    positions_bs: torch.Tensor  # int64, positions of the expert's tokens
    mask_b1sl: torch.Tensor  # bool, what they attend to: the backbone's tokens, then their own


class PiExpertHead(FlowHead):
    """See the module.

    Raises:
        ValueError: If the robot has more dimensions than `max_dims`.
    """

    shares: torch.Tensor

    def __init__(
        self,
        cfg: PiExpertHeadCfg,
        backbone: Backbone,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
    ):
        if max(action_dim, state_dim) > cfg.max_dims:
            raise ValueError(
                f"the robot has {state_dim} dimensions of state and {action_dim} of action, but "
                f"max_dims is {cfg.max_dims}; raise it, or choose a smaller action space"
            )
        is_executed_hp = torch.zeros(chunk_length, cfg.max_dims, dtype=torch.bool)
        is_executed_hp[:, :action_dim] = True
        super().__init__(chunk_length, cfg.max_dims, is_executed_hp)
        self.cfg = cfg
        self.width = width = cfg.width
        dims = cfg.max_dims
        self.is_adaptive, self.is_insulated = cfg.version == "pi05", cfg.knowledge_insulation
        self.dtype = torch.bfloat16 if cfg.dtype == "bf16" else torch.float32
        self.expert = Gemma(_sizes(cfg, backbone), width if self.is_adaptive else None)
        self.expert.checkpoints_gradient = backbone.cfg.gradient_checkpointing
        self.expert.to(self.dtype)
        self.action_in_proj = nn.Linear(dims, width)
        self.action_out_proj = output_layer(width, dims)
        if self.is_adaptive:
            self.time_mlp_in, self.time_mlp_out = nn.Linear(width, width), nn.Linear(width, width)
        else:
            self.state_proj = nn.Linear(dims, width)
            self.action_time_mlp_in = nn.Linear(2 * width, width)
            self.action_time_mlp_out = nn.Linear(width, width)
        self.explore_noise = None
        if cfg.noise_method == "reinflow":
            std_widths = cfg.std_hidden_features
            self.explore_noise = ExploreNoiseNet(width, dims, std_widths, cfg.min_std, cfg.max_std)
        self.register_buffer("shares", _shares(cfg.num_denoise_steps), persistent=False)

    def given(self, features: Context) -> Prefix:
        read = features.features
        layers = read.layers
        if self.is_insulated:
            layers = [(keys.detach(), values.detach()) for keys, values in layers]
        state_bsw = self._state(features.state)
        batch, num_state = state_bsw.shape[:2]
        num_suffix = num_state + self.chunk_length
        places_s = torch.arange(num_suffix, device=read.is_token.device)
        is_seen_ss = (places_s < num_state) | (places_s[:, None] >= num_state)
        mask_bsl = torch.cat(
            [
                read.is_token[:, None].expand(-1, num_suffix, -1),
                is_seen_ss.expand(batch, -1, -1),
            ],
            dim=2,
        )
        positions_bs = read.is_token.sum(1, keepdim=True) + places_s
        return Prefix(layers, state_bsw, positions_bs, mask_bsl[:, None])

    def velocity(
        self, given: Prefix, x_bha: torch.Tensor, share_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        # In bfloat16, the density would differ between sampling and training.
        with torch.autocast(x_bha.device.type, enabled=False):
            suffix_bsw, condition_bw = self.suffix(given, x_bha, share_b)
            suffix_output_bsw, _ = self.expert(
                suffix_bsw.to(self.dtype),
                given.positions_bs,
                given.mask_b1sl,
                given.layers,
                condition_bw,
            )
            output_bhw = suffix_output_bsw[:, -self.chunk_length :].float()
            std_bhp = None
            if self.explore_noise:
                std_bhp = self.explore_noise(output_bhw) * self.noise_factor
            return self.action_out_proj(output_bhw), std_bhp

    def suffix(
        self, given: Prefix, x_bhp: torch.Tensor, share_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The expert's tokens [B, S, W], and what conditions its norms: [B, W] or None."""
        periods = self.cfg.min_period, self.cfg.max_period
        time_bw = time_features(share_b, self.width, periods)
        actions_bhw = self.action_in_proj(x_bhp)
        if self.is_adaptive:
            hidden_bw = functional.silu(self.time_mlp_in(time_bw))
            return actions_bhw, functional.silu(self.time_mlp_out(hidden_bw))
        both_bhw = torch.cat([actions_bhw, time_bw.unsqueeze(1).expand_as(actions_bhw)], dim=2)
        actions_bhw = self.action_time_mlp_out(functional.silu(self.action_time_mlp_in(both_bhw)))
        return torch.cat([given.state_bsw, actions_bhw], dim=1), None

    def share(self, steps_b: torch.Tensor) -> torch.Tensor:
        return self.shares[steps_b]

    def draw_share(self, batch: int, device: torch.device) -> torch.Tensor:
        beta_b = torch.rand(batch, device=device) ** (1 / _BETA)
        return beta_b * (1 - _LEAST_SHARE) + _LEAST_SHARE

    def _state(self, state_bd: torch.Tensor) -> torch.Tensor:
        if self.is_adaptive:
            return state_bd.new_zeros(len(state_bd), 0, self.width)
        wide_bp = functional.pad(state_bd, (0, self.action_dim - state_bd.shape[1]))
        with torch.autocast(state_bd.device.type, enabled=False):
            return self.state_proj(wide_bp).unsqueeze(1)


def time_features(
    share_b: torch.Tensor, num_features: int, periods: tuple[float, float]
) -> torch.Tensor:
    """Sines, then cosines, of a time from 0 to 1, between the shortest and the longest period;
    float32.

    Computed in float64, because the fastest wave of the published models turns 250 times.
    """
    shortest, longest = periods
    fraction = torch.linspace(
        0.0, 1.0, num_features // 2, dtype=torch.float64, device=share_b.device
    )
    period = shortest * (longest / shortest) ** fraction
    angle = 2 * math.pi / period * share_b[:, None].double()
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def _sizes(cfg: PiExpertHeadCfg, backbone: Backbone) -> GemmaCfg:
    depth, num_kv_heads, head_dim = backbone.cfg.layer_shape
    return GemmaCfg(
        width=cfg.width,
        depth=depth,
        mlp_dim=cfg.mlp_dim,
        num_heads=cfg.num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
    )


def _shares(num_steps: int) -> torch.Tensor:
    """The share of noise before each step, with openpi's rounding."""
    share, shares = torch.ones(()), []
    for _ in range(num_steps):
        shares.append(share)
        share = share + torch.tensor(-1.0 / num_steps)
    return torch.stack(shares)
