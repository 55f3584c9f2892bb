"""ALOHA in its own interpreter, and what its config says without it."""

import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.aloha.configs import AlohaCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.files import load_protocol
from rrf.presets import resolve
from tests.envs.foreign import real

CFG = AlohaCfg(num_envs=2, chunk_length=10, image_size=120)
HELD = (0.19779, -0.96049, 1.1638, -0.00407, -0.29128, -0.00012, 0.74619)
HELD += (-0.28527, -0.96063, 1.16378, -0.00108, -0.29121, -0.00011, 0.39403)


def test_a_config_says_what_it_does_not_know():
    assert ENVS.get("aloha") is AlohaCfg
    assert (CFG.fps, CFG.state_dim, CFG.replace(objects=False).state_dim) == (50, 28, 14)
    assert AlohaCfg().image_shape == (480, 640)
    with pytest.raises(ValueError, match="image_size is 100, allowed: multiples of 3"):
        CFG.replace(image_size=100)
    with pytest.raises(ValueError, match="drawn_by is 'warp', allowed: raster, egl, osmesa"):
        CFG.replace(drawn_by="warp")
    with pytest.raises(ValueError, match="no ALOHA task 'insert'; did you mean 'insertion'"):
        CFG.check_initial_state(InitialState("insert", 0, 0))


def test_the_protocol_is_that_of_the_preset():
    protocol = load_protocol("configs/protocols/aloha-states.yaml")
    cfg, policy = protocol.environment_cfg(), resolve("aloha-act").policy
    assert (policy.state_dim, policy.action_dim) == (cfg.state_dim, cfg.action_dim) == (28, 14)
    assert policy.environment_dims == 14
    assert protocol.too_short(policy.chunk_length) is None
    images = load_protocol("configs/protocols/aloha-demo.yaml").environment_cfg()
    assert (images.image_shape, images.state_dim) == ((120, 160), 14)


def test_without_its_interpreter_it_says_what_to_type(tmp_path):
    real.check_says_what_to_type(CFG, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("task", CFG.tasks)
def test_an_initial_state_is_the_same_episode_to_the_bit(task):
    real.check_exact(CFG, [task] * 2, size=0.3)


@pytest.mark.slow
def test_it_is_gym_alohas_own():
    """The numbers are those of gym_aloha 0.1.5 itself: `reset(seed=42003)`, then ten times `step`
    with other goals for the waists and the grippers."""
    with real.built(CFG.replace(num_envs=1, cameras=[])) as env:
        begun = env.reset([InitialState("transfer_cube", 42, 3)]).state[0]
        goal = begun[:14].copy()
        goal[[0, 7]], goal[[6, 13]] = (0.2, -0.3), (1.0, 0.5)
        low, high = (
            np.array(env.cfg.simulator_arguments[end], np.float32) for end in ("low", "high")
        )
        action = 2 * (goal - low) / (high - low) - 1
        held = env.step(np.tile(action.astype(np.float32), (1, 10, 1))).observation.state[0]
    np.testing.assert_allclose(begun[14:17], (0.068408, 0.443508, 0.05), atol=1e-6)
    assert not begun[21:].any()  # there is one object
    np.testing.assert_allclose(held[:14], HELD, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("task", CFG.tasks)
def test_the_experts_solve_initial_states_they_were_not_made_on(task, tmp_path):
    with real.workspace_of("aloha"):
        attempts, episodes = real.record(CFG, task, 5, tmp_path, [0.0])
    assert attempts <= 6
    for episode in episodes:
        assert episode["rewards"].sum() == 4  # the largest reward
        assert episode["obs/top_image"].shape[1:] == (120, 160, 3)


@pytest.mark.slow
def test_arms_that_are_torn_apart_stay_where_they_were_and_the_episode_goes_on():
    random = np.random.default_rng(4242)
    cfg = CFG.replace(num_envs=1, cameras=[], chunk_length=50, max_episode_steps=200)
    with real.built(cfg) as env:
        env.reset([InitialState("transfer_cube", 4242, 0)])
        steps = [
            env.step(np.sign(random.uniform(-1, 1, (1, 50, 14))).astype(np.float32))
            for _ in range(4)
        ]
        states = [step.observation.state[0] for step in steps]
        assert all(np.isfinite(state).all() for state in states)
        assert (states[-1] == states[-2]).all()  # gym_aloha itself raises a PhysicsError
        assert [bool(step.truncated[0]) for step in steps] == [False, False, False, True]
        assert not steps[-1].success[0]
        begun = env.reset([InitialState("transfer_cube", 4242, 0)])
        assert (begun.state[0] != states[-1]).any()


@pytest.mark.slow
def test_our_pictures_are_those_of_dm_control():
    """All cameras of both tasks, while the arms are somewhere."""
    pictures = {}
    for renderer in ("raster", "egl"):
        cfg = CFG.replace(
            num_envs=1, image_size=240, drawn_by=renderer, cameras=list(CFG.known_cameras or ())
        )
        with real.built(cfg) as env:
            seen = []
            for task in cfg.tasks:
                env.reset([InitialState(task, 42, 0)])
                rng = np.random.default_rng(1)
                chunk = np.tile(rng.uniform(-0.3, 0.3, (1, 1, 14)), (1, 10, 1))
                seen.append(env.step(chunk.astype(np.float32)).observation.images)
            pictures[renderer] = seen
    for ours, theirs in zip(pictures["raster"], pictures["egl"], strict=True):
        for camera in ours:
            off = np.abs(ours[camera].astype(float) - theirs[camera])
            assert theirs[camera].std() > 20
            assert off.mean() < 1.5, camera
