"""SAC and its variants on Gymnasium's tasks, with the papers' hyperparameters, also for discrete
actions.

An iteration has 1,000 transitions.
"""

import typing

from rrf.algorithms.off_policy.configs import DSACCfg, DSACTCfg, SACCfg, SACSeqCfg, SACTransCfg
from rrf.algorithms.off_policy.discrete_configs import DiscreteSACCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import CategoricalActorCfg
from rrf.policies.control.discrete_configs import DiscreteActorQPackCfg, DiscreteQNetworkCfg
from rrf.policies.control.off_policy_configs import (
    ActorQPackCfg,
    DistributionalQCfg,
    GRUEncoderCfg,
    QNetworkCfg,
    SACActorCfg,
    SequenceEncoderCfg,
    TransformerEncoderCfg,
)
from rrf.runners.control.off_policy_configs import OffPolicyRunnerCfg

_ANGULAR_VELOCITY = [2]  # index in Pendulum-v1's observation: cosine, sine, angular velocity
_SMALL = plain_mlp([64, 64], "ReLU")
_FAST: dict[str, typing.Any] = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}


def pendulum_sac() -> OffPolicyRunnerCfg:
    """Pendulum-v1, 20,000 steps."""
    algorithm = SACCfg(gamma=0.95, warmup_steps=500, **_FAST)
    return _pendulum("pendulum-sac", algorithm, QNetworkCfg(backbone_cfg=_SMALL))


def pendulum_dsac() -> OffPolicyRunnerCfg:
    """DSAC on Pendulum-v1, 20,000 steps."""
    algorithm = DSACCfg(gamma=0.95, warmup_steps=500, **_FAST)
    critic = DistributionalQCfg(backbone_cfg=_SMALL, num_critics=1)
    return _pendulum("pendulum-dsac", algorithm, critic)


def pendulum_dsact() -> OffPolicyRunnerCfg:
    """DSAC-T on Pendulum-v1, 20,000 steps."""
    algorithm = DSACTCfg(gamma=0.95, warmup_steps=500, **_FAST)
    return _pendulum("pendulum-dsact", algorithm, DistributionalQCfg(backbone_cfg=_SMALL))


def pendulum_hidden_sac() -> OffPolicyRunnerCfg:
    """Pendulum-v1 without its angular velocity, with a policy without memory, for comparison."""
    algorithm = SACCfg(gamma=0.95, warmup_steps=1000, updates_per_step=0.25, **_FAST)
    return _hidden("pendulum-hidden-sac", algorithm, None)


def pendulum_hidden_sac_seq() -> OffPolicyRunnerCfg:
    """Pendulum-v1 without its angular velocity, with a recurrent policy."""
    algorithm = SACSeqCfg(
        gamma=0.95, warmup_steps=1000, updates_per_step=0.25, sequence_length=16, **_FAST
    )
    return _hidden("pendulum-hidden-sac-seq", algorithm, GRUEncoderCfg())


def pendulum_hidden_sac_trans() -> OffPolicyRunnerCfg:
    """Pendulum-v1 without its angular velocity, with a transformer over the history."""
    algorithm = SACTransCfg(gamma=0.95, warmup_steps=1000, updates_per_step=0.25, **_FAST)
    return _hidden("pendulum-hidden-sac-trans", algorithm, TransformerEncoderCfg())


def inverted_pendulum_sac() -> OffPolicyRunnerCfg:
    """InvertedPendulum-v5, 20,000 steps."""
    algorithm = SACCfg(warmup_steps=500, **_FAST)
    return _run("inverted-pendulum-sac", "InvertedPendulum-v5", 20, algorithm)


def halfcheetah_sac() -> OffPolicyRunnerCfg:
    """HalfCheetah-v5, a million steps."""
    algorithm = SACCfg(warmup_steps=10_000, precision="auto")
    return _run("halfcheetah-sac", "HalfCheetah-v5", 1000, algorithm)


def hopper_sac() -> OffPolicyRunnerCfg:
    """Hopper-v5, a million steps."""
    return _mujoco("hopper-sac", "Hopper-v5")


def walker2d_sac() -> OffPolicyRunnerCfg:
    """Walker2d-v5, a million steps."""
    return _mujoco("walker2d-sac", "Walker2d-v5")


def ant_sac() -> OffPolicyRunnerCfg:
    """Ant-v5, a million steps."""
    return _mujoco("ant-sac", "Ant-v5")


def humanoid_sac() -> OffPolicyRunnerCfg:
    """Humanoid-v5, two million steps."""
    return _mujoco("humanoid-sac", "Humanoid-v5", max_iterations=2000)


