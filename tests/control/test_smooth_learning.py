"""Penalties on roughness make a policy smoother and cost it little: the presets as they are."""

import numpy as np
import pytest

from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.evaluation.control.smoothness import smoothness
from rrf.presets import resolve

SEEDS = (0, 1, 2)
QUARTER = 25  # of the presets' hundred iterations
SLOW = pytest.mark.slow


def learned(preset, directory, seed=0, **changes):
    """Mean return and smoothness Sm of 100 greedy episodes of Pendulum-v1 after training."""
    runner = resolve(preset, {"seed": seed, "trackers": [], **changes}).build(directory)
    runner.run()
    policy = runner.policy.deployable()
    env = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=100).build(seed=12345)
    actions, total = [], 0.0
    for _ in range(200):
        chosen = policy.act(env.get_observations())
        total += env.step(chosen)[1].mean().item()
        actions.append(chosen.numpy())
    episodes = np.stack(actions, 1)
    return total, float(np.mean([smoothness(one, env.interface.step_dt) for one in episodes]))


@pytest.fixture(scope="module")
def means(tmp_path_factory):
    """Return and Sm of a preset, means over the seeds; made once."""
    known = {}

    def of(preset):
        if preset not in known:
            directory = tmp_path_factory.mktemp(preset)
            found = [learned(preset, directory / str(seed), seed) for seed in SEEDS]
            known[preset] = np.mean(found, axis=0)
        return known[preset]

    return of


@pytest.mark.parametrize(
    "name",
    ["caps", "l2c2", "lips", pytest.param("lcp", marks=SLOW), pytest.param("lipsnet", marks=SLOW)],
)
def test_actions_become_smoother_at_little_cost(name, means):
    found_return, found_sm = means(f"pendulum-{name}")
    plain_return, plain_sm = means("pendulum-ppo")
    assert found_sm < 0.7 * plain_sm
    assert found_return > plain_return - 0.05 * abs(plain_return)


@pytest.mark.parametrize(("name", "num_iterations"), [("lcp", QUARTER), ("lipsnet", 2 * QUARTER)])
def test_other_smooth_policies_learn(name, num_iterations, tmp_path):
    found_return, _ = learned(f"pendulum-{name}", tmp_path, max_iterations=num_iterations)
    assert found_return > -250.0
