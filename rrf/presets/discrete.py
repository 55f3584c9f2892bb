"""SAC for discrete actions on Gymnasium's tasks. An iteration has 1,000 transitions."""

import typing

from rrf.algorithms.off_policy.discrete_configs import DiscreteSACCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import CategoricalActorCfg
from rrf.policies.control.discrete_configs import DiscreteActorQPackCfg, DiscreteQNetworkCfg
from rrf.runners.control.configs import OffPolicyRunnerCfg

_FAST: dict[str, typing.Any] = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}


def cartpole_sac() -> OffPolicyRunnerCfg:
    """CartPole-v1, 30,000 steps."""
    return discrete_sac("cartpole-sac", "CartPole-v1", 30, width=64, **_FAST)


def acrobot_sac() -> OffPolicyRunnerCfg:
    """Acrobot-v1, 30,000 steps."""
    return discrete_sac("acrobot-sac", "Acrobot-v1", 30, width=64, **_FAST)


def lunarlander_sac() -> OffPolicyRunnerCfg:
    """LunarLander-v3, 200,000 steps. It needs Box2D: pip install "gymnasium[box2d]"."""
    return discrete_sac("lunarlander-sac", "LunarLander-v3", 200)


def discrete_sac(
    name: str, task: str, max_iterations: int, width: int = 256, **rates: typing.Any
) -> OffPolicyRunnerCfg:
    """Settings for a task with discrete actions."""
    network = plain_mlp([width, width], "ReLU")
    return OffPolicyRunnerCfg(
        experiment_name=name,
        env=GymnasiumEnvCfg(task=task),
        policy=DiscreteActorQPackCfg(
            actor_cfg=CategoricalActorCfg(backbone_cfg=network, obs_normalization=False),
            critic_cfg=DiscreteQNetworkCfg(backbone_cfg=network),
        ),
        algorithm=DiscreteSACCfg(
            batch_size=64,
            warmup_steps=1000,
            updates_per_step=0.5,
            target_entropy_fraction=0.3,
            init_alpha=0.2,
            **rates,
        ),
        max_iterations=max_iterations,
        save_interval=max(5, max_iterations // 10),
        num_checkpoints_kept=1,  # the replay makes checkpoints large
        replay_size=min(1_000_000, 1000 * max_iterations),
    )
