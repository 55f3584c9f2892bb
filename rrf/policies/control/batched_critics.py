"""Action-value critics: several copies of one network, computed together.

Legend: K copies, B batch, O observation width, D feature width, A action dimension, C
choices of a discrete action.
"""

import torch
from torch.nn import functional

from rrf.envs.control_env import Interface
from rrf.networks.batched_mlp import BatchedMLP
from rrf.policies.control.discrete_configs import DiscreteQNetworkCfg
from rrf.policies.control.encoded_network import EncodedNetwork
from rrf.policies.control.off_policy_configs import DistributionalQCfg, QNetworkCfg
from rrf.policies.control.state_network import critic_groups


class QNetwork(EncodedNetwork):
    """K estimates of the return of an action. They share the encoder, if there is one."""

    outputs_per_copy = 1

    def __init__(self, cfg: QNetworkCfg, interface: Interface, actor_groups: list[str]):
        dims = interface.observation_dims
        super().__init__(cfg, critic_groups(cfg.observation_groups, actor_groups, dims), dims)
        self.backbone = BatchedMLP(
            cfg.backbone_cfg,
            cfg.num_critics,
            self.num_features + interface.num_actions,
            self.outputs_per_copy,
        )

    def forward(self, features_bd: torch.Tensor, actions_ba: torch.Tensor) -> torch.Tensor:
        """Expected returns [K, B]."""
        return self.backbone(torch.cat([features_bd, actions_ba], -1))[..., 0]


class DistributionalQ(QNetwork):
    """K normal distributions of the return (arXiv:2001.02811)."""

    outputs_per_copy = 2

    def __init__(self, cfg: DistributionalQCfg, interface: Interface, actor_groups: list[str]):
        super().__init__(cfg, interface, actor_groups)

    def mean_and_std(
        self, features_bd: torch.Tensor, actions_ba: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Means and standard deviations of the return, each [K, B]."""
        outputs = self.backbone(torch.cat([features_bd, actions_ba], -1))
        return outputs[..., 0], functional.softplus(outputs[..., 1])


class DiscreteQNetwork(EncodedNetwork):
    """K estimates of the return of each discrete action."""

    def __init__(self, cfg: DiscreteQNetworkCfg, interface: Interface, actor_groups: list[str]):
        dims, choices = interface.observation_dims, interface.num_choices
        super().__init__(cfg, critic_groups(cfg.observation_groups, actor_groups, dims), dims)
        assert choices is not None, "the actor, which is built first, refuses real actions"
        self.backbone = BatchedMLP(cfg.backbone_cfg, cfg.num_critics, self.num_features, choices)

    def forward(self, features_bd: torch.Tensor) -> torch.Tensor:
        """Expected returns [K, B, C]."""
        return self.backbone(features_bd)
