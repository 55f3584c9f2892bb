"""A scene of MuJoCo in a folder of its own, which `docs/tutorials/mujoco-simulator.md` builds; the
page's commands are typed in `tests/docs/test_site.py`.
"""

import typing

import h5py
import numpy as np
import pytest

from rrf.envs import ENVS
from rrf.envs.demonstrations.collect import CollectCfg
from rrf.envs.demonstrations.recorder import Recorder
from rrf.envs.vec_env import InitialState
from rrf.presets import PRESETS


@pytest.fixture(scope="module")
def pusher():
    """Its configs; other tests look at all names there are."""
    with pytest.MonkeyPatch.context() as patch:
        for registry in (ENVS, PRESETS):
            patch.setattr(registry, "_targets", dict(registry._targets))
        from tests.mujoco_simulator.configs import PusherCfg

        yield PusherCfg


def played(env, state: InitialState, slot: int) -> tuple[np.ndarray, bool]:
    """The states that the expert visits, and whether it solves the task."""
    seen = [env.reset([state], [slot]).state]
    while True:
        step = env.step(env.expert_action(slot)[None, None], [slot])
        seen.append(step.observation.state)
        if step.success[0] or step.truncated[0]:
            return np.concatenate(seen), bool(step.success[0])


def test_the_expert_solves_nearly_all_and_episodes_depend_on_their_initial_state_alone(pusher):
    env = pusher(num_envs=2, chunk_length=1, cameras=[]).build()
    states = [InitialState(task, 5, index) for task in pusher().tasks for index in range(10)]
    first = [played(env, state, 0) for state in states]
    again = [played(env, state, 1) for state in reversed(states)][::-1]
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert sum(is_solved for _, is_solved in first) >= 18
    assert len({seen.tobytes() for seen, _ in first}) == 20


def test_the_wrong_cube_solves_nothing(pusher):
    env = pusher(num_envs=2, chunk_length=1, max_episode_steps=8, cameras=[]).build()
    red, blue = InitialState("push-red", 5, 0), InitialState("push-blue", 5, 0)
    env.reset([red, red])
    start = env._episodes[0].starts["push-blue"]
    env._episodes[1].task = blue.task  # its expert goes to the other cube
    while True:
        answer = env.expert_action(1)
        env.step(np.stack([answer, answer])[:, None])
        if np.linalg.norm(env._episodes[0].place("push-blue") - start) > 0.03:
            break
    assert env._episodes[1].is_solved
    assert not env._episodes[0].is_solved


def test_its_images_show_hand_and_cubes(pusher):
    env = pusher(num_envs=8, image_size=64).build()
    states = [InitialState(task, 5, index) for task in pusher().tasks for index in range(4)]
    images = env.reset(states).images["front"].astype(int)
    env.close()
    red, green, blue = np.moveaxis(images, -1, 0)
    seen = {
        "red": (red > 2 * green) & (red > 2 * blue),
        "blue": (blue > 2 * red) & (blue > 1.5 * green) & (blue > 100),
        "hand": images.min(axis=-1) > 150,
    }
    for name, pixels in seen.items():
        assert pixels.any(axis=1).sum(axis=1).min() >= 5, name  # columns
        assert pixels.any(axis=2).sum(axis=1).min() >= 5, name  # rows


def test_it_is_recorded_with_noise_on_both_numbers_of_an_action(pusher, tmp_path):
    wanted = {"env": pusher(image_size=8), "tasks": ["push-red"], "episodes": 1, "seed": 5}
    hands = {}
    for noise in (0.0, 0.3):
        cfg = CollectCfg(**wanted, action_noise=[noise], out=str(tmp_path / str(noise)))
        list(Recorder(cfg.to_dict()).record("push-red"))
        with h5py.File(cfg.path("push-red")) as file:
            demo: typing.Any = file["data/demo_0"]
            hands[noise] = demo["obs/hand"][:]
            assert demo["obs/front_image"].shape == (len(demo["actions"]), 8, 8, 3)
    off_m = np.abs(hands[0.3][1:4] - hands[0.0][1:4]).max(axis=0)
    assert off_m.min() > 0.003


def test_what_a_recording_needs_is_said(pusher, tmp_path):
    wanted = {"tasks": ["push-red"], "out": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pusher, "state_parts", {"hand": 3})
        cfg = CollectCfg(env=pusher(), **wanted)
        with pytest.raises(ValueError, match=r"PusherCfg are 3 numbers, but a state has 2"):
            list(Recorder(cfg.to_dict()).record("push-red"))
        patch.delattr(pusher, "state_parts")
        with pytest.raises(ValueError, match="PusherCfg lacks the class variables state_parts"):
            CollectCfg(env=pusher(), **wanted)
