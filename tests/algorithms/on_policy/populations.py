"""Small populations to check by hand."""

import torch

from rrf.envs.control_env import Interface
from rrf.networks import plain_mlp
from rrf.policies import PopulationPackCfg, StateIndStdActorCfg, VNetworkCfg

MLP = plain_mlp([8], "Tanh")


def pack(**settings) -> PopulationPackCfg:
    """Small networks without normalisers, unless told otherwise."""
    nets = {
        "actor_cfg": StateIndStdActorCfg(backbone_cfg=MLP, obs_normalization=False),
        "critic_cfg": VNetworkCfg(backbone_cfg=MLP, obs_normalization=False),
    }
    return PopulationPackCfg(**(nets | {"num_members": 3, "latent_dim": 4} | settings))


def population(seed=0, width=2, **settings):
    """Of 3 members that see `width` numbers and act with one."""
    torch.manual_seed(seed)
    return pack(**settings).build(Interface({"policy": width}, 1))


def learner(cfg, policy, num_envs=6, num_steps=4, seed=0):
    """`cfg`'s algorithm on the CPU."""
    return cfg.build(policy, num_envs, num_steps, torch.Generator().manual_seed(seed))
