"""Configs of the policies of offline algorithms. This file does not import torch."""

from rrf.config import configclass
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import ControlPolicyCfg, VNetworkCfg
from rrf.policies.control.off_policy_configs import ActorQPackCfg, RealActorCfg


@configclass(builds="rrf.policies.control.offline_policies:BoundedActor")
class BoundedActorCfg(RealActorCfg):
    """A Gaussian with a mean bounded by tanh and one standard deviation for all states, or without
    any."""

    is_deterministic: bool = False
    """Whether there is no standard deviation."""

    def __post_init__(self):
        super().__post_init__()
        if self.encoder is not None:
            raise ValueError("encoder is set, but this actor has no memory; leave it out")


@configclass(builds="rrf.policies.control.offline_policies:ActorPack")
class ActorPackCfg(ControlPolicyCfg):
    """An actor alone."""

    actor_cfg: BoundedActorCfg = BoundedActorCfg()
    """The policy."""


@configclass
class BoundedActorQPackCfg(ActorQPackCfg):
    """An actor with bounded mean, and its action-value critics."""

    actor_cfg: BoundedActorCfg = BoundedActorCfg()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The policy."""


@configclass(builds="rrf.policies.control.offline_policies:ActorQV")
class IQLPackCfg(BoundedActorQPackCfg):
    """An actor, action-value critics, and a critic of states. They share no parameters."""

    value_cfg: VNetworkCfg = VNetworkCfg(
        backbone_cfg=plain_mlp([256, 256], "ReLU"), obs_normalization=False
    )
    """The critic of states. It reads what the action-value critics read."""

    def __post_init__(self):
        if self.value_cfg.memory is not None:
            raise ValueError("value_cfg.memory is set, but IQL learns from single transitions")
