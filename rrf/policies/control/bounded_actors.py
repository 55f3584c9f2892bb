"""Policies of offline algorithms. Legend: A action dimension."""

import torch
from torch import nn

from rrf.envs.control_env import Interface
from rrf.policies.control.bounded_gaussian import BoundedGaussian
from rrf.policies.control.off_policy_actors import RealActor
from rrf.policies.control.offline_configs import BoundedActorCfg


class BoundedActor(RealActor):
    """Maps observations to a `BoundedGaussian`. Outputs are the means, [..., A], before tanh."""

    trained_by, numbers_per_action = "offline learning", 1

    def __init__(self, cfg: BoundedActorCfg, interface: Interface):
        super().__init__(cfg, interface)
        log_std = None if cfg.is_deterministic else nn.Parameter(torch.zeros(self.num_actions))
        self.log_std: nn.Parameter | None
        self.register_parameter("log_std", log_std)

    def distribution(self, outputs: torch.Tensor) -> BoundedGaussian:
        """The distribution that the backbone's outputs describe."""
        mean, log_std = self.action_limit * outputs.tanh(), self.log_std
        if log_std is not None:
            log_std = log_std.clamp(*self.log_std_bounds)
        return BoundedGaussian(mean, log_std, self.action_limit)
