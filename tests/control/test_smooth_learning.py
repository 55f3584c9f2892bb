"""Penalties on roughness make a learned policy smoother and cost it little."""

import numpy as np
import pytest

from rrf.algorithms import CAPSCfg, L2C2Cfg, LipsCfg, LipsNetPPOCfg, PPOCfg
from rrf.components import (
    ActorCriticPackCfg,
    LipsNetActorCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.envs.control_configs import GymnasiumEnvCfg
from rrf.evaluation.smoothness import smoothness
from rrf.networks import plain_mlp
from rrf.runners import OnPolicyRunnerCfg

SEEDS = (0, 1)
MLP = plain_mlp([64, 64], "Tanh")
GAUSSIAN = StateIndStdActorCfg(backbone_cfg=MLP)
LEARNING = {
    "num_learning_epochs": 10,
    "num_mini_batches": 8,
    "gamma": 0.95,
    "entropy_coef": 0.0,
    "learning_rate": 1e-3,
    "schedule": "linear",
    "use_clipped_value_loss": False,
    "normalize_rewards": True,
    "learner_threads": 1,
}


def learned(algorithm, seed, directory, actor=GAUSSIAN):
    """Mean return and smoothness Sm of 100 greedy episodes after 205,000 steps of Pendulum-v1."""
    cfg = OnPolicyRunnerCfg(
        env=GymnasiumEnvCfg(task="Pendulum-v1", num_envs=16),
        num_steps_per_env=128,
        max_iterations=100,
        save_interval=100,
        seed=seed,
        policy=ActorCriticPackCfg(actor_cfg=actor, critic_cfg=VNetworkCfg(backbone_cfg=MLP)),
        algorithm=algorithm,
    )
    runner = cfg.build(directory)
    runner.run()
    policy = runner.policy.deployable()
    env = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=100).build(seed=12345)
    actions, total = [], 0.0
    for _ in range(200):
        chosen = policy.act(env.get_observations()).clamp(-1, 1)
        total += env.step(chosen)[1].mean().item()
        actions.append(chosen.numpy())
    episodes = np.stack(actions, 1)
    return total, float(np.mean([smoothness(one, env.interface.step_dt) for one in episodes]))


def mean_over_seeds(algorithm, directory):
    return np.mean([learned(algorithm, seed, directory / str(seed)) for seed in SEEDS], axis=0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return mean_over_seeds(PPOCfg(**LEARNING), tmp_path_factory.mktemp("plain"))


@pytest.mark.slow
@pytest.mark.parametrize("cfg_class", [CAPSCfg, L2C2Cfg, LipsCfg])
def test_actions_become_smoother_at_little_cost(cfg_class, plain, tmp_path):
    found_return, found_sm = mean_over_seeds(cfg_class(**LEARNING), tmp_path)
    plain_return, plain_sm = plain
    assert found_sm < 0.7 * plain_sm
    assert found_return > plain_return - 0.05 * abs(plain_return)


@pytest.mark.slow
def test_a_lipsnet_learns(tmp_path):
    algorithm = LipsNetPPOCfg(**LEARNING)
    found_return, _ = learned(algorithm, 0, tmp_path, LipsNetActorCfg(backbone_cfg=MLP))
    assert found_return > -250.0
