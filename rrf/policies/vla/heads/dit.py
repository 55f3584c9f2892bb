"""A flow-matching head: a diffusion transformer that attends to the tokens of any backbone.

Its own tokens are the state and one per step of the noisy chunk, each with a learned position. The
time scales and shifts the blocks. It is GR00T's head (arXiv:2503.14734) without what is made for
many robots, in both time conventions.

Legend: B rows, H steps in a chunk, A action dimension, S tokens of the backbone, W width of a
token.
"""

import dataclasses

import torch
from torch import nn

from rrf.networks.dit import DiT, KeysValues
from rrf.networks.vlm.backbone import Backbone
from rrf.policies.vla.action_heads import output_layer
from rrf.policies.vla.context import Context
from rrf.policies.vla.flow_head import FlowHead
from rrf.policies.vla.flow_matching import ExploreNoiseNet, flow_time
from rrf.policies.vla.heads.dit_configs import DiTHeadCfg

_TIME_SCALE = 1000.0  # the transformer's waves are made for times from 0 to 1000


@dataclasses.dataclass
class Given:
    """What all denoising steps share."""

    memory: list[KeysValues]
    is_token: torch.Tensor  # bool [B, S]
    state: torch.Tensor  # the state's token, [B, 1, W]


class DiTHead(FlowHead[DiTHeadCfg]):
    """See the module."""

    def __init__(
        self,
        cfg: DiTHeadCfg,
        backbone: Backbone,
        chunk_length: int,
        action_dim: int,
        state_dim: int,
    ):
        super().__init__(chunk_length, action_dim)
        self.cfg = cfg
        width = cfg.dit.width
        self.memory_norm = nn.LayerNorm(backbone.width)
        self.model = DiT(cfg.dit, backbone.width, width)
        self.state_encoder = nn.Linear(state_dim, width)
        self.action_encoder = nn.Linear(action_dim, width)
        self.positions = nn.Parameter(0.02 * torch.randn(1 + chunk_length, width))
        self.action_decoder = output_layer(width, action_dim)
        self.explore_noise = None
        if cfg.noise_method == "reinflow":
            self.explore_noise = ExploreNoiseNet(
                width, action_dim, cfg.std_hidden_features, cfg.min_std, cfg.max_std
            )

    def given(self, features: Context) -> Given:
        read = features.features
        tokens_bsm = self.memory_norm(read.tokens.to(self.memory_norm.weight.dtype))
        state_b1w = self.state_encoder(features.state).unsqueeze(1)
        return Given(self.model.memory(tokens_bsm), read.is_token, state_b1w)

    def velocity(
        self, given: Given, x_bha: torch.Tensor, share_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        time_b = flow_time(share_b, self.cfg.time_convention) * _TIME_SCALE
        tokens_blw = torch.cat([given.state, self.action_encoder(x_bha)], 1) + self.positions
        output_blw = self.model(tokens_blw, given.memory, time_b, [given.is_token])
        hidden_bhw = output_blw[:, 1:]
        velocity_bha = self.action_decoder(hidden_bhw).float()
        if self.explore_noise is None:
            return velocity_bha, None
        return velocity_bha, self.explore_noise(hidden_bhw).float() * self.noise_factor
