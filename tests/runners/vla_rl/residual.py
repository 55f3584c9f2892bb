"""Residuals over the toy policies."""

import copy

import torch

from rrf.algorithms.vla.residual_sac_configs import ResidualSACCfg
from rrf.networks.configs import MLPCfg
from rrf.orchestra.residual_run import build_roles
from rrf.policies.control.off_policy_configs import QNetworkCfg, SACActorCfg
from rrf.policies.vla.residual_configs import ResidualVLACfg
from rrf.runners.vla_rl.residual_configs import ResidualSACRunnerCfg
from rrf.runners.vla_rl.runner import VLARLRunner
from tests.runners.vla_rl.toy import ENV, STATS, TASKS, ToyBackend, make_policy, policy_cfg

SMALL = MLPCfg(hidden_features=[64], activations=[[("LayerNorm", {}), ("ReLU", {})], []])


def residual_cfg(head=None, **changes) -> ResidualVLACfg:
    """The config of a small residual on a toy policy."""
    actor = SACActorCfg(backbone_cfg=SMALL, min_log_std=-5.0, max_log_std=1.0)
    return ResidualVLACfg(actor=actor, scale=0.8, **changes).over(policy_cfg(head))


def make_residual(cfg: ResidualVLACfg, base=None, seed: int = 0):
    """The policy, on a copy of `base` if one is given."""
    base = make_policy(cfg.base) if base is None else copy.deepcopy(base)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return cfg.build(STATS, base).eval()


def runner_cfg(head=None, **changes) -> ResidualSACRunnerCfg:
    """A config whose training takes about a second."""
    cfg = ResidualSACRunnerCfg(
        experiment_name="toy",
        policy=residual_cfg(head),
        env=ENV,
        tasks=TASKS,
        algorithm=ResidualSACCfg(
            warmup_steps=100,
            critic_warmup_updates=20,
            updates_per_step=0.2,
            batch_size=64,
            actor_lr=3e-3,
            critic_lr=3e-3,
            critic=QNetworkCfg(backbone_cfg=SMALL),
            replay_size=300,
            tau=0.02,
        ),
        num_groups=48,
        max_rounds=4,
        validation_episodes=8,
        validation_interval=2,
        save_interval=1,
        update_threads=1,
        trackers=[],
    )
    return cfg.replace(**changes) if changes else cfg


def build(cfg: ResidualSACRunnerCfg, run_dir, base=None) -> VLARLRunner:
    """A runner for a residual on `base`."""
    actor, rollout = build_roles(cfg, make_residual(cfg.policy, base, cfg.seed))
    backend = ToyBackend(rollout.policy, sees_end=True)
    backend.rollout = rollout
    return VLARLRunner(cfg, actor, backend, run_dir, STATS)
