"""Configs of policies and critics for state-based control. This file does not import torch."""

import dataclasses
import typing

from rrf.config import Cfg, configclass, require_at_least_one, require_positive
from rrf.networks.configs import MLPCfg, plain_mlp

_HIDDEN = plain_mlp([256, 256], "ELU")


@configclass
class MemoryCfg(Cfg):
    """A recurrent layer in front of the backbone, for partially observable tasks."""

    kind: typing.Literal["gru", "lstm"] = "gru"
    """Type of the recurrent layer."""
    hidden_size: int = 128
    """Width of the hidden state."""
    num_layers: int = 1
    """Number of stacked layers."""

    def __post_init__(self):
        require_at_least_one(self, "hidden_size", "num_layers")


@configclass
class StateNetworkCfg(Cfg):
    """The settings that actors and critics share: which observations they read, and how."""

    backbone_cfg: MLPCfg = _HIDDEN
    """Network from the observations (or the memory's output) to the outputs."""
    observation_groups: list[str] | None = None
    """Observation groups that the network reads, concatenated in this order. null: an actor reads
    "actor", or "policy" if there is no such group; a critic reads "critic", or the actor's groups
    if there is no such group."""
    obs_normalization: bool = True
    """Normalise observations to zero mean and unit variance with running statistics. These are
    saved with the weights."""
    memory: MemoryCfg | None = None
    """Recurrent layer in front of the backbone; null for none."""


@configclass
class ActorCfg(StateNetworkCfg):
    """A stochastic policy for on-policy algorithms."""

    def suited(self, num_choices: int | None) -> "ActorCfg":
        """The config of the actor for `num_choices` discrete actions, or for real ones (None)."""
        return self


@configclass(builds="rrf.policies.control.actor_critic:GaussianActor")
class StateIndStdActorCfg(ActorCfg):
    """A Gaussian whose mean depends on the observation and whose standard deviation does not."""

    use_log_std: bool = True
    """Learn the logarithm of the standard deviation, so that it cannot become negative. false
    learns the standard deviation itself, like older rsl_rl checkpoints."""
    init_std: float = 1.0
    """Initial standard deviation, in action units."""
    min_std: float = 1e-3
    """Lower bound of the standard deviation."""
    max_std: float = 10.0
    """Upper bound of the standard deviation, so that exploration cannot explode."""

    def __post_init__(self):
        if not 0 < self.min_std <= self.init_std <= self.max_std:
            raise ValueError(
                f"min_std is {self.min_std}, init_std {self.init_std} and max_std {self.max_std}, "
                "allowed: above 0 and in increasing order"
            )

    def suited(self, num_choices: int | None) -> ActorCfg:
        """For discrete actions, a categorical actor with the same network.

        A config that sets more than the network, such as `init_std`, stays as it is; building it
        for discrete actions is then an error.
        """
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(ActorCfg)}
        is_plain = type(self) is StateIndStdActorCfg and self == StateIndStdActorCfg(**shared)
        return CategoricalActorCfg(**shared) if num_choices is not None and is_plain else self


@configclass(builds="rrf.policies.control.lipsnet:LipsNetActor")
class LipsNetActorCfg(StateIndStdActorCfg):
    """A Gaussian whose mean network bounds its own Lipschitz constant (LipsNet, ICML 2023). Train
    it with algorithms.LipsNetPPOCfg."""

    init_lipschitz: float = 5.0
    """Initial Lipschitz constant, in action units per standard deviation of the observation."""
    lipschitz_network_cfg: MLPCfg | None = None
    """A network that predicts the Lipschitz constant from the state, e.g. with one tanh layer of
    32; null learns a single constant for all states."""
    eps: float = 1e-2
    """Added to the norm of the Jacobian, by which outputs are divided. With the paper's 1e-4,
    actions jump where the network is nearly flat."""
    squash: bool = True
    """Apply tanh to the output, as in the paper, so that mean actions lie within [-1, 1]."""

    def __post_init__(self):
        super().__post_init__()
        require_positive(self, "init_lipschitz", "eps")


@configclass(builds="rrf.policies.control.actor_critic:CategoricalActor")
class CategoricalActorCfg(ActorCfg):
    """A policy for discrete actions: it predicts the probability of each."""


@configclass
class CriticCfg(StateNetworkCfg):
    """A critic for on-policy algorithms: it predicts the return."""


@configclass(builds="rrf.policies.control.actor_critic:VNetwork")
class VNetworkCfg(CriticCfg):
    """A critic that predicts the value of a state."""


@configclass
class ControlPolicyCfg(Cfg):
    """The policy that a checkpoint of state-based control stores. An `Interface` builds it."""


@configclass(builds="rrf.policies.control.actor_critic:ActorCritic")
class ActorCriticPackCfg(ControlPolicyCfg):
    """An actor and its critic, which share no parameters."""

    actor_cfg: ActorCfg = StateIndStdActorCfg()
    """The policy. The default, a Gaussian, gives way to a categorical one for discrete actions."""
    critic_cfg: CriticCfg = VNetworkCfg()
    """The critic, which may see more than the actor (observation group "critic")."""


@configclass(builds="rrf.policies.control.population:PopulationActorCritic")
class PopulationPackCfg(ActorCriticPackCfg):
    """An actor and a critic that all members of a population share. The first member, the leader,
    is deployed."""

    num_members: int = 6
    """Number of members. One is the same as no population."""
    latent_dim: int = 32
    """Width of the latent vector that tells the networks which member acts."""
    learn_latents: bool = True
    """Learn the latent vectors together with the networks. false: only evolution changes them."""
    std_per_member: bool = True
    """Each member learns its own standard deviation, so that some members explore more."""

    def __post_init__(self):
        require_at_least_one(self, "num_members", "latent_dim")
