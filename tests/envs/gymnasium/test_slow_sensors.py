"""A task with slow sensors: what is seen when, resets, exact continuation, bad settings."""

import json

import numpy as np
import pytest
import torch

from rrf.envs.gymnasium.configs import GymnasiumEnvCfg, SlowSensorEnvCfg
from tests.envs.contract import assert_equal, check_contract, trajectory


def cfg(**changes) -> SlowSensorEnvCfg:
    defaults = {"task": "Pendulum-v1", "num_envs": 2, "slow": [2], "slow_interval": 3}
    return SlowSensorEnvCfg(**(defaults | changes))


def columns(observations, *which: int) -> list:
    return observations["policy"][0, list(which)].tolist()


def test_slow_dimensions_are_seen_at_every_third_step_and_held_between():
    env, plain = cfg().build(seed=4), GymnasiumEnvCfg(task="Pendulum-v1", num_envs=2).build(seed=4)
    assert env.interface.observation_dims == {"policy": 6}
    observations, whole = env.get_observations(), plain.get_observations()
    held, generator = whole["policy"][:, 2], torch.Generator().manual_seed(0)
    assert torch.equal(observations["policy"][:, :3], whole["policy"])
    assert columns(observations, 3, 4, 5) == [0.0, 1.0, 0.0]
    for t in range(1, 8):
        actions = torch.rand(2, 1, generator=generator) * 2 - 1
        observations, rewards, *_ = env.step(actions)
        whole, expected, *_ = plain.step(actions)
        held = whole["policy"][:, 2] if t % 3 == 0 else held
        assert torch.equal(rewards, expected)
        assert torch.equal(observations["policy"][:, :2], whole["policy"][:, :2])
        assert torch.equal(observations["policy"][:, 2], held)
        torch.testing.assert_close(observations["policy"][:, 3:4], actions)
        seen, age = columns(observations, 4, 5)
        assert seen == (t % 3 == 0)
        assert age == pytest.approx([1 / 3, 2 / 3, 1][(t - 1) % 3])


def test_an_episode_begins_with_everything_seen():
    env = cfg(max_episode_steps=4, slow_interval=10).build(seed=0)
    for _ in range(3):
        env.step(torch.ones(2, 1))
    observations, _, dones, extras = env.step(torch.ones(2, 1))
    assert dones.all()
    assert columns(extras["final_obs"], 3, 4, 5) == pytest.approx([1.0, 0.0, 0.4])
    assert columns(observations, 3, 4, 5) == [0.0, 1.0, 0.0]
    velocity = env.gym_envs[0].unwrapped.state[1]
    assert columns(observations, 2)[0] == pytest.approx(velocity)
    observations, *_ = env.step(torch.ones(2, 1))
    assert columns(observations, 4, 5) == pytest.approx([0.0, 0.1])


def test_slow_dimensions_come_after_the_fast_ones_and_hidden_ones_nowhere():
    env = cfg(slow=[0], hidden=[1]).build(seed=4)
    whole = GymnasiumEnvCfg(task="Pendulum-v1", num_envs=2).build(seed=4).get_observations()
    assert columns(env.get_observations(), 0, 1) == columns(whole, 2, 0)


def test_an_action_out_of_bounds_is_shown_as_it_was_taken():
    observations, *_ = cfg().build(seed=0).step(torch.full((2, 1), 3.0))
    assert columns(observations, 3) == [1.0]


def test_it_obeys_the_contract_and_continues_bit_for_bit():
    check_contract(lambda: cfg(num_envs=3).build(seed=5))
    original, other = cfg().build(seed=0), cfg().build(seed=1)
    trajectory(original, torch.Generator().manual_seed(3), 4)  # in between two sightings
    state = original.state()
    state.facts = json.loads(json.dumps(state.facts))
    other.load_state(state)
    runs = [trajectory(env, torch.Generator().manual_seed(0), 7) for env in (other, original)]
    assert_equal(*runs)
    np.testing.assert_array_equal(
        other.get_observations()["policy"], original.get_observations()["policy"]
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cfg(slow=[]), "slow names no dimension; use GymnasiumEnvCfg"),
        (lambda: cfg(slow_interval=1), "slow_interval is 1, allowed: 2 or more"),
        (lambda: cfg(slow=[3]).build(), "slow names dimension 3; Pendulum-v1 shows .* 0, 1, 2"),
        (lambda: cfg(slow=[2], hidden=[2]).build(), "slow names dimension 2; .* 0, 1$"),
        (lambda: cfg(slow=[0, 1, 2]).build(), "none of the 3 dimensions of Pendulum-v1 fast"),
        (lambda: cfg(task="CartPole-v1").build(), "CartPole-v1 has discrete actions"),
    ],
)
def test_impossible_sensors_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
