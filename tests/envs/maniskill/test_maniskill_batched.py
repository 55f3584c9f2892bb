"""The batched path of ManiSkill against scenes that answer as ManiSkill does, all at once."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

import rrf.envs.maniskill

N, SIZE = 4, 8
FOLDER = Path(rrf.envs.maniskill.__file__).parent


@pytest.fixture
def batched(monkeypatch):
    """The module, imported as the foreign interpreter does."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import batched

    yield batched
    del sys.modules["batched"]


class Sensor:
    def __init__(self, env):
        self.env, self.taken = env, None

    def capture(self):
        self.taken = self.env.x.clone()

    def get_obs(self, rgb, depth, position, segmentation):
        assert (rgb, depth, position, segmentation) == (True, False, False, False)
        assert self.taken is not None
        shade = (self.taken * 10).to(torch.uint8)
        return {"rgb": shade[:, None, None, None].expand(N, SIZE, SIZE, 3)}


class Scenes:
    """N scenes with the calls, shapes and types of ManiSkill 3.0.1's BaseEnv. In each, the first
    number of an action moves x, and x above 1 is the goal."""

    def __init__(self):
        self.device, self.x = torch.device("cpu"), torch.zeros(N)
        self.resets, self.rendered = [], 0
        self.scene = types.SimpleNamespace(
            sensors={"base_camera": Sensor(self)}, update_render=self._update_render
        )
        self.agent = types.SimpleNamespace(
            tcp=types.SimpleNamespace(pose=self), robot=types.SimpleNamespace(get_qpos=self._qpos)
        )

    @property
    def raw_pose(self):
        pose = torch.zeros(N, 7)
        pose[:, 0], pose[:, 4] = self.x, -1.0
        return pose

    def _qpos(self):
        return torch.full((N, 9), 0.04)

    def _update_render(self, update_sensors, update_human_render_cameras):
        assert (update_sensors, update_human_render_cameras) == (True, False)
        self.rendered += 1

    def reset(self, seed=None, options=None):
        ids = options["env_idx"]
        assert ids.dtype == torch.int64
        self.resets.append(ids.tolist())
        self.set_state_dict(options["reset_to_env_states"]["env_states"], ids)
        return {}, {"reconfigure": False}

    def get_state_dict(self):
        cube, panda = torch.zeros(N, 13), torch.zeros(N, 31)
        cube[:, 0] = self.x
        return {"actors": {"cube": cube}, "articulations": {"panda": panda}}

    def set_state_dict(self, state, env_idx):
        cube, panda = state["actors"]["cube"], state["articulations"]["panda"]
        assert (cube.shape, panda.shape) == ((len(env_idx), 13), (len(env_idx), 31))
        self.x[env_idx] = cube[:, 0]

    def step(self, action):
        assert (action.shape, action.dtype) == ((N, 4), torch.float32)
        self.x = self.x + action[:, 0]
        self.x = self.x + 0.001  # a scene that is given nothing moves on all the same
        success = self.x > 1
        info = {"elapsed_steps": torch.zeros(N, dtype=torch.int32), "success": success}
        return {}, self.x.clone(), success.clone(), torch.zeros(N, dtype=torch.bool), info

    def close(self):
        self.x = None


def start(task, seed, index):
    cube, panda = torch.zeros(1, 13), torch.zeros(1, 31)
    cube[0, 0] = index / 10
    return {"actors": {"cube": cube}, "articulations": {"panda": panda}}


@pytest.fixture
def made(batched):
    """Batches over such scenes, the scenes by task, and the images."""
    scenes, images = {}, np.zeros((1, N, SIZE, SIZE, 3), np.uint8)

    def make(task):
        return scenes.setdefault(task, Scenes())

    return batched.Batches(make, start, ["base_camera"], images, 1, N), scenes, images


def moves(*by_slot, steps=2):
    actions = np.zeros((len(by_slot), steps, 4), np.float32)
    actions[:, :, 0] = np.array(by_slot)[:, None]
    return actions


def test_slots_begin_where_their_initial_state_says_one_by_one_or_together(made):
    batches, scenes, images = made
    seen = batches.reset([2, 0], [("A", 0, 5), ("A", 0, 1)])
    assert scenes["A"].resets == [[2, 0]]
    assert seen["state"][:, 0].tolist() == pytest.approx([0.5, 0.1])
    assert seen["state"][:, 4].tolist() == [1.0, 1.0]  # the quaternion's sign is settled
    assert (images[0, 2] == 5).all()
    batches.reset([1], [("A", 0, 3)])
    assert scenes["A"].x.tolist() == pytest.approx([0.1, 0.3, 0.5, 0.0])


def test_slots_that_a_call_leaves_out_stay_where_they_are(made):
    batches, scenes, _ = made
    batches.reset([0, 1, 2], [("A", 0, index) for index in (0, 1, 2)])
    answer = batches.step([1], moves(0.2), [10], True)
    assert answer["state"][0, 0] == pytest.approx(0.502)
    assert answer["steps"].tolist() == [2]
    assert scenes["A"].x[[0, 2]].tolist() == pytest.approx([0.0, 0.2])


def test_success_and_horizon_end_an_episode_inside_a_chunk(made):
    batches, _, images = made
    batches.reset([0, 1, 2], [("A", 0, index) for index in (8, 1, 2)])
    answer = batches.step([0, 1, 2], moves(0.5, 0.1, 9.0, steps=3), [10, 2, 10], False)
    assert answer["success"].tolist() == [True, False, True]
    assert answer["steps"].tolist() == [1, 2, 1]
    # 0.8 + 0.501; 0.201 and 0.302; the action 9 is clipped to 1: 0.2 + 1.001
    assert answer["reward"].tolist() == pytest.approx([1.301, 0.503, 1.201], abs=1e-5)
    assert answer["reward"].dtype == np.float32
    assert not images[0, :3].any()  # no last images were asked for


def test_tasks_have_scenes_of_their_own(made):
    batches, scenes, _ = made
    batches.reset([0, 1], [("A", 0, 1), ("B", 0, 2)])
    answer = batches.step([0, 1], moves(0.1, 0.2), [10, 10], True)
    assert answer["state"][:, 0].tolist() == pytest.approx([0.302, 0.602])
    assert scenes["A"].resets == [[0]]
    assert scenes["B"].resets == [[1]]
    batches.close()
    assert scenes["A"].x is None
