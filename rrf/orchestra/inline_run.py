"""Builds a reinforcement-learning run on one machine."""

import dataclasses
import typing
from collections.abc import Sequence
from pathlib import Path

from rrf.config import did_you_mean
from rrf.data.dataset.history import misfit_of
from rrf.envs.configs import VecEnvCfg
from rrf.extras import install_command
from rrf.lineage import Lineage
from rrf.orchestra.actor_group import RANK, TIMEOUT_S, ActorGroup
from rrf.orchestra.actor_role import ActorRole
from rrf.orchestra.build_roles import build_roles, imitation_of, starting_policy
from rrf.orchestra.inline import InlineBackend, check_division
from rrf.orchestra.placement import parse
from rrf.policies.vla.configs import PolicyCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.supervised.parent import policy_of_family
from rrf.runners.vla_rl.configs import RayCfg, RoundsCfg, VLARLRunnerCfg
from rrf.runners.vla_rl.roles import Actor
from rrf.runners.vla_rl.runner import VLARLRunner


def build_runner(
    cfg: VLARLRunnerCfg, run_dir: str | Path, lineage: Lineage | None = None
) -> VLARLRunner:
    """The runner for the policy in `cfg.init_from`, with its roles and backend.

    Raises:
        ValueError: If there is no checkpoint to start from, if it has another architecture, or if
            policy, environment and tasks do not fit together; with co-training, also if there are
            no demonstrations to imitate.
    """
    parent, saved = _parent(cfg)
    cfg = cfg.replace(policy=cfg.policy.fitted_to(saved))
    check_fit(cfg)
    norm_stats = checkpoint.load_norm_stats(parent)
    policy = starting_policy(cfg, parent)
    actor, rollout = build_roles(cfg, policy, imitation_of(cfg, policy, parent))
    env = cfg.env.replace(draws_final=rollout.sees_end)
    if cfg.ray is None:
        backend = InlineBackend(env, rollout, cfg.num_workers, cfg.worker_timeout_s)
    else:
        backend, actor = _on_cluster(cfg, cfg.ray, env, rollout.policy, actor, parent)
    lineage = (lineage or Lineage()).replace(parent_checkpoint=deployable_digest(parent))
    return VLARLRunner(cfg, actor, backend, run_dir, norm_stats, lineage)


def _on_cluster(
    cfg: VLARLRunnerCfg,
    where: RayCfg,
    env: VecEnvCfg,
    played: typing.Any,
    actor: ActorRole,
    parent: Path,
) -> tuple[InlineBackend, Actor]:
    """The backend on a cluster, and the actor; it is a group there if it has several processes."""
    try:
        from rrf.orchestra.ray_backend import RayBackend
        from rrf.orchestra.ray_child import RayChild
        from rrf.orchestra.ray_cluster import Cluster
        from rrf.orchestra.ray_rollouts import RayRollouts
    except ModuleNotFoundError as error:
        raise ValueError(
            f"ray is set, but Ray is not installed; type: {install_command('ray')}, or ray=null"
        ) from error
    cluster = Cluster(where.address)
    try:
        there = [str(resource) for resource in cluster.resources]
        groups = cluster.groups(where.node_groups)
        placement = parse(where.placement, there, ("env", "rollout", "actor"), groups)
        placement = placement.split("env", where.pipeline_stage_num)
        is_group = len(placement.roles["actor"]) > 1
        if is_group and where.offload:
            raise ValueError(
                f"ray.offload is true, but ray.placement has {len(placement.roles['actor'])} actor "
                "processes, which divide their memory already; set ray.offload=false"
            )
        if where.offload and placement.mode == "disaggregated":
            raise ValueError(
                "ray.offload is true, but in ray.placement no two roles share a resource, so there "
                "is nothing to take turns on; set ray.offload=false"
            )
        check_division(
            env.num_envs,
            len(placement.roles["env"]),
            "processes of env in ray.placement x ray.pipeline_stage_num",
        )
        cluster.reserve(placement.used())
        rollout = RayRollouts(
            cluster, placement, played, cfg, checkpoint.load_norm_stats(parent), str(parent)
        )
        backend = RayBackend(env, rollout, cluster, placement, cfg.worker_timeout_s)
        if not is_group:
            return backend, actor
        ranks = placement.roles["actor"]
        arguments = {"cfg": cfg.replace(ray=None).to_dict(), "parent": str(parent)}
        children = [
            RayChild(
                RANK,
                f"actor {rank + 1} of {len(ranks)}",
                {**arguments, "rank": rank, "size": len(ranks)},
                TIMEOUT_S,
                cluster.options(resources),
            )
            for rank, resources in enumerate(ranks)
        ]
        host = cluster.resources[ranks[0][0]].host
        return backend, ActorGroup(children, host, actor)
    except BaseException:
        cluster.close()
        raise


def check_fit(cfg: RoundsCfg) -> None:
    """Check that policy, environment and tasks fit together.

    Raises:
        ValueError: If not. The message names every difference.
    """
    if wrong := misfits(cfg.policy, cfg.env, cfg.tasks):
        raise ValueError("the run does not fit together: " + "; ".join(wrong))


def misfits(policy: PolicyCfg, env: VecEnvCfg, tasks: Sequence[str]) -> list[str]:
    """Every difference between what the policy, the environment and the tasks need."""
    wrong = [
        f"policy.{name} is {policy_value}, but env.{name} is {env_value}"
        for name, policy_value, env_value in (
            ("chunk_length", policy.chunk_length, env.chunk_length),
            ("action_dim", policy.action_dim, env.action_dim),
            ("state_dim", policy.state_dim, env.state_dim or policy.state_dim),
            ("image_size", tuple(policy.image_size), env.image_shape),
        )
        if policy_value != env_value
    ]
    if misfit := misfit_of(policy, env.chunk_length, env.fps):
        wrong.append(f"the policy {misfit} (env.chunk_length)")
    wrong += [
        f"policy.cameras names '{camera}', but env.cameras has {', '.join(env.cameras) or 'none'}"
        for camera in policy.cameras
        if camera not in env.cameras
    ]
    known = env.tasks
    wrong += [f"no task '{task}'{did_you_mean(task, known)}" for task in tasks if task not in known]
    if not tasks:
        wrong.append("tasks is empty; name at least one task")
    return wrong


def _parent(cfg: VLARLRunnerCfg) -> tuple[Path, PolicyCfg]:
    """The checkpoint to start from, and the config of its policy."""
    parent = checkpoint.find(cfg.check_parent())
    saved = policy_of_family(parent, cfg.policy)
    if saved.chunk_length != cfg.policy.chunk_length:
        raise ValueError(
            f"{parent} predicts chunks of {saved.chunk_length} steps, but the run's policy "
            f"predicts {cfg.policy.chunk_length}; set policy.chunk_length={saved.chunk_length} and "
            f"env.chunk_length={saved.chunk_length}"
        )
    if saved.past != cfg.policy.past:
        raise ValueError(
            f"{parent} sees {saved.past}, but the run's policy sees {cfg.policy.past}; set "
            + " ".join(f"policy.past_{k}={v}" for k, v in dataclasses.asdict(saved.past).items())
        )
    saved_head, head = (type(getattr(c, "head", None)).__name__ for c in (saved, cfg.policy))
    if saved_head != head:
        raise ValueError(
            f"{parent} has a {saved_head}, but the run's policy has a {head}; start from a "
            "checkpoint that was fine-tuned with the same head"
        )
    return parent, saved
