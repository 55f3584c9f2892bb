"""Episodes that begin in states of the scripted expert of mjlab's lifting task."""

import pytest
import torch

pytest.importorskip("mjlab")

from rrf.envs.mjlab.configs import MjlabEnvCfg, ShownEnvCfg
from rrf.envs.mjlab.env import MjlabEnv
from rrf.envs.mjlab.lifting_expert import LiftingExpert

HEIGHT = 10  # of the cube, in qpos


def shown(**fields) -> MjlabEnv:
    return ShownEnvCfg(num_envs=32, num_shown=4, steps_shown=150, **fields).build(seed=3)


@pytest.mark.slow
def test_the_expert_ends_what_it_began():
    env = shown(share=1.0)
    try:
        states = env.env.begin.states
        assert states["qpos"].shape == (600, 15)
        heights = env.env.sim.data.qpos[:, HEIGHT]
        assert (heights > 0.1).sum() > 4
        assert (heights < 0.03).sum() > 4
        cubes = env.env.sim.data.qpos[:, 8:11] - env.env.scene.env_origins
        assert cubes[:, :2].abs().max() < 0.6, "each in its own environment"
        expert = LiftingExpert(env)
        for _ in range(200):
            env.step(expert(env.get_observations()))
        distance = env.goal_distance()
        assert distance is not None
        assert distance.max() < 0.05, "the goals were drawn anew"
    finally:
        env.close()


def test_a_policy_sees_the_state_and_the_action_that_led_there():
    env = shown(share=1.0)
    try:
        states, data = env.env.begin.states, env.env.sim.data
        joints = data.qpos[:, :8]
        rows = (states["qpos"][:, None, :8] == joints).all(2).float().argmax(0)
        assert torch.equal(states["qpos"][rows, :8], joints)
        seen = env.get_observations()["critic"]
        torch.testing.assert_close(seen[:, -7:], states["actions"][rows])
        torch.testing.assert_close(seen[:, 8:16], states["qvel"][rows, :8])
    finally:
        env.close()


def test_the_share_says_how_many_begin_there_and_watching_shows_none():
    env = shown(share=0.5)
    try:
        away = torch.zeros(0)
        for _ in range(4):
            env.reset()
            at_home = env.get_observations()["critic"][:, :8].abs().amax(1) < 1e-5
            away = torch.cat([away, (~at_home).float()])
        assert 0.35 < away.mean() < 0.65
        ended = env.step(torch.zeros(32, 7))[2]
        assert not ended.any()
    finally:
        env.close()
    plain = ShownEnvCfg(num_envs=2).drawable().build(seed=3)
    same = MjlabEnvCfg(task="Mjlab-Lift-Cube-Yam", num_envs=2).build(seed=3)
    assert torch.equal(plain.get_observations()["actor"], same.get_observations()["actor"])
    plain.close()
    same.close()


@pytest.mark.slow
def test_a_run_goes_on_as_if_it_had_not_stopped():
    cfg: dict = {"share": 0.5, "overrides": {"episode_length_s": 0.1}}
    one, other = shown(**cfg), shown(**cfg)
    try:
        actions = torch.zeros(32, 7)
        for _ in range(7):
            one.step(actions)
        state = one.state()
        assert state is not None
        other.load_state(state)
        for _ in range(12):
            a, b = one.step(actions), other.step(actions)
            assert torch.equal(a[0]["actor"], b[0]["actor"])
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"share": 1.5}, r"share is 1\.5, allowed: 0 to 1"),
        ({"num_shown": 0}, "num_shown is 0"),
        ({"expert": "os:system"}, r"expert is 'os:system', .* add --import os"),
        ({"backend": "mjlab"}, "on the native backend only; use device=cpu and backend=native"),
        ({"task": "Mjlab-Velocity-Flat-Unitree-Go1"}, "the lifting expert reads the terms"),
    ],
)
def test_what_cannot_begin_there_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ShownEnvCfg(**{"num_envs": 1, "num_shown": 1, "steps_shown": 1, **fields}).build(seed=0)
