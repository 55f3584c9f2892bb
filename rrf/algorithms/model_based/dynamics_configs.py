"""Configs of models of the dynamics that recorded transitions teach. Does not import torch."""

from rrf.config import Cfg, configclass, require_at_least_one
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.policies.control.configs import ControlPolicyCfg


@configclass
class DynamicsModelCfg(ControlPolicyCfg):
    """A model that predicts the next state, the reward and the termination."""

    context: int = 1
    """Number of pairs of state and action that a prediction reads, the current one included."""

    def __post_init__(self):
        require_at_least_one(self, "context")


@configclass(builds="rrf.algorithms.model_based.dynamics_models:MLPDynamics")
class MLPDynamicsCfg(DynamicsModelCfg):
    """A perceptron over the last pairs of state and action."""

    network_cfg: MLPCfg = plain_mlp([256, 256], "SiLU")
    """Architecture."""


@configclass(builds="rrf.algorithms.model_based.dynamics_models:TransformerDynamics")
class TransformerDynamicsCfg(DynamicsModelCfg):
    """A causal transformer over the last pairs of state and action; each pair is a token."""

    context = 16
    num_layers: int = 3
    """Number of blocks; each has an attention and a feed-forward layer."""
    width: int = 128
    """Width of a token."""
    num_heads: int = 4
    """Attention heads per block."""

    def __post_init__(self):
        super().__post_init__()
        require_at_least_one(self, "num_layers", "width", "num_heads")
        if self.width % self.num_heads:
            raise ValueError(
                f"width is {self.width} and num_heads {self.num_heads}; width must be a multiple "
                "of num_heads"
            )


@configclass(builds="rrf.algorithms.model_based.dynamics:DynamicsLearner")
class DynamicsCfg(Cfg):
    """Regression on windows of recorded episodes."""

    learning_rate: float = 1e-3
    """Learning rate of Adam at the beginning. It falls to 0 on a cosine."""
    decay_updates: int = 10_000
    """Gradient steps over which the learning rate falls to 0."""
    batch_size: int = 256
    """Windows per gradient step."""
    window: int = 1
    """Transitions of a window. All are predicted, each from those before it in the window, as far
    as the model's context reaches."""
    termination_weight: float = 0.1
    """Weight of the loss of terminations against that of rewards and states."""

    def __post_init__(self):
        require_at_least_one(self, "decay_updates", "batch_size", "window")
        if self.learning_rate <= 0 or self.termination_weight < 0:
            raise ValueError(
                f"learning_rate is {self.learning_rate} and termination_weight "
                f"{self.termination_weight}, allowed: above 0, and 0 or more"
            )
