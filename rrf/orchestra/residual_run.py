"""Builds a run that trains a residual on a frozen policy, on one machine."""

import copy
from pathlib import Path

import torch

from rrf.config import first_error
from rrf.lineage import Lineage
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.inline_run import check_fit
from rrf.orchestra.residual_role import ResidualRole
from rrf.orchestra.rollout_role import RolloutRole
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.residual import ResidualVLA
from rrf.policies.vla.residual_configs import ResidualVLACfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.process_group import known_device
from rrf.runners.supervised.parent import policy_of_family
from rrf.runners.vla_rl.residual_configs import ResidualSACRunnerCfg
from rrf.runners.vla_rl.runner import VLARLRunner


def build_runner(
    cfg: ResidualSACRunnerCfg, run_dir: str | Path, lineage: Lineage | None = None
) -> VLARLRunner:
    """The runner for a residual on the policy in `cfg.init_from`, with its roles and backend.

    Raises:
        ValueError: If there is no checkpoint to start from, if its policy cannot be corrected, or
            if policy, environment and tasks do not fit together.
    """
    if not cfg.init_from:
        raise ValueError(
            "init_from is not given, but a residual corrects a policy that already succeeds now "
            "and then; set init_from=<checkpoint of supervised fine-tuning>"
        )
    parent = checkpoint.find(cfg.init_from)
    cfg = cfg.replace(policy=_corrected(parent, cfg.policy))
    check_fit(cfg)
    norm_stats = checkpoint.load_norm_stats(parent)
    with torch.random.fork_rng():
        torch.manual_seed(cfg.seed)
        policy: ResidualVLA = cfg.policy.rebuild(norm_stats, parent)
    checkpoint.load_weights(policy.base, parent)
    policy.to(known_device(cfg.device))
    actor, rollout = build_roles(cfg, policy)
    backend = InlineBackend(cfg.env, rollout, cfg.num_workers, cfg.worker_timeout_s)
    lineage = (lineage or Lineage()).replace(parent_checkpoint=deployable_digest(parent))
    return VLARLRunner(cfg, actor, backend, run_dir, norm_stats, lineage)


def build_roles(cfg: ResidualSACRunnerCfg, policy: ResidualVLA) -> tuple[ResidualRole, RolloutRole]:
    """The roles that train and play a policy, on its device. They share the base in memory."""
    base = {id(weights): weights for weights in policy.base.parameters()}
    played = copy.deepcopy(policy, memo=base).eval()
    rollout = RolloutRole(played, cfg.inference_batch, sees_end=True)
    return ResidualRole(cfg.algorithm, policy, cfg.seed), rollout


def _corrected(parent: Path, policy: ResidualVLACfg) -> ResidualVLACfg:
    """The config of a residual on the policy in a checkpoint."""
    try:
        saved = PolicyCfg.from_dict(checkpoint.load_config(parent)["policy"])
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{parent} holds no policy that sees images ({first_error(error)}), so there are no "
            "chunks to correct; give a checkpoint of e.g. compact-vla-one-demo as init_from"
        ) from error
    if policy.base is not None:
        policy_of_family(parent, policy.base)
    try:
        return policy.over(saved)
    except ValueError as error:
        raise ValueError(f"{parent}: {error}") from error
