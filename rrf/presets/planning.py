"""TD-MPC2 and TD-MPC on Gymnasium's tasks. An iteration has 1,000 transitions."""

from rrf.algorithms.planning.configs import TDMPC2Cfg, TDMPCCfg, discount_for
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks.configs import MLPCfg, normed_mlp, plain_mlp
from rrf.policies.control.world_model_configs import PlannerCfg, WorldModelCfg, WorldModelPackCfg
from rrf.runners.control.off_policy_configs import PlanningRunnerCfg

_SMALL_PLAN = PlannerCfg(num_samples=128, num_elites=32, num_policy_samples=12, iterations=4)


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
    hidden = plain_mlp([256, 256], "ELU")
    after_critics = [[("LayerNorm", {}), ("Tanh", {})], [("ELU", {})], []]
    model = WorldModelCfg(
        backbone_cfg=hidden,
        critic_backbone_cfg=MLPCfg(hidden_features=[256, 256], activations=after_critics),
        encoder_backbone_cfg=plain_mlp([256], "ELU"),
        latent_dim=50,
        simnorm_group=None,
        num_bins=None,
        num_critics=2,
        policy_std=0.05,
        takes_lowest=True,
        init="orthogonal",
        predicts_termination=False,
        planner=_SMALL_PLAN.replace(momentum=0.1),
    )
    return _run("pendulum-tdmpc", "Pendulum-v1", 10, algorithm, model)


def halfcheetah_tdmpc2() -> PlanningRunnerCfg:
    """HalfCheetah-v5, a million steps, with a model of 5M parameters."""
    algorithm = TDMPC2Cfg(gamma=discount_for(1000), precision="auto")
    model = WorldModelCfg(predicts_termination=False)
    return _run("halfcheetah-tdmpc2", "HalfCheetah-v5", 1000, algorithm, model)


def tdmpc2(name: str, task: str) -> PlanningRunnerCfg:
    """A million steps of any task with real actions, with a model of 5M parameters."""
    return _run(name, task, 1000, TDMPC2Cfg(precision="auto"), WorldModelCfg())


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
