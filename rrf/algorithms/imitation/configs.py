"""Configs of GAIL and of discriminators. This file does not import torch."""

import typing

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.config import (
    Cfg,
    configclass,
    require_at_least_one,
    require_not_negative,
    require_positive,
)
from rrf.networks.configs import MLPCfg, plain_mlp


@configclass
class DiscriminatorCfg(Cfg):
    """A network that tells the expert's transitions from the policy's, and how it learns."""

    network_cfg: MLPCfg = plain_mlp([256, 256], "Tanh")
    """Architecture of the network."""
    learning_rate: float = 3e-4
    """Learning rate of Adam."""
    num_updates: int = 8
    """Gradient steps per rollout."""
    batch_size: int = 256
    """Transitions of the expert in a gradient step, and as many of the policy."""
    gradient_penalty_coef: float = 10.0
    """Weight of the penalty on the gradient (arXiv:1704.00028); 0 for none."""

    def __post_init__(self):
        require_not_negative(self, "gradient_penalty_coef")
        require_at_least_one(self, "num_updates", "batch_size")
        require_positive(self, "learning_rate")


@configclass(builds="rrf.algorithms.imitation.gail:GAIL")
class GAILCfg(PPOCfg):
    """Generative adversarial imitation learning (arXiv:1606.03476) with PPO."""

    discriminator_cfg: DiscriminatorCfg = DiscriminatorCfg()
    """What tells the expert from the policy."""
    reward: typing.Literal["gail", "airl"] = "gail"
    """gail: -log(1 - D), always positive, which favours long episodes. airl: log D - log(1 - D)
    (arXiv:1710.11248), of either sign. D is the probability that a transition is the expert's."""
    compares: typing.Literal["actions", "next_states"] = "actions"
    """What D sees beside a state: the action in it, or the state that followed it
    (arXiv:1807.06158)."""
    use_absorbing_states: bool = True
    """Reward the time after a termination by how often the expert's episodes terminate
    (arXiv:1809.02925). Otherwise it earns 0, and the sign of the reward decides whether long
    episodes pay."""
    cloning_updates: int = 0
    """Gradient steps of behaviour cloning before the first rollout, which fit the mean action to
    the expert's; 0 for none."""

    def __post_init__(self):
        super().__post_init__()
        require_not_negative(self, "cloning_updates")
        if self.use_absorbing_states and self.gamma == 1:
            raise ValueError(
                "gamma is 1, so the reward after a termination has no finite sum; set gamma below "
                "1, or use_absorbing_states=false"
            )
