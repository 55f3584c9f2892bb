"""The critic of a policy whose head reads more of a backbone than one vector.

Such a policy joins no vector that a value could be read from, so the critic has the layers for it.
All of them are new when a policy is first trained by PPO, and only the value loss trains them.

Legend: B batch, D width of the backbone, F features, V values.
"""

import torch
from torch import nn
from torch.nn import functional

from rrf.networks.mlp import MLP
from rrf.policies.vla.vlm_configs import VLMPolicyCfg


class Critic(nn.Module):
    """A vector of the backbone and the state -> values.

    Args:
        cfg: The policy's config, with a value head.
        width: Width of the backbone's vector.
        num_values: Values per chunk.
    """

    def __init__(self, cfg: VLMPolicyCfg, width: int, num_values: int):
        super().__init__()
        assert cfg.value_head is not None
        self._detaches = cfg.value_head.detaches
        self.state_encoder = nn.Linear(cfg.state_width, cfg.state_features)
        self.trunk = MLP(cfg.trunk, width + cfg.state_features, cfg.features)
        self.mlp = MLP(cfg.value_head.mlp, cfg.features, num_values)

    def forward(self, pooled_bd: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """float32 [B, V]."""
        if self._detaches:
            pooled_bd = pooled_bd.detach()
        state_bd = functional.relu(self.state_encoder(state))
        return self.mlp(self.trunk(torch.cat([pooled_bd, state_bd], dim=1)))
