"""Algorithms with a learned model, on Gymnasium's tasks.

An iteration of MBPO has 250 transitions, after which the model is trained again; one of TD-MPC2 and
TD-MPC has 1,000.
"""

import typing

from rrf.algorithms.model_based.configs import EnsembleCfg, MBPOCfg, ModelPPOCfg
from rrf.algorithms.model_based.dynamics_configs import (
    DynamicsCfg,
    MLPDynamicsCfg,
    TransformerDynamicsCfg,
)
from rrf.algorithms.planning.configs import TDMPC2Cfg, TDMPCCfg, discount_for
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks.configs import MLPCfg, normed_mlp, plain_mlp
from rrf.policies.control.off_policy_configs import ActorQPackCfg, QNetworkCfg, SACActorCfg
from rrf.policies.control.world_model_configs import PlannerCfg, WorldModelCfg, WorldModelPackCfg
from rrf.presets.gymnasium import pendulum_ppo
from rrf.runners.control.configs import OnPolicyRunnerCfg
from rrf.runners.control.dynamics_configs import DynamicsRunnerCfg
from rrf.runners.control.off_policy_configs import OffPolicyRunnerCfg, PlanningRunnerCfg

_SMALL = plain_mlp([64, 64], "ReLU")
_MODEL = EnsembleCfg(
    network_cfg=plain_mlp([128, 128], "SiLU"), weight_decays=[2.5e-5, 5e-5, 1e-4], max_updates=500
)
_FAST: dict[str, typing.Any] = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}
_SMALL_PLAN = PlannerCfg(num_samples=128, num_elites=32, num_policy_samples=12, iterations=4)
_OF_PPO = ("gamma", "entropy_coef", "num_learning_epochs", "num_mini_batches", "schedule")
_OF_PPO += ("learning_rate", "use_clipped_value_loss", "normalize_rewards", "learner_threads")


def pendulum_mbpo() -> OffPolicyRunnerCfg:
    """Pendulum-v1, 3,000 steps."""
    algorithm = MBPOCfg(
        gamma=0.95,
        warmup_steps=250,
        updates_per_step=10.0,
        branches_per_training=10_000,
        model_cfg=_MODEL,
        **_FAST,
    )
    return _mbpo("pendulum-mbpo", "Pendulum-v1", 12, algorithm, _SMALL)


def inverted_pendulum_mbpo() -> OffPolicyRunnerCfg:
    """InvertedPendulum-v5, 5,000 steps."""
    algorithm = MBPOCfg(
        warmup_steps=250,
        updates_per_step=10.0,
        branches_per_training=10_000,
        model_cfg=_MODEL,
        init_alpha=0.1,
        **_FAST,
    )
    return _mbpo("inverted-pendulum-mbpo", "InvertedPendulum-v5", 20, algorithm, _SMALL)


def pendulum_model_ppo() -> OnPolicyRunnerCfg:
    """Pendulum-v1, 20,480 steps: a tenth of those of pendulum-ppo, and imagined ones."""
    cfg = pendulum_ppo()
    shared = {name: getattr(cfg.algorithm, name) for name in _OF_PPO}
    # The model is trained after every rollout, and each training goes on from the last.
    algorithm = ModelPPOCfg(model_cfg=_MODEL.replace(max_updates=200), **shared)
    return cfg.replace(
        experiment_name="pendulum-model-ppo",
        env=GymnasiumEnvCfg(task="Pendulum-v1", num_envs=8),
        algorithm=algorithm,
        num_steps_per_env=32,
        max_iterations=80,
    )


def model_ppo(name: str, task: str) -> OnPolicyRunnerCfg:
    """100,000 steps of any task with real actions, and as many imagined ones for each of them as
    the algorithm's defaults say."""
    cfg = pendulum_model_ppo()
    algorithm = cfg.algorithm.replace(gamma=0.99, model_cfg=EnsembleCfg(precision="auto"))
    env = GymnasiumEnvCfg(task=task, num_envs=8)
    return cfg.replace(
        experiment_name=name, env=env, algorithm=algorithm, max_iterations=391, save_interval=50
    )


def mbpo(name: str, task: str) -> OffPolicyRunnerCfg:
    """125,000 steps of any task with real actions."""
    algorithm = MBPOCfg(
        warmup_steps=5000,
        updates_per_step=20.0,
        precision="auto",
        model_cfg=EnsembleCfg(precision="auto"),
    )
    return _mbpo(name, task, 500, algorithm, plain_mlp([256, 256], "ReLU"))


def halfcheetah_mbpo() -> OffPolicyRunnerCfg:
    """HalfCheetah-v5, 400,000 steps, with the paper's settings (40 gradient steps per step)."""
    algorithm = MBPOCfg(
        warmup_steps=5000,
        updates_per_step=40.0,
        target_entropy=-3.0,
        precision="auto",
        model_cfg=EnsembleCfg(precision="auto"),
    )
    cfg = _mbpo(
        "halfcheetah-mbpo", "HalfCheetah-v5", 1600, algorithm, plain_mlp([256, 256], "ReLU")
    )
    return cfg.replace(save_interval=40)


