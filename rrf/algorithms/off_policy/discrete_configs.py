"""Config of SAC for discrete actions. This file does not import torch."""

from rrf.algorithms.off_policy.configs import SACCfg
from rrf.config import configclass


@configclass(builds="rrf.algorithms.off_policy.discrete_sac:DiscreteSAC")
class DiscreteSACCfg(SACCfg):
    """SAC for discrete actions (arXiv:1910.07207). Use it with components.DiscreteActorQPackCfg."""

    target_entropy: float | None = None
    """Target entropy in nats; null uses target_entropy_fraction."""
    target_entropy_fraction: float = 0.98
    """Target entropy as a fraction of the largest one, log(number of actions). The paper's 0.98
    keeps actions almost uniformly random; easy tasks need less."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.target_entropy_fraction <= 1:
            raise ValueError(
                f"target_entropy_fraction is {self.target_entropy_fraction}, allowed: above 0 and "
                "up to 1"
            )
