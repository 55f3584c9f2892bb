"""Penalties on roughness make a policy smoother and cost it little: the presets as they are."""

import numpy as np
import pytest

from rrf.envs.control_configs import GymnasiumEnvCfg
from rrf.evaluation.smoothness import smoothness
from rrf.presets import resolve

SEEDS = (0, 1)


def learned(preset, seed, directory):
    """Mean return and smoothness Sm of 100 greedy episodes after 205,000 steps of Pendulum-v1."""
    runner = resolve(preset, {"seed": seed}).build(directory)
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


def mean_over_seeds(preset, directory):
    return np.mean([learned(preset, seed, directory / str(seed)) for seed in SEEDS], axis=0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return mean_over_seeds("pendulum-ppo", tmp_path_factory.mktemp("plain"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["caps", "l2c2", "lips"])
def test_actions_become_smoother_at_little_cost(name, plain, tmp_path):
    found_return, found_sm = mean_over_seeds(f"pendulum-{name}", tmp_path)
    plain_return, plain_sm = plain
    assert found_sm < 0.7 * plain_sm
    assert found_return > plain_return - 0.05 * abs(plain_return)


@pytest.mark.slow
def test_a_lipsnet_learns(tmp_path):
    found_return, _ = learned("pendulum-lipsnet", 0, tmp_path)
    assert found_return > -250.0
