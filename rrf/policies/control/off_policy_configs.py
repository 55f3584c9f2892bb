"""What the policies and critics of off-policy algorithms look like, as data. Imports no torch."""

from rrf.config import Cfg, configclass
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.policies.control.configs import ControlPolicyCfg

_HIDDEN = plain_mlp([256, 256], "ReLU")


@configclass
class SequenceEncoderCfg(Cfg):
    """What turns a history of observations into features, where one observation hides something."""


@configclass(builds="rrf.policies.control.sequence_encoder:GRUEncoder")
class GRUEncoderCfg(SequenceEncoderCfg):
    """A gated recurrent layer (arXiv:1406.1078)."""

    hidden_size: int = 64
    """Width of its state, which is its output too."""

    def __post_init__(self):
        if self.hidden_size < 1:
            raise ValueError(f"hidden_size is {self.hidden_size}, allowed: 1 or more")


@configclass(builds="rrf.policies.control.sequence_encoder:TransformerEncoder")
class TransformerEncoderCfg(SequenceEncoderCfg):
    """A causal transformer over the last observations of the episode."""

    num_layers: int = 2
    """Blocks of attention and feed-forward layer."""
    width: int = 64
    """Width of a token, and of the output."""
    num_heads: int = 4
    """Attention heads of a block."""
    context: int = 16
    """Observations it looks back on, the current one among them."""

    def __post_init__(self):
        for name in ("num_layers", "width", "num_heads", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
        if self.width % self.num_heads:
            raise ValueError(
                f"width is {self.width} and num_heads {self.num_heads}; width must be a multiple "
                "of num_heads"
            )


@configclass
class EncodedNetworkCfg(Cfg):
    """What actors and critics have in common: which observations they read, and how."""

    backbone_cfg: MLPCfg = _HIDDEN
    """From observations (or the encoder's features) to the outputs."""
    observation_groups: list[str] | None = None
    """Groups that are joined, in this order. Null: an actor reads "actor" or else "policy", a
    critic reads "critic" or else what the actor reads."""
    obs_normalization: bool = False
    """Bring observations to zero mean and unit variance with running statistics, which are saved
    with the weights."""
    encoder: SequenceEncoderCfg | None = None
    """What makes features of a history of observations; null looks at the current one alone."""


@configclass(builds="rrf.policies.control.off_policy_actors:SACActor")
class SACActorCfg(EncodedNetworkCfg):
    """A Gaussian squashed by tanh; its mean and standard deviation depend on the observation."""

    min_log_std: float = -20.0
    """The logarithm of the standard deviation, before tanh, is cut off below this."""
    max_log_std: float = 2.0
    """The logarithm of the standard deviation, before tanh, is cut off above this."""
    action_limit: float = 1.0
    """Actions lie between minus and plus this. Environments map [-1, 1] to what their task allows;
    tasks without bounds, as legged robots with joint targets, may need more."""

    def __post_init__(self):
        if not self.min_log_std < self.max_log_std:
            raise ValueError(
                f"min_log_std is {self.min_log_std} and max_log_std {self.max_log_std}, allowed: "
                "the first below the second"
            )
        if self.action_limit <= 0:
            raise ValueError(f"action_limit is {self.action_limit}, allowed: above 0")


@configclass(builds="rrf.policies.control.batched_critics:QNetwork")
class QNetworkCfg(EncodedNetworkCfg):
    """The return of taking an action in a state, estimated by independent copies of one network."""

    num_critics: int = 2
    """Copies; of several estimates the lowest counts, which keeps errors from reinforcing
    themselves (arXiv:1802.09477)."""

    def __post_init__(self):
        if self.num_critics < 1:
            raise ValueError(f"num_critics is {self.num_critics}, allowed: 1 or more")


@configclass(builds="rrf.policies.control.batched_critics:DistributionalQ")
class DistributionalQCfg(QNetworkCfg):
    """The return as a normal distribution: its mean and standard deviation (arXiv:2001.02811)."""


@configclass(builds="rrf.policies.control.actor_q:ActorQ")
class ActorQPackCfg(ControlPolicyCfg):
    """An actor and its action-value critics, which share no parameters."""

    actor_cfg: SACActorCfg = SACActorCfg()
    """The policy."""
    critic_cfg: QNetworkCfg = QNetworkCfg()
    """The critics, which may see more than the actor (observation group "critic")."""