def halfcheetah_dsact() -> OffPolicyRunnerCfg:
    """DSAC-T on HalfCheetah-v5, a million steps. (The paper trains for thirty million.)"""
    network = plain_mlp([256, 256, 256], "GELU")
    algorithm = DSACTCfg(actor_lr=1e-4, critic_lr=1e-4, alpha_lr=3e-4, warmup_steps=10_000)
    return _run("halfcheetah-dsact", "HalfCheetah-v5", 1000, algorithm).replace(
        policy=ActorQPackCfg(
            actor_cfg=SACActorCfg(backbone_cfg=network, max_log_std=0.5),
            critic_cfg=DistributionalQCfg(backbone_cfg=network),
        )
    )


def _mujoco(name: str, task: str, max_iterations: int = 1000) -> OffPolicyRunnerCfg:
    return _run(name, task, max_iterations, SACCfg(warmup_steps=10_000))


def _run(name: str, task: str, max_iterations: int, algorithm: SACCfg) -> OffPolicyRunnerCfg:
    return OffPolicyRunnerCfg(
        experiment_name=name,
        env=GymnasiumEnvCfg(task=task),
        algorithm=algorithm,
        max_iterations=max_iterations,
        # The replay makes checkpoints large, so there are few of them.
        save_interval=max(5, max_iterations // 10),
        num_checkpoints_kept=1,
        replay_size=min(1_000_000, 1000 * max_iterations),
    )


def _pendulum(name: str, algorithm: SACCfg, critic: QNetworkCfg) -> OffPolicyRunnerCfg:
    return _run(name, "Pendulum-v1", 20, algorithm).replace(
        policy=ActorQPackCfg(actor_cfg=SACActorCfg(backbone_cfg=_SMALL), critic_cfg=critic)
    )


def _hidden(name: str, algorithm: SACCfg, encoder: SequenceEncoderCfg | None) -> OffPolicyRunnerCfg:
    """40,000 transitions in total, from four environments."""
    return _run(name, "Pendulum-v1", 40, algorithm).replace(
        env=GymnasiumEnvCfg(task="Pendulum-v1", num_envs=4, hidden=_ANGULAR_VELOCITY),
        num_steps_per_env=250,
        policy=ActorQPackCfg(
            actor_cfg=SACActorCfg(backbone_cfg=_SMALL, encoder=encoder),
            critic_cfg=QNetworkCfg(backbone_cfg=_SMALL, encoder=encoder),
        ),
    )


def cartpole_sac() -> OffPolicyRunnerCfg:
    """CartPole-v1, 80,000 steps."""
    settings = _FAST | {
        "critic_lr": 2e-3,
        "warmup_steps": 1000,
        "updates_per_step": 0.25,
        "n_steps": 1,
        "init_alpha": 0.1,
        "target_entropy_fraction": 0.2,
    }
    return discrete_sac("cartpole-sac", "CartPole-v1", 80, **settings)


def acrobot_sac() -> OffPolicyRunnerCfg:
    """Acrobot-v1, 60,000 steps."""
    return discrete_sac("acrobot-sac", "Acrobot-v1", 60, width=64, **_FAST)


def lunarlander_sac() -> OffPolicyRunnerCfg:
    """LunarLander-v3, 400,000 steps. It needs the extra "box2d"."""
    return discrete_sac("lunarlander-sac", "LunarLander-v3", 400)


def discrete_sac(
    name: str, task: str, max_iterations: int, width: int = 256, **changes: typing.Any
) -> OffPolicyRunnerCfg:
    """Settings for a task with discrete actions: eight environments, a gradient step for each step
    of all of them.

    Args:
        changes: Fields of the algorithm's config.
    """
    network = plain_mlp([width, width], "ReLU")
    settings: dict[str, typing.Any] = {
        "batch_size": 128,
        "warmup_steps": 8000,
        "updates_per_step": 0.125,
        "n_steps": 3,
        "tau": 0.05,
        "init_alpha": 0.2,
        "target_entropy_fraction": 0.6,
    }
    return OffPolicyRunnerCfg(
        experiment_name=name,
        env=GymnasiumEnvCfg(task=task, num_envs=8),
        policy=DiscreteActorQPackCfg(
            actor_cfg=CategoricalActorCfg(backbone_cfg=network, obs_normalization=False),
            critic_cfg=DiscreteQNetworkCfg(backbone_cfg=network),
        ),
        algorithm=DiscreteSACCfg(**(settings | changes)),
        num_steps_per_env=125,
        max_iterations=max_iterations,
        save_interval=max(5, max_iterations // 10),
        num_checkpoints_kept=1,  # the replay makes checkpoints large
        replay_size=min(1_000_000, 1000 * max_iterations),
    )
