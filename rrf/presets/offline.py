"""Learning from recorded states, with the papers' settings for locomotion.

An iteration has 1,000 gradient steps. The datasets are recordings of this project; see
`docs/how-to/learn-offline.md`.
"""

import typing

from rrf.algorithms.offline.configs import CloningCfg, CQLCfg, IQLCfg, TD3BCCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.policies.control.configs import VNetworkCfg
from rrf.policies.control.off_policy_configs import ActorQPackCfg, QNetworkCfg, SACActorCfg
from rrf.policies.control.offline_configs import (
    ActorPackCfg,
    BoundedActorCfg,
    BoundedActorQPackCfg,
    IQLPackCfg,
)
from rrf.runners.control.off_policy_configs import OfflineRunnerCfg

OFFLINE = ("iql", "cql", "td3-bc", "bc")
"""The algorithms that `offline` knows."""
_SMALL = plain_mlp([64, 64], "ReLU")


def pendulum_bc() -> OfflineRunnerCfg:
    """Behaviour cloning of a half-trained policy on Pendulum-v1."""
    return _pendulum("bc")


def pendulum_td3_bc() -> OfflineRunnerCfg:
    """TD3+BC from the recordings of a half-trained policy on Pendulum-v1."""
    return _pendulum("td3-bc")


def pendulum_iql() -> OfflineRunnerCfg:
    """IQL from the recordings of a half-trained policy on Pendulum-v1."""
    return _pendulum("iql")


def pendulum_cql() -> OfflineRunnerCfg:
    """CQL from the recordings of a half-trained policy on Pendulum-v1."""
    return _pendulum("cql")


def pendulum_iql_online() -> OfflineRunnerCfg:
    """The first half of pendulum-iql, then 10,000 steps in the environment."""
    return _online("pendulum-iql-online", pendulum_iql(), actor_decay_updates=None)


def pendulum_cql_online() -> OfflineRunnerCfg:
    """The first half of pendulum-cql, then 10,000 steps in the environment."""
    return _online("pendulum-cql-online", pendulum_cql())


def pendulum_cal_ql() -> OfflineRunnerCfg:
    """The same, calibrated by the recorded returns (Cal-QL, arXiv:2303.05479)."""
    return _online("pendulum-cal-ql", pendulum_cql(), calibrates=True)


def offline(
    name: str,
    task: str,
    algorithm: str,
    dataset: str = "",
    num_iterations: int = 1000,
    network: MLPCfg | None = None,
) -> OfflineRunnerCfg:
    """A million gradient steps.

    Args:
        name: Of the run.
        algorithm: One of `OFFLINE`.
        network: Of actor, critics and values; by default the algorithm's usual one.
    """
    usual = network or plain_mlp([256, 256], "ReLU")
    wide = network or plain_mlp([256, 256, 256], "ReLU")
    actor = BoundedActorCfg(backbone_cfg=usual, obs_normalization=True)
    critic = QNetworkCfg(backbone_cfg=usual, obs_normalization=True)
    fixed = actor.replace(is_deterministic=True)
    algorithms = {
        "iql": (
            IQLCfg(actor_decay_updates=1000 * num_iterations),
            IQLPackCfg(
                actor_cfg=actor, critic_cfg=critic, value_cfg=VNetworkCfg(backbone_cfg=usual)
            ),
        ),
        "cql": (
            CQLCfg(),
            ActorQPackCfg(
                actor_cfg=SACActorCfg(backbone_cfg=wide, obs_normalization=True),
                critic_cfg=critic.replace(backbone_cfg=wide),
            ),
        ),
        "td3-bc": (TD3BCCfg(), BoundedActorQPackCfg(actor_cfg=fixed, critic_cfg=critic)),
        "bc": (CloningCfg(), ActorPackCfg(actor_cfg=fixed)),
    }
    settings, policy = algorithms[algorithm]
    settings = settings.replace(precision="auto")
    return OfflineRunnerCfg(
        experiment_name=name,
        dataset=dataset,
        env=GymnasiumEnvCfg(task=task, num_envs=1),
        algorithm=settings,
        policy=policy,
        max_iterations=num_iterations,
        scales_by_returns=algorithm == "iql",
    )


def cal_ql(name: str, task: str) -> OfflineRunnerCfg:
    """CQL, calibrated by the recorded returns; the second half of a million gradient steps learns
    in the environment (Cal-QL, arXiv:2303.05479)."""
    return _online(name, offline(name, task, "cql"), calibrates=True)


def _pendulum(algorithm: str) -> OfflineRunnerCfg:
    """20,000 gradient steps, with the discount and the learning rates of pendulum-sac; but CQL's
    temperature learns more slowly."""
    name = f"pendulum-{algorithm}"
    cfg = offline(name, "Pendulum-v1", algorithm, "pendulum-medium", 20, _SMALL)
    changes: dict[str, typing.Any] = {"gamma": 0.95, "actor_lr": 1e-3, "critic_lr": 1e-3}
    changes |= {"iql": {"value_lr": 1e-3}, "cql": {"alpha_lr": 3e-4}}.get(algorithm, {})
    return cfg.replace(algorithm=cfg.algorithm.replace(**changes))


def _online(name: str, cfg: OfflineRunnerCfg, **changes: typing.Any) -> OfflineRunnerCfg:
    """The second half of the iterations learns in the environment."""
    algorithm = cfg.algorithm.replace(**changes)
    half = cfg.max_iterations // 2
    return cfg.replace(experiment_name=name, algorithm=algorithm, online_iterations=half)
