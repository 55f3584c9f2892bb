"""Critics of on-policy algorithms. Legend: B batch, O observation width."""

import torch

from rrf.envs.control_env import Interface
from rrf.policies.control.actors import critic_groups
from rrf.policies.control.configs import VNetworkCfg
from rrf.policies.control.state_network import StateNetwork


class VNetwork(StateNetwork):
    """Predicts the value of a state; its outputs are [..., 1]."""

    def __init__(self, cfg: VNetworkCfg, interface: Interface, actor_groups: list[str]):
        dims = interface.observation_dims
        super().__init__(cfg, critic_groups(cfg.observation_groups, actor_groups, dims), dims, 1)

    def value(self, x: torch.Tensor) -> torch.Tensor:
        """Values [...] for joined observations [..., O]; for critics without a memory."""
        return self(x).squeeze(-1)
