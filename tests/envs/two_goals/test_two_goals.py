"""Where one policy sticks to the small reward it starts with, a population finds the large one."""

import pytest

from rrf.envs.two_goals.configs import TwoGoalsEnvCfg
from rrf.envs.two_goals.env import LENGTH
from rrf.presets import resolve
from tests.envs.contract import check_contract

ONE, ALL = (1,), (1, 2, 3)  # seeds


def returns(preset, tmp_path, seeds):
    """What the deployed policies earn, best first; 3 at most without the far goal."""
    found = []
    for seed in seeds:
        runner = resolve(preset, {"seed": seed}).build(tmp_path / f"{preset}_{seed}")
        runner.run()
        found.append(greedy_return(runner.policy))
    return sorted(found, reverse=True)


def greedy_return(policy) -> float:
    env = TwoGoalsEnvCfg(num_envs=1).build()
    deployed = policy.deployable()
    total = 0.0
    for _ in range(LENGTH):
        _, rewards, _, _ = env.step(deployed.act(env.get_observations()))
        total += rewards.item()
    return total


def test_the_environment_keeps_the_contract():
    check_contract(lambda: TwoGoalsEnvCfg(num_envs=4).build(), num_steps=70)


def test_one_policy_sticks_to_the_small_reward(tmp_path):
    assert returns("two-goals-ppo", tmp_path, ONE) == pytest.approx([3.0])


@pytest.mark.slow
def test_a_populations_leader_finds_the_large_reward(tmp_path):
    assert returns("two-goals-sapg", tmp_path, ONE)[0] > 15.0


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["two-goals-ppo", "two-goals-sapg", "two-goals-epo"])
def test_only_populations_leaders_find_the_large_reward(preset, tmp_path):
    found = returns(preset, tmp_path, ALL)
    if preset == "two-goals-ppo":
        assert found == pytest.approx([3.0, 3.0, 3.0])
    else:  # as many steps of the environment as the single policy had, by two seeds of three
        assert found[1] > 15.0
