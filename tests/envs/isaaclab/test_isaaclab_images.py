"""Isaac Lab seen through its tiled camera: mapping, episodes, pictures, and what is refused."""

import typing

import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.isaaclab.configs import IsaacLabCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import resolve
from tests.envs.foreign import real

YAML = {  # as RLinf's extension of Isaac Lab has it
    "main_images": "tiled_camera",
    "states": [{"key": "joint_pos_rel", "slice": [0, 1]}, {"key": "joint_vel_rel"}],
    "action_mapping": {"prefix_pad": 0, "suffix_pad": 0},
}
CFG = IsaacLabCfg(num_envs=3, policy_group="critic", success="survived").override(YAML)
CFG = CFG.replace(max_episode_steps=20, image_size=32)


def starts(*indices):
    return [InitialState(CFG.task, 5, index) for index in indices]


def test_the_mapping_is_checked_without_a_simulator():
    assert ENVS.get("isaaclab") is IsaacLabCfg
    assert (CFG.state_dim, CFG.action_dim, CFG.fps) == (None, 1, 60)
    whole = CFG.override({"states": [{"key": "a", "slice": [2, 5]}, {"key": "b", "slice": [0, 1]}]})
    assert whole.state_dim == 4
    with pytest.raises(ValueError, match="no camera 'front': main_images and extra_view_images"):
        CFG.replace(cameras=["front"])
    with pytest.raises(ValueError, match=r"slice of a is \[3, 3\]"):
        CFG.override({"states": [{"key": "a", "slice": [3, 3]}]})
    with pytest.raises(ValueError, match="prefix_pad is -1"):
        CFG.override({"action_mapping": {"prefix_pad": -1}})
    with pytest.raises(ValueError, match="did you mean 'prefix_pad'"):
        CFG.override({"action_mapping": {"prefix_padd": 1}})
    protocol: typing.Any = load_protocol("configs/protocols/isaaclab-cartpole-camera.yaml")
    cfg: typing.Any = resolve("isaaclab-grpo-compact")
    trained_in = cfg.env
    judged = protocol.environment_cfg()
    for name in (*IsaacLabCfg.conventions, "success", "max_episode_steps", "image_size"):
        assert getattr(judged, name) == getattr(trained_in, name), name


@pytest.mark.slow
def test_episodes_depend_on_their_initial_state_alone(isaaclab):
    env = CFG.build()
    try:
        first = env.reset(starts(0, 1, 0))
        assert first.instruction == ["balance the pole"] * 3
        assert (env.state_dim, first.state.shape) == (3, (3, 3))
        np.testing.assert_array_equal(first.state[0], first.state[2])
        assert not np.array_equal(first.state[0], first.state[1])
        images = first.images["tiled_camera"]
        assert (images.dtype, images.shape) == (np.uint8, (3, 32, 32, 3))
        np.testing.assert_array_equal(images[0], images[2])
        assert images.std() > 3
        push = np.full((3, 2, 1), 0.4, np.float32)
        one = env.step(push[:2], [0, 1])
        other = env.step(push[:1], [2])  # it waited, and the others are put back
        np.testing.assert_array_equal(one.observation.state[0], other.observation.state[0])
        np.testing.assert_array_equal(
            one.observation.images["tiled_camera"][0], other.observation.images["tiled_camera"][0]
        )
        before = env.step(push, None).observation.state
        env.reset(starts(1), [1])
        env.step(push[:1], [1])
        again = env.step(push, None).observation.state
        assert (again[0] != before[0]).all()
    finally:
        env.close()


@pytest.mark.slow
def test_a_pole_that_is_left_alone_stands_or_the_cart_leaves_the_track(isaaclab):
    env = CFG.replace(num_envs=1, max_episode_steps=150, chunk_length=10).build()
    try:
        env.reset(starts(0), [0])
        step = env.step(np.ones((1, 10, 1), np.float32))
        while not (step.terminated | step.truncated)[0]:
            step = env.step(np.ones((1, 10, 1), np.float32))
        assert (bool(step.success[0]), bool(step.truncated[0])) == (False, True)
        assert step.extras["log"]["episode/steps"] < 150, "it ended at once"
        assert abs(step.observation.state[0, 0]) > 3.0, "the state it ended in, not the next one"
        assert (step.observation.images["tiled_camera"] == 0).all()
        env.reset(starts(0), [0])
        short = env.step(np.zeros((1, 10, 1), np.float32))
        assert not (short.terminated | short.truncated)[0]
    finally:
        env.close()
    env = CFG.replace(num_envs=1, max_episode_steps=4, chunk_length=4).build()
    try:
        env.reset(starts(0), [0])
        step = env.step(np.zeros((1, 4, 1), np.float32))
        assert (bool(step.success[0]), int(step.steps[0])) == (True, 4)
    finally:
        env.close()


@pytest.mark.slow
def test_it_says_which_terms_there_are(isaaclab):
    for changes, said in (
        ({"states": [{"key": "joint_pos"}]}, "no state 'joint_pos'; its terms are joint_pos_rel"),
        (
            {"main_images": "front", "cameras": ["front"]},
            "no 'front' for main_images; it has tiled",
        ),
        ({"action_mapping": {"prefix_pad": 1}}, "takes 1 numbers; without action_mapping's"),
    ):
        with real.built(CFG.override(changes)) as env, pytest.raises(ValueError, match=said):
            env.reset(starts(0, 1, 2))
