"""Builds the roles that train and play a policy from the config of a run."""

import copy
import typing
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from rrf.orchestra.actor_role import VALUE_HEAD, ActorRole
from rrf.orchestra.imitation import Imitation, demonstrations_of
from rrf.orchestra.rollout_role import RolloutRole
from rrf.runners.checkpoints import checkpoint
from rrf.runners.process_group import known_device
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

_STD_NETWORK = "head.explore_noise."  # of reinflow, which imitation does not train


def starting_policy(cfg: VLARLRunnerCfg, parent: Path) -> typing.Any:
    """The policy in a checkpoint, on the run's device; what it lacks has the run's random
    weights."""
    with torch.random.fork_rng():
        torch.manual_seed(cfg.seed)
        policy: typing.Any = cfg.policy.rebuild(checkpoint.load_norm_stats(parent), parent)
    checkpoint.load_weights(policy, parent, may_lack=(VALUE_HEAD, _STD_NETWORK))
    return policy.to(known_device(cfg.device))


def imitation_of(cfg: VLARLRunnerCfg, policy: typing.Any, parent: Path) -> Imitation | None:
    """The co-training of a policy, if the run has one."""
    if not cfg.co_training:
        return None
    stats = checkpoint.load_norm_stats(parent)
    return cfg.co_training.build(demonstrations_of(parent), policy, stats)


def build_actor(
    cfg: VLARLRunnerCfg,
    policy: typing.Any,
    imitation: Imitation | None = None,
    divide: Callable[[nn.Module], None] | None = None,
) -> ActorRole:
    """The role that trains a policy; see `ActorRole`."""
    reference = copy.deepcopy(policy).eval() if cfg.algorithm.kl_coef else None
    return ActorRole(
        policy,
        cfg.algorithm.build(policy, reference),
        cfg.optimizer,
        cfg.value_lr,
        cfg.ema,
        cfg.max_grad_norm,
        imitation,
        cfg.precision,
        cfg.micro_batch_size,
        divide,
    )


def build_roles(
    cfg: VLARLRunnerCfg, policy: typing.Any, imitation: Imitation | None = None
) -> tuple[ActorRole, RolloutRole]:
    """The roles that train and play a policy, on its device.

    Both have the same weights, once in memory, unless there are averaged or older ones.
    """
    actor = build_actor(cfg, policy, imitation)
    played = copy.deepcopy(policy).eval() if cfg.ema or cfg.max_staleness else policy
    rollout = RolloutRole(
        played,
        cfg.inference_batch,
        cfg.precision,
        sees_success=cfg.algorithm.bootstraps_success,
    )
    return actor, rollout
