"""EnvPool's tasks: the contract, resets in the same step, agreement with Gymnasium's tasks."""

import numpy as np
import pytest
import torch

from rrf.envs.control_env import EnvState
from rrf.envs.gymnasium.configs import EnvPoolEnvCfg, GymnasiumEnvCfg
from tests.envs.contract import check_contract, random_actions

pytest.importorskip("envpool", exc_type=ImportError)


def build(task, num_envs=4, seed=0, **fields):
    return EnvPoolEnvCfg(task=task, num_envs=num_envs, **fields).build(seed=seed)


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5", "Hopper-v5"])
def test_it_obeys_the_contract(task):
    check_contract(lambda: build(task, num_envs=3, seed=5), has_state=False)


@pytest.mark.parametrize("task", ["HalfCheetah-v5", "Hopper-v5"])
def test_it_looks_as_gymnasiums_task_does(task):
    ours, theirs = build(task), GymnasiumEnvCfg(task=task, num_envs=4).build()
    assert ours.interface == theirs.interface
    assert ours.max_episode_length == theirs.max_episode_length == 1000


def test_recorded_actions_are_mapped_as_gymnasiums_task_does():
    ours, theirs = build("Pendulum-v1"), GymnasiumEnvCfg(task="Pendulum-v1", num_envs=4).build()
    taken = np.array([[-2.0], [0.5], [2.0]], np.float32)
    np.testing.assert_array_equal(ours.to_policy(taken), [[-1.0], [0.25], [1.0]])
    np.testing.assert_array_equal(ours.to_policy(taken), theirs.to_policy(taken))
    np.testing.assert_array_equal(ours.to_task(ours.to_policy(taken)), taken)


def test_an_episode_ends_at_its_last_observation_and_goes_on_with_a_first_one():
    """Hopper begins within 0.005 of upright and ends when it leans by 0.2 rad or sinks to 0.7 m."""
    env = build("Hopper-v5", num_envs=8)
    generator = torch.Generator().manual_seed(0)
    num_ended = 0
    for _ in range(120):
        observations, rewards, dones, extras = env.step(random_actions(env, generator))
        assert (rewards != 0).all()  # a step that only reset would earn nothing
        if not dones.any():
            continue
        final, first = extras["final_obs"]["policy"], observations["policy"][dones]
        num_ended += len(final)
        has_fallen = (final[:, 0] <= 0.7) | (final[:, 1].abs() >= 0.2)
        assert has_fallen.all()
        assert (first[:, 1].abs() <= 0.005).all()
        assert ((first[:, 0] - 1.25).abs() <= 0.005).all()
    assert num_ended >= 8


def test_mean_rewards_of_random_actions_are_gymnasiums():
    """Same physics from the same distribution of first states: the mean reward of the first twenty
    steps agrees within its standard error.
    """
    means = {}
    for cfg in (EnvPoolEnvCfg, GymnasiumEnvCfg):
        env = cfg(task="HalfCheetah-v5", num_envs=64).build(seed=1)
        generator = torch.Generator().manual_seed(0)
        rewards = [env.step(random_actions(env, generator))[1] for _ in range(20)]
        means[cfg] = torch.stack(rewards).mean(dim=0)
    ours, theirs = means.values()
    error = float(torch.sqrt((ours.var() + theirs.var()) / 64))
    assert abs(float(ours.mean() - theirs.mean())) < 3 * error
    assert 0.5 < float(ours.std() / theirs.std()) < 2.0


def test_a_time_limit_that_is_brought_forward_resets_the_task_itself():
    env = build("HalfCheetah-v5", num_envs=2)
    for _ in range(50):
        env.step(torch.ones(2, 6))
    env.episode_length_buf[0] = 999
    _, _, dones, extras = env.step(torch.ones(2, 6))
    assert dones.tolist() == extras["time_outs"].tolist() == [True, False]
    for step in range(1, 4):  # and is not reset again
        _, _, dones, _ = env.step(torch.ones(2, 6))
        assert not dones.any()
        assert env.episode_length_buf.tolist() == [step, 51 + step]


def test_a_resumed_run_begins_other_episodes_than_at_first():
    env, first = build("Hopper-v5"), build("Hopper-v5").get_observations()["policy"]
    env.set_progress(1200, seed=1)
    assert (env.reset()[0]["policy"] != first).any(dim=1).all()
    env.step(torch.zeros(4, 3))


def test_hidden_dimensions_are_nowhere():
    hidden, whole = build("Hopper-v5", hidden=[0, 10], seed=3), build("Hopper-v5", seed=3)
    assert hidden.interface.observation_dims == {"policy": 9}
    np.testing.assert_array_equal(
        hidden.get_observations()["policy"], whole.get_observations()["policy"][:, 1:10]
    )


def test_unknown_tasks_and_states_are_refused():
    with pytest.raises(ValueError, match="no EnvPool task 'Hoper-v5'; did you mean 'Hopper-v5'"):
        build("Hoper-v5")
    env = build("Hopper-v5")
    assert env.state() is None
    with pytest.raises(ValueError, match="GymnasiumEnvCfg"):
        env.load_state(EnvState({}, {}))


def test_observations_that_are_no_vector_are_refused_by_their_space():
    with pytest.raises(ValueError, match="observation space"):
        build("FrozenLake-v1")


def test_a_task_that_ends_in_the_last_step_allowed_is_no_time_out():
    env = build("CartPole-v1", num_envs=64)
    env.max_episode_length = 9
    env.set_progress(0, seed=0)  # a pool that knows the limit
    env.reset()
    generator, num_fallen = torch.Generator().manual_seed(0), 0
    for _ in range(120):
        actions = torch.randint(2, (64, 1), generator=generator).float()
        _, _, dones, extras = env.step(actions)
        if not dones.any():
            continue
        # CartPole ends beyond 2.4 m or 12 degrees.
        final = extras["final_obs"]["policy"]
        is_fallen = (final[:, 0].abs() > 2.4) | (final[:, 2].abs() > 12 * torch.pi / 180)
        assert torch.equal(extras["time_outs"][dones], ~is_fallen)
        num_fallen += int(is_fallen.sum())
    assert num_fallen > 10


def test_no_thread_is_refused():
    with pytest.raises(ValueError, match="num_threads is 0, allowed: 1 or more"):
        EnvPoolEnvCfg(num_threads=0)
