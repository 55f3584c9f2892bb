"""SAC for discrete actions on Gymnasium's tasks. An iteration has 1,000 transitions."""

import typing

from rrf.algorithms.off_policy.discrete_configs import DiscreteSACCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import CategoricalActorCfg
from rrf.policies.control.discrete_configs import DiscreteActorQPackCfg, DiscreteQNetworkCfg
from rrf.runners.control.off_policy_configs import OffPolicyRunnerCfg

_FAST: dict[str, typing.Any] = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}


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
