"""Configs of students, which learn from a teacher. This file does not import torch."""

from rrf.config import configclass
from rrf.policies.control.configs import ActorCfg, ControlPolicyCfg, StateIndStdActorCfg


@configclass(builds="rrf.policies.control.blind_actor:BlindActor")
class BlindActorCfg(StateIndStdActorCfg):
    """A Gaussian actor that does not read some columns of the observations. Its environment, and so
    its evaluation, stays the same as that of an actor that reads them."""

    init_std = 0.1
    hidden: dict[str, list[int]] = {}
    """Observation group -> the columns that are not read."""


@configclass(builds="rrf.policies.control.offline_policies:ActorPack")
class StudentCfg(ControlPolicyCfg):
    """An actor alone, to be trained with algorithms.DistillationCfg or algorithms.DAggerCfg."""

    actor_cfg: ActorCfg = BlindActorCfg()
    """The student. Its init_std is the noise of its actions while it learns."""
