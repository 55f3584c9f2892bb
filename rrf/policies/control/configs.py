"""What the policies and critics of state-based control look like, as data. Imports no torch."""

import typing

from rrf.config import Cfg, configclass
from rrf.networks.configs import MLPCfg, plain_mlp

_HIDDEN = plain_mlp([256, 256], "ELU")


@configclass
class MemoryCfg(Cfg):
    """A recurrent layer in front of the backbone, for tasks whose observations hide something."""

    kind: typing.Literal["gru", "lstm"] = "gru"
    """The layer."""
    hidden_size: int = 128
    """Width of its state."""
    num_layers: int = 1
    """How many are stacked."""

    def __post_init__(self):
        for name in ("hidden_size", "num_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")


@configclass
class StateNetworkCfg(Cfg):
    """What actors and critics have in common: which observations they read, and how."""

    backbone_cfg: MLPCfg = _HIDDEN
    """From observations (or the memory's output) to the outputs."""
    observation_groups: list[str] | None = None
    """Groups that are joined, in this order. Null: an actor reads "actor" or else "policy", a
    critic reads "critic" or else what the actor reads."""
    obs_normalization: bool = True
    """Bring observations to zero mean and unit variance with running statistics, which are saved
    with the weights."""
    memory: MemoryCfg | None = None
    """Recurrent layer; null for none."""


@configclass
class ActorCfg(StateNetworkCfg):
    """A stochastic policy of on-policy algorithms."""


@configclass(builds="rrf.policies.control.actors:GaussianActor")
class StateIndStdActorCfg(ActorCfg):
    """A Gaussian whose mean depends on the observation and whose standard deviation does not."""

    use_log_std: bool = True
    """Learn the logarithm of the standard deviation, which cannot become negative. False learns it
    itself, as older rsl_rl checkpoints do, and keeps it at or above min_std."""
    init_std: float = 1.0
    """Standard deviation at the start, in action units."""
    min_std: float = 1e-3
    """The standard deviation is kept at or above this."""
    max_std: float = 10.0
    """The standard deviation is kept at or below this, so that exploration cannot explode."""

    def __post_init__(self):
        if not 0 < self.min_std <= self.init_std <= self.max_std:
            raise ValueError(
                f"min_std is {self.min_std}, init_std {self.init_std} and max_std {self.max_std}, "
                "allowed: above 0 and in this order"
            )


@configclass(builds="rrf.policies.control.lipsnet:LipsNetActor")
class LipsNetActorCfg(StateIndStdActorCfg):
    """A Gaussian whose mean bounds its own Lipschitz constant (LipsNet, ICML 2023); train it with
    algorithms.LipsNetPPOCfg."""

    init_lipschitz: float = 5.0
    """The constant at the start: action units per standard deviation of the observation."""
    lipschitz_network_cfg: MLPCfg | None = None
    """A network that makes the constant depend on the state, e.g. one tanh layer of 32; null learns
    a single one."""
    eps: float = 1e-2
    """Added to the norm of the Jacobian before it divides. With the paper's 1e-4 actions leap where
    the network is nearly flat."""
    squash: bool = True
    """A tanh after it, as in the paper: mean actions within [-1, 1]."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("init_lipschitz", "eps"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: above 0")


@configclass(builds="rrf.policies.control.actors:CategoricalActor")
class CategoricalActorCfg(ActorCfg):
    """Probabilities over a finite number of actions."""


@configclass
class CriticCfg(StateNetworkCfg):
    """What an on-policy algorithm takes for the return to come."""


@configclass(builds="rrf.policies.control.critics:VNetwork")
class VNetworkCfg(CriticCfg):
    """The value of a state."""


@configclass
class ControlPolicyCfg(Cfg):
    """What a checkpoint of state-based control holds: it is built from an `Interface`."""


@configclass(builds="rrf.policies.control.actor_critic:ActorCritic")
class ActorCriticPackCfg(ControlPolicyCfg):
    """An actor and its critic, which share no parameters."""

    actor_cfg: ActorCfg = StateIndStdActorCfg()
    """The policy."""
    critic_cfg: CriticCfg = VNetworkCfg()
    """The critic, which may see more than the actor (observation group "critic")."""


@configclass(builds="rrf.policies.control.population:PopulationActorCritic")
class PopulationPackCfg(ActorCriticPackCfg):
    """Actor and critic of a population, shared by its members; the first of them is deployed."""

    num_members: int = 6
    """How many there are. One is the same as no population."""
    latent_dim: int = 32
    """Width of the vector that tells the networks which member acts."""
    learn_latents: bool = True
    """Learn these vectors with the networks. False leaves them to evolution."""
    std_per_member: bool = True
    """Each member learns a standard deviation of its own, so that some explore more."""

    def __post_init__(self):
        for name in ("num_members", "latent_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, allowed: 1 or more")
