"""Configs of the policies of off-policy algorithms for discrete actions. Does not import torch."""

from rrf.config import configclass
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import CategoricalActorCfg
from rrf.policies.control.off_policy_configs import ActorQPackCfg, QNetworkCfg


@configclass(builds="rrf.policies.control.batched_critics:DiscreteQNetwork")
class DiscreteQNetworkCfg(QNetworkCfg):
    """Critics that estimate the return of every action in a state at once."""


@configclass
class DiscreteActorQPackCfg(ActorQPackCfg):
    """An actor that chooses among discrete actions, and its critics. Train it with
    algorithms.DiscreteSACCfg."""

    actor_cfg: CategoricalActorCfg = CategoricalActorCfg(  # pyright: ignore[reportIncompatibleVariableOverride]
        backbone_cfg=plain_mlp([256, 256], "ReLU"), obs_normalization=False
    )
    """The policy."""
    critic_cfg: DiscreteQNetworkCfg = DiscreteQNetworkCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The critics, which may see more than the actor (observation group "critic")."""
