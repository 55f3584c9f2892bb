"""Critics of discrete actions: one value for each action.

Legend: K copies, B batch, D feature width, C choices.
"""

import torch

from rrf.envs.control_env import Interface
from rrf.networks.batched_mlp import BatchedMLP
from rrf.policies.control.discrete_configs import DiscreteQNetworkCfg
from rrf.policies.control.encoded_network import EncodedNetwork
from rrf.policies.control.state_network import critic_groups


class DiscreteQNetwork(EncodedNetwork):
    """K estimates of the return of each action."""

    def __init__(self, cfg: DiscreteQNetworkCfg, interface: Interface, actor_groups: list[str]):
        dims, choices = interface.observation_dims, interface.num_choices
        super().__init__(cfg, critic_groups(cfg.observation_groups, actor_groups, dims), dims)
        assert choices is not None, "the actor, which is built first, refuses real actions"
        self.backbone = BatchedMLP(cfg.backbone_cfg, cfg.num_critics, self.num_features, choices)

    def forward(self, features_bd: torch.Tensor) -> torch.Tensor:
        """Expected returns [K, B, C]."""
        return self.backbone(features_bd)
