"""Config of PPO with a loss of the backbone. This file does not import torch."""

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.config import configclass, require_not_negative


@configclass(builds="rrf.algorithms.on_policy.auxiliary:AuxiliaryPPO")
class AuxiliaryPPOCfg(PPOCfg):
    """PPO whose actor's backbone has a loss of its own: a mixture of experts, or an autoencoder."""

    auxiliary_coef: float = 0.01
    """Weight of that loss."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "auxiliary_coef")
