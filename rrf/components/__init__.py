"""Policies and their parts. Configs import without torch; the modules load it when asked for."""

from rrf.components.actor_configs import (
    ActorCriticPackCfg,
    CategoricalActorCfg,
    LipsNetActorCfg,
    MemoryCfg,
    PopulationPackCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.components.configs import (
    ActionHeadCfg,
    CompactVLACfg,
    DiscreteTokenHeadCfg,
    FlowMatchingHeadCfg,
    GaussianHeadCfg,
    PolicyCfg,
    RegressionHeadCfg,
)
from rrf.components.off_policy_configs import (
    ActorQPackCfg,
    DistributionalQCfg,
    GRUEncoderCfg,
    QNetworkCfg,
    SACActorCfg,
    TransformerEncoderCfg,
)
from rrf.registry import lazy_attributes

__all__ = [
    "ActionHeadCfg",
    "ActorCriticPackCfg",
    "ActorQPackCfg",
    "CategoricalActorCfg",
    "CompactVLACfg",
    "DiscreteTokenHeadCfg",
    "DistributionalQCfg",
    "FlowMatchingHeadCfg",
    "GRUEncoderCfg",
    "GaussianHeadCfg",
    "LipsNetActorCfg",
    "MemoryCfg",
    "PolicyCfg",
    "PopulationPackCfg",
    "QNetworkCfg",
    "RegressionHeadCfg",
    "SACActorCfg",
    "StateIndStdActorCfg",
    "TransformerEncoderCfg",
    "VNetworkCfg",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "ActorCritic": "rrf.components.actor_critic:ActorCritic",
        "ActorQ": "rrf.components.actor_q:ActorQ",
        "CategoricalActor": "rrf.components.actors:CategoricalActor",
        "CompactVLA": "rrf.components.compact_vla:CompactVLA",
        "ControlPolicy": "rrf.components.actor_critic:ControlPolicy",
        "DiscreteTokenHead": "rrf.components.action_heads:DiscreteTokenHead",
        "DistributionalQ": "rrf.components.batched_critics:DistributionalQ",
        "EmpiricalNormalizer": "rrf.components.normalizer:EmpiricalNormalizer",
        "FlowMatchingHead": "rrf.components.flow_head:FlowMatchingHead",
        "GRUEncoder": "rrf.components.sequence_encoder:GRUEncoder",
        "GaussianActor": "rrf.components.actors:GaussianActor",
        "GaussianHead": "rrf.components.action_heads:GaussianHead",
        "LipsNetActor": "rrf.components.lipsnet:LipsNetActor",
        "PopulationActorCritic": "rrf.components.population:PopulationActorCritic",
        "QNetwork": "rrf.components.batched_critics:QNetwork",
        "RegressionHead": "rrf.components.action_heads:RegressionHead",
        "SACActor": "rrf.components.off_policy_actors:SACActor",
        "TransformerEncoder": "rrf.components.sequence_encoder:TransformerEncoder",
        "VNetwork": "rrf.components.critics:VNetwork",
    },
    __all__,
)
