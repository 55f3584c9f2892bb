"""Environments exchanged with RLinf: its observation dict, and a round trip by its contract."""

import numpy as np
import pytest
import torch

from rrf.data.schema import Observation
from rrf.envs import ENVS
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.rlinf import AsRLinf, FromRLinf, RLinfViews, from_rlinf, to_rlinf
from rrf.envs.vec_env import InitialState
from rrf.presets import PRESETS

with pytest.MonkeyPatch.context() as patch:  # other tests look at all that is registered
    for registry in (ENVS, PRESETS):
        patch.setattr(registry, "_targets", dict(registry._targets))
    from tests.toy_simulator.configs import ToyCfg

VIEWS = RLinfViews("front", wrist=("hand",), extra=("left", "right"))
STATES = [InitialState(task, 3, n) for task in ("reach-red", "reach-blue") for n in range(6)]
TOP = RLinfViews("top")


def observation(num_rows=2):
    random = np.random.default_rng(0)
    cameras = (VIEWS.main, *VIEWS.wrist, *VIEWS.extra)
    shape = (num_rows, 4, 5, 3)
    return Observation(
        {camera: random.integers(0, 256, shape, np.uint8) for camera in cameras},
        random.normal(size=(num_rows, 7)).astype(np.float32),
        ["open it", "close it"][:num_rows],
    )


def test_the_dict_has_rlinfs_keys_shapes_and_types():
    seen = observation()
    plain = to_rlinf(seen, VIEWS)
    assert list(plain) == [
        "main_images", "wrist_images", "extra_view_images", "states", "task_descriptions",
    ]  # fmt: skip
    assert plain["main_images"].shape == plain["wrist_images"].shape == (2, 4, 5, 3)
    assert plain["extra_view_images"].shape == (2, 2, 4, 5, 3)
    assert plain["main_images"].dtype == torch.uint8
    assert plain["states"].dtype == torch.float32
    assert plain["task_descriptions"] == ["open it", "close it"]
    alone = to_rlinf(seen, RLinfViews("left"))
    assert alone["wrist_images"] is None
    assert alone["extra_view_images"] is None
    both = to_rlinf(seen, RLinfViews("front", wrist=("left", "right")))
    torch.testing.assert_close(both["wrist_images"], plain["extra_view_images"])


def test_the_dict_and_back_is_the_same_observation():
    seen = observation()
    same_observation(from_rlinf(to_rlinf(seen, VIEWS), VIEWS), seen)


def same_observation(one, other):
    assert list(one.images) == list(other.images)
    for camera in one.images:
        np.testing.assert_array_equal(one.images[camera], other.images[camera])
    np.testing.assert_array_equal(one.state, other.state)
    assert one.instruction == other.instruction


def test_cameras_that_do_not_match_are_refused():
    seen = observation()
    with pytest.raises(ValueError, match="no camera 'top' for RLinf; the observation has: front"):
        to_rlinf(seen, RLinfViews("top"))
    plain = to_rlinf(seen, VIEWS)
    with pytest.raises(ValueError, match="wrist_images holds 1 images, but 0 cameras are named"):
        from_rlinf(plain, RLinfViews("front", extra=("left", "right")))
    with pytest.raises(ValueError, match="extra_view_images holds 2 images, but 1 cameras"):
        from_rlinf(plain, RLinfViews("front", wrist=("hand",), extra=("left",)))


def toy(num_envs=3):
    return ToyCfg(num_envs=num_envs, chunk_length=3, max_episode_steps=7).build()


def through_rlinf(env):
    """An environment that went out to RLinf's contract and came back."""
    return FromRLinf(
        AsRLinf(env, STATES, TOP),
        {state: number for number, state in enumerate(STATES)},
        TOP,
        chunk_length=env.chunk_length,
        action_dim=env.action_dim,
        state_dim=env.state_dim,
        max_episode_steps=env.max_episode_steps,
        fps=env.fps,
    )


def test_out_to_rlinf_and_back_every_episode_is_the_same():
    plain, exchanged = toy(), through_rlinf(toy())
    random = np.random.default_rng(1)
    ends = []
    same_observation(*(env.reset(STATES[:3]) for env in (plain, exchanged)))
    slots, waiting = [0, 1, 2], STATES[3:]
    while slots:
        actions = random.uniform(-1, 1, (len(slots), 3, 2)).astype(np.float32)
        for row in range(0, len(slots), 2):
            actions[row] = plain.expert_action(slots[row])
        one, other = (env.step(actions, slots) for env in (plain, exchanged))
        for name in ("reward", "terminated", "truncated", "success", "steps"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        same_observation(one.observation, other.observation)
        has_ended = one.terminated | one.truncated
        ends += one.success[has_ended].tolist()
        over = np.array(slots)[has_ended].tolist()
        slots = [slot for slot in slots if slot not in over]
        for slot in over[: len(waiting)]:  # one begins anew while others run
            state = waiting.pop()
            same_observation(*(env.reset([state], [slot]) for env in (plain, exchanged)))
            slots = sorted([*slots, slot])
    assert len(ends) == len(STATES)
    assert True in ends
    assert False in ends
    exchanged.close()
    plain.close()


def test_rlinf_sees_columns_per_action_and_counts_episodes():
    env = AsRLinf(toy(1), STATES, TOP)
    env.reset(reset_state_ids=[4])
    steps, total = 0, 0.0
    for _ in range(3):
        seen, rewards, terminations, truncations, infos = env.chunk_step(torch.zeros(1, 3, 2))
        total += rewards.sum().item()
        ended = (terminations | truncations)[0]
        steps += int(ended.int().argmax()) + 1 if ended.any() else 3
    assert rewards.shape == terminations.shape == truncations.shape == (1, 3)
    assert truncations.tolist() == [[True, False, False]]  # the seventh action of three chunks
    episode = infos[-1]["episode"]
    assert (episode["episode_len"].item(), steps) == (7, 7)
    assert episode["return"].item() == pytest.approx(total)
    assert not episode["success_once"].item()
    again = env.chunk_step(torch.ones(1, 3, 2))  # nothing moves after the end
    torch.testing.assert_close(again[0][-1]["states"], seen[-1]["states"])
    assert again[3].tolist() == [[False, False, True]]
    with pytest.raises(ValueError, match="no reset_state_id 99; there are 12"):
        env.reset([0], [99])


def test_a_running_slot_cannot_be_left_out():
    env = through_rlinf(toy(2))
    env.reset(STATES[:2])
    with pytest.raises(ValueError, match=r"no actions were given for slots \[1\]"):
        env.step(np.zeros((1, 3, 2), np.float32), [0])
    with pytest.raises(ValueError, match="has no reset_state_id; 12 initial states have one"):
        env.reset([InitialState("reach-red", 9, 0)], [0])


def test_rewards_stand_in_the_columns_of_their_actions():
    cfg = MetaWorldCfg(num_envs=1, chunk_length=3, image_size=16, ignore_terminations=True)
    start = InitialState("reach-v3", 777, 0)
    env, plain = AsRLinf(cfg.build(), [start], RLinfViews("corner2")), cfg.build()
    env.reset()
    plain.reset([start])
    actions = np.stack([plain.expert_action(0)] * 3)[None]
    _, rewards, terminations, _, infos = env.chunk_step(torch.from_numpy(actions))
    step = plain.step(actions)
    np.testing.assert_array_equal(rewards, step.extras["rewards"])
    assert len(np.unique(rewards)) == 3
    assert not terminations.any()
    assert infos[0]["episode"]["success_at_end"].tolist() == [False]
    env.close()
    plain.close()