def pendulum_dynamics() -> DynamicsRunnerCfg:
    """A perceptron learns the dynamics of Pendulum-v1 from a dataset: dataset=NAME."""
    return DynamicsRunnerCfg(
        experiment_name="pendulum-dynamics",
        policy=MLPDynamicsCfg(),
        algorithm=DynamicsCfg(decay_updates=4000),
        max_iterations=4,
        save_interval=1,
    )


def pendulum_dynamics_transformer() -> DynamicsRunnerCfg:
    """A causal transformer learns the dynamics of Pendulum-v1 from a dataset: dataset=NAME."""
    return DynamicsRunnerCfg(
        experiment_name="pendulum-dynamics-transformer",
        policy=TransformerDynamicsCfg(),
        algorithm=DynamicsCfg(decay_updates=2000, batch_size=32, window=20),
        updates_per_iteration=500,
        max_iterations=4,
        save_interval=1,
    )


def _mbpo(name: str, task: str, max_iterations: int, algorithm: MBPOCfg, network) -> typing.Any:
    return OffPolicyRunnerCfg(
        experiment_name=name,
        env=GymnasiumEnvCfg(task=task),
        policy=ActorQPackCfg(
            actor_cfg=SACActorCfg(backbone_cfg=network),
            critic_cfg=QNetworkCfg(backbone_cfg=network),
        ),
        algorithm=algorithm,
        num_steps_per_env=250,
        max_iterations=max_iterations,
        save_interval=10,
        num_checkpoints_kept=1,  # replay and imagined transitions make checkpoints large
        replay_size=250 * max_iterations,
    )


def pendulum_tdmpc2() -> PlanningRunnerCfg:
    """Pendulum-v1, 10,000 steps, with a model of 1M parameters."""
    algorithm = TDMPC2Cfg(
        gamma=discount_for(200),
        batch_size=128,
        warmup_steps=1000,
        pretraining_updates=500,
        updates_per_step=0.5,
        precision="auto",
    )
    model = WorldModelCfg(
        backbone_cfg=normed_mlp([384, 384]),
        latent_dim=128,
        num_critics=2,
        predicts_termination=False,
        planner=_SMALL_PLAN,
    )
    return _run("pendulum-tdmpc2", "Pendulum-v1", 10, algorithm, model)


def pendulum_tdmpc() -> PlanningRunnerCfg:
    """TD-MPC on Pendulum-v1, 10,000 steps."""
    algorithm = TDMPCCfg(
        batch_size=128,
        warmup_steps=1000,
        pretraining_updates=500,
        updates_per_step=0.5,
        precision="auto",
    )
    model = _tdmpc_model(256, predicts_termination=False, planner=_SMALL_PLAN.replace(momentum=0.1))
    return _run("pendulum-tdmpc", "Pendulum-v1", 10, algorithm, model)


def _tdmpc_model(width: int, **changes: typing.Any) -> WorldModelCfg:
    """The networks of TD-MPC; its paper has a width of 512."""
    after_critics = [[("LayerNorm", {}), ("Tanh", {})], [("ELU", {})], []]
    return WorldModelCfg(
        backbone_cfg=plain_mlp([width, width], "ELU"),
        critic_backbone_cfg=MLPCfg(hidden_features=[width, width], activations=after_critics),
        encoder_backbone_cfg=plain_mlp([256], "ELU"),
        latent_dim=50,
        simnorm_group=None,
        num_bins=None,
        num_critics=2,
        policy_std=0.05,
        takes_lowest=True,
        init="orthogonal",
        **changes,
    )


def halfcheetah_tdmpc2() -> PlanningRunnerCfg:
    """HalfCheetah-v5, a million steps, with a model of 5M parameters."""
    algorithm = TDMPC2Cfg(gamma=discount_for(1000), precision="auto")
    model = WorldModelCfg(predicts_termination=False)
    return _run("halfcheetah-tdmpc2", "HalfCheetah-v5", 1000, algorithm, model)


def tdmpc2(name: str, task: str) -> PlanningRunnerCfg:
    """A million steps of any task with real actions, with a model of 5M parameters."""
    return _run(name, task, 1000, TDMPC2Cfg(precision="auto"), WorldModelCfg())


def tdmpc(name: str, task: str) -> PlanningRunnerCfg:
    """A million steps of any task with real actions, with TD-MPC's networks and our head for the
    end of an episode.
    """
    model = _tdmpc_model(512, planner=PlannerCfg(momentum=0.1))
    return _run(name, task, 1000, TDMPCCfg(precision="auto"), model)


def _run(
    name: str, task: str, max_iterations: int, algorithm: TDMPC2Cfg, model: WorldModelCfg
) -> PlanningRunnerCfg:
    return PlanningRunnerCfg(
        experiment_name=name,
        env=GymnasiumEnvCfg(task=task),
        policy=WorldModelPackCfg(actor_cfg=model),
        algorithm=algorithm,
        max_iterations=max_iterations,
        save_interval=max(5, max_iterations // 10),
        num_checkpoints_kept=1,  # the replay makes checkpoints large
        replay_size=1000 * max_iterations,
    )
