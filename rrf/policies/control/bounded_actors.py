"""Policies of offline algorithms. Legend: B batch, O observation width, A action dimension."""

import torch
from torch import nn

from rrf.envs.control_env import Interface
from rrf.networks.configs import without_dropout
from rrf.policies.control.actors import ACTOR_GROUPS
from rrf.policies.control.bounded_gaussian import BoundedGaussian
from rrf.policies.control.encoded_network import EncodedNetwork
from rrf.policies.control.offline_configs import BoundedActorCfg
from rrf.policies.control.state_network import groups_of


class BoundedActor(EncodedNetwork):
    """Maps observations to a `BoundedGaussian`. Outputs are the means, [..., A], before tanh."""

    def __init__(self, cfg: BoundedActorCfg, interface: Interface):
        if interface.num_choices is not None:
            raise ValueError(
                f"{interface.task or 'this environment'} has {interface.num_choices} discrete "
                "actions, which this policy cannot choose from"
            )
        dims = interface.observation_dims
        super().__init__(cfg, groups_of(cfg.observation_groups, ACTOR_GROUPS, dims, "actor"), dims)
        self.num_actions, self.action_limit = interface.num_actions, cfg.action_limit
        self.log_std_bounds = (cfg.min_log_std, cfg.max_log_std)
        self.backbone = without_dropout(cfg.backbone_cfg).build(
            self.num_features, interface.num_actions
        )
        log_std = None if cfg.is_deterministic else nn.Parameter(torch.zeros(self.num_actions))
        self.log_std: nn.Parameter | None
        self.register_parameter("log_std", log_std)

    def forward(self, x_bo: torch.Tensor) -> torch.Tensor:
        """Outputs [B, A] for joined observations."""
        return self.backbone(self.normalized(x_bo))

    def step(
        self, x_bo: torch.Tensor, memory: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Outputs [B, A] for one time step, and the memory, which there is none."""
        features, memory = self.encode(x_bo, memory)
        return self.backbone(features), memory

    def distribution(self, outputs: torch.Tensor) -> BoundedGaussian:
        """The distribution that the backbone's outputs describe."""
        mean, log_std = self.action_limit * outputs.tanh(), self.log_std
        if log_std is not None:
            log_std = log_std.clamp(*self.log_std_bounds)
        return BoundedGaussian(mean, log_std, self.action_limit)
