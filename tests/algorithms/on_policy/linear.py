"""A policy whose mean action is a matrix times the observation, and samples to learn from."""

import torch

from rrf.envs.control_env import Interface
from rrf.networks import MLPCfg
from rrf.policies import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.policies.control.configs import MemoryCfg
from rrf.storage.rollout import ControlStep, Samples

LINEAR = MLPCfg(hidden_features=[], activations=[[]])


def policy(weight, value_weight=None, std=1.0):
    """mu(s) = W s and V(s) = w s; no normaliser."""
    weight = torch.tensor(weight)
    num_actions, width = weight.shape
    pack = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(
            backbone_cfg=LINEAR, obs_normalization=False, init_std=std, min_std=std / 100
        ),
        critic_cfg=VNetworkCfg(backbone_cfg=LINEAR, obs_normalization=False),
    )
    built = pack.build(Interface({"policy": width}, num_actions))
    with torch.no_grad():
        built.actor.backbone.layers[0].weight.copy_(weight)
        built.actor.backbone.layers[0].bias.zero_()
        built.critic.backbone.layers[0].weight.copy_(
            torch.ones(1, width) if value_weight is None else torch.tensor([value_weight])
        )
        built.critic.backbone.layers[0].bias.zero_()
    return built


def recurrent_policy():
    """One that remembers."""
    pack = ActorCriticPackCfg(actor_cfg=StateIndStdActorCfg(memory=MemoryCfg(hidden_size=4)))
    return pack.build(Interface({"policy": 2}, 1))


def algorithm(cfg, built, num_envs=2, num_steps=3, seed=0):
    """`cfg`'s algorithm, on the CPU."""
    return cfg.build(built, num_envs, num_steps, torch.Generator().manual_seed(seed))


def samples(states, successors, goes_on, actions=None) -> Samples:
    """With whatever penalties do not look at set to zero."""
    states, successors = torch.tensor(states), torch.tensor(successors)
    zeros = torch.zeros(len(states))
    actions = torch.zeros(len(states), 1) if actions is None else torch.tensor(actions)
    return Samples(
        actor_obs=states,
        critic_obs=states,
        next_actor_obs=successors,
        next_critic_obs=successors,
        goes_on=torch.tensor(goes_on),
        actions=actions,
        log_prob=zeros,
        distribution=torch.cat([actions, torch.ones_like(actions)], -1),
        values=zeros,
        returns=zeros,
        advantages=zeros,
    )


def batch_of(material: Samples, rows=None):
    """A mini-batch of some rows, all by default."""
    return material.rows(torch.arange(len(material)) if rows is None else torch.tensor(rows))


def distribution(built, batch):
    """What `built` does in the states of `batch`."""
    return built.actor.distribution(built.actor(batch.actor_obs))


def fill(learner, env) -> list:
    """Act in `env` for one rollout; the observations before every step and after the last."""
    seen = [env.get_observations()]
    for _ in range(learner.rollout.num_steps):
        actions = learner.act(seen[-1])
        result = env.step(actions)
        learner.observe(ControlStep.of(seen[-1], actions, result))
        seen.append(result[0])
    return seen
