"""PushT in its own interpreter, and what its config says without it."""

import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.pusht.configs import PushtCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.files import load_protocol
from rrf.evaluation.vla.configs import MAX_REWARD
from rrf.presets import resolve
from tests.envs.foreign import real

CFG = PushtCfg(num_envs=2, chunk_length=10)


def test_a_config_says_what_it_does_not_know():
    assert ENVS.get("pusht") is PushtCfg
    assert (CFG.fps, CFG.state_dim, CFG.replace(keypoints=False).state_dim) == (10, 18, 2)
    with pytest.raises(ValueError, match="no camera 'topp'; did you mean 'top'"):
        CFG.replace(cameras=["topp"])
    with pytest.raises(ValueError, match="no PushT task 'pusht'; known: PushT"):
        CFG.check_initial_state(InitialState("pusht", 0, 0))


@pytest.mark.parametrize(("name", "state_dim"), [("pusht-keypoints", 18), ("pusht-demo", 2)])
def test_the_protocols_are_those_of_the_presets(name, state_dim):
    protocol = load_protocol(f"configs/protocols/{name}.yaml")
    assert protocol.environment_cfg().state_dim == state_dim
    assert list(protocol.metrics) == [MAX_REWARD]
    assert protocol.measured(0.75) == {MAX_REWARD: 0.75}
    for preset in ("pusht-act", "pusht-diffusion"):
        policy = resolve(preset).policy
        assert (policy.state_dim, policy.action_dim, policy.environment_dims) == (18, 2, 16)
        assert protocol.too_short(policy.chunk_length) is None


def test_without_its_interpreter_it_says_what_to_type(tmp_path):
    real.check_says_what_to_type(CFG, tmp_path)


@pytest.mark.slow
def test_an_initial_state_is_the_same_episode_to_the_bit():
    real.check_exact(CFG, ["PushT"] * 2)


@pytest.mark.slow
def test_it_is_gym_pushts_own_with_its_rewards():
    """The numbers are those of gym_pusht 0.1.8 itself: `reset(seed=42015)`, then ten times
    `step([256, 256])`."""
    with real.built(CFG.replace(num_envs=1, reward="coverage")) as env:
        begun = env.reset([InitialState("PushT", 42, 15)])
        step = env.step(np.zeros((1, 10, 2), np.float32))
    np.testing.assert_allclose(begun.state[0, :4], (136.0, 198.0, 216.3189, 223.7695), atol=1e-3)
    ended = step.observation.state[0, :4]
    np.testing.assert_allclose(ended, (255.8783, 255.9412, 241.9373, 265.8387), atol=1e-3)
    np.testing.assert_allclose(step.extras["rewards"][0, -1], 0.375551, atol=1e-5)
    image = step.observation.images["top"][0]
    assert image.shape == (96, 96, 3)
    np.testing.assert_allclose(image[48, 48], (78, 126, 255), atol=3)  # the agent


@pytest.mark.slow
def test_relative_actions_go_where_absolute_ones_go():
    """From (136, 198), a relative (0.5, -0.25) is 48 pixels to the right and 24 up."""
    ended = []
    for actions, action in (
        ("relative", (0.5, -0.25)),
        ("absolute", ((136 + 48) / 256 - 1, (198 - 24) / 256 - 1)),
    ):
        cfg = CFG.replace(num_envs=1, chunk_length=1, actions=actions, cameras=[])
        with real.built(cfg) as env:
            env.reset([InitialState("PushT", 42, 15)])
            step = env.step(np.array([[action]], np.float32))
        ended.append(step.observation.state)
    np.testing.assert_allclose(*ended, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("actions", ["absolute", "relative"])
def test_the_expert_covers_the_outline_on_initial_states_it_was_not_made_on(actions, tmp_path):
    with real.workspace_of("pusht"):
        cfg = CFG.replace(actions=actions)
        attempts, episodes = real.record(cfg, "PushT", 8, tmp_path, [0.0, 0.05])
    assert attempts <= 10
    for episode in episodes:
        assert 0.95 < episode["rewards"].sum() <= 1.0  # the largest coverage
        assert episode["obs/top_image"].shape[1:] == (96, 96, 3)
