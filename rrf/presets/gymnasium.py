"""PPO on Gymnasium's tasks: classic control and MuJoCo v5.

Hyperparameters follow those published for each task (CleanRL, Stable-Baselines3's zoo, Tianshou),
but with larger mini-batches, which need less CPU time per sample.
"""

import typing

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import (
    ActorCfg,
    ActorCriticPackCfg,
    CategoricalActorCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.runners.control.configs import OnPolicyRunnerCfg

_Variant = typing.TypeVar("_Variant", bound=PPOCfg)
_SMALL = plain_mlp([64, 64], "Tanh")


def cartpole_ppo() -> OnPolicyRunnerCfg:
    """CartPole-v1, 100,000 steps."""
    return OnPolicyRunnerCfg(
        experiment_name="cartpole-ppo",
        env=GymnasiumEnvCfg(task="CartPole-v1", num_envs=8),
        policy=_pack(CategoricalActorCfg(backbone_cfg=_SMALL, obs_normalization=False)),
        algorithm=PPOCfg(
            gamma=0.98,
            lam=0.8,
            entropy_coef=0.0,
            num_learning_epochs=20,
            num_mini_batches=1,
            schedule="linear",
            learning_rate=1e-3,
            learner_threads=1,
        ),
        num_steps_per_env=32,
        max_iterations=391,
        save_interval=100,
    )


def pendulum_ppo() -> OnPolicyRunnerCfg:
    """Pendulum-v1, 205,000 steps."""
    return OnPolicyRunnerCfg(
        experiment_name="pendulum-ppo",
        env=GymnasiumEnvCfg(task="Pendulum-v1", num_envs=16),
        policy=_pack(StateIndStdActorCfg(backbone_cfg=_SMALL)),
        algorithm=PPOCfg(
            gamma=0.95,
            entropy_coef=0.0,
            num_learning_epochs=10,
            num_mini_batches=8,
            schedule="linear",
            learning_rate=1e-3,
            use_clipped_value_loss=False,
            normalize_rewards=True,
            learner_threads=1,
        ),
        num_steps_per_env=128,
        max_iterations=100,
        save_interval=25,
    )


def inverted_pendulum_ppo() -> OnPolicyRunnerCfg:
    """InvertedPendulum-v5, 200,000 steps."""
    return _mujoco_ppo("inverted-pendulum-ppo", "InvertedPendulum-v5", max_iterations=98)


def halfcheetah_ppo() -> OnPolicyRunnerCfg:
    """HalfCheetah-v5, a million steps.

    Little noise from the start, small steps and a short horizon keep the cheetah from learning to
    run on its back. The settings are close to those of Stable-Baselines3's zoo, with larger
    mini-batches.
    """
    cfg = _mujoco_ppo("halfcheetah-ppo", "HalfCheetah-v5")
    actor = StateIndStdActorCfg(backbone_cfg=plain_mlp([256, 256], "ReLU"), init_std=0.135)
    algorithm = cfg.algorithm.replace(
        clip_param=0.1,
        entropy_coef=0.0004,
        num_learning_epochs=3,
        num_mini_batches=2,
        schedule="fixed",
        learning_rate=3e-4,
        gamma=0.98,
        lam=0.92,
        value_loss_coef=0.58,
        use_clipped_value_loss=False,
        max_grad_norm=0.8,
        adam_eps=1e-8,
        precision="auto",
    )
    return cfg.replace(
        policy=_pack(actor), algorithm=algorithm, num_steps_per_env=128, max_iterations=977
    )


def hopper_ppo() -> OnPolicyRunnerCfg:
    """Hopper-v5, a million steps."""
    return _mujoco_ppo("hopper-ppo", "Hopper-v5")


def walker2d_ppo() -> OnPolicyRunnerCfg:
    """Walker2d-v5, a million steps."""
    return _mujoco_ppo("walker2d-ppo", "Walker2d-v5")


def ant_ppo() -> OnPolicyRunnerCfg:
    """Ant-v5, a million steps."""
    return _mujoco_ppo("ant-ppo", "Ant-v5")


def humanoid_ppo() -> OnPolicyRunnerCfg:
    """Humanoid-v5, two million steps."""
    return _mujoco_ppo("humanoid-ppo", "Humanoid-v5", max_iterations=977)


def _mujoco_ppo(name: str, task: str, max_iterations: int = 489) -> OnPolicyRunnerCfg:
    """Common settings of the MuJoCo tasks."""
    actor = StateIndStdActorCfg(backbone_cfg=_SMALL)
    return ppo_of_eight(name, task, actor, max_iterations=max_iterations, save_interval=100)


def ppo_of_eight(
    name: str,
    task: str,
    actor: ActorCfg,
    entropy_coef: float = 0.0,
    *,
    max_iterations: int,
    save_interval: int,
) -> OnPolicyRunnerCfg:
    """PPO with eight environments, normalised rewards and a learning rate that falls to 0; an
    iteration has 2,048 steps.
    """
    return OnPolicyRunnerCfg(
        experiment_name=name,
        env=GymnasiumEnvCfg(task=task, num_envs=8),
        policy=_pack(actor),
        algorithm=PPOCfg(
            entropy_coef=entropy_coef,
            num_learning_epochs=10,
            num_mini_batches=8,
            schedule="linear",
            learning_rate=1e-3,
            max_grad_norm=0.5,
            adam_eps=1e-5,
            normalize_rewards=True,
            learner_threads=1,
        ),
        num_steps_per_env=256,
        max_iterations=max_iterations,
        save_interval=save_interval,
    )


def as_variant(algorithm: PPOCfg, variant: type[_Variant], **changes) -> _Variant:
    """The same settings for a variant of PPO, with changes."""
    shared = {name: value for name, value in algorithm.to_dict().items() if name != "type"}
    return variant.from_dict(shared).replace(**changes)


def _pack(actor: ActorCfg) -> ActorCriticPackCfg:
    """The actor, and a critic with the same network architecture."""
    critic = VNetworkCfg(backbone_cfg=actor.backbone_cfg, obs_normalization=actor.obs_normalization)
    return ActorCriticPackCfg(actor_cfg=actor, critic_cfg=critic)
