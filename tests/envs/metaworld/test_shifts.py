"""Tasks with one thing changed: what differs, and that nothing else does."""

import numpy as np
import pytest

from rrf.envs.metaworld import shifts
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.metaworld.tasks import INSTRUCTIONS, SHIFTED_TASKS, TASKS
from rrf.envs.vec_env import InitialState
from rrf.envs.wording import wording

TASK = "drawer-open-v3"
PICTURES = ("camera", "light", "texture", "distractors")


def start(*states: InitialState, **changes):
    env = MetaWorldCfg(num_envs=len(states), chunk_length=1, **changes).build()
    return env, env.reset(states)


def differs(one: np.ndarray, other: np.ndarray) -> float:
    """The share of the pixels that differ visibly."""
    return float((np.abs(one.astype(int) - other).max(axis=-1) > 10).mean())


@pytest.mark.parametrize("shift", PICTURES)
def test_another_picture_of_the_same_episode(shift):
    states = [InitialState(f"{TASK}{at}", 4242, 3) for at in ("", f"@{shift}")]
    env, seen = start(*states, image_size=32)
    random = np.random.default_rng(0)
    for _ in range(6):
        action = random.uniform(-1, 1, 4).astype(np.float32)
        seen = env.step(np.stack([action, action])[:, None]).observation
        np.testing.assert_array_equal(env.full_state(0), env.full_state(1))
    one, other = seen.images["corner2"]
    assert differs(one, other) > 0.01
    np.testing.assert_array_equal(*seen.state)
    assert seen.instruction == [INSTRUCTIONS[TASK]] * 2
    env.close()


@pytest.mark.parametrize(
    "shift", ["light", *(pytest.param(s, marks=pytest.mark.slow) for s in PICTURES if s != "light")]
)
def test_pictures_repeat_and_are_others_for_another_seed(shift):
    task = f"{TASK}@{shift}"
    states = [InitialState(task, 4242, 3), InitialState(task, 777, 3), InitialState(task, 4242, 4)]
    env, seen = start(*states, image_size=32)
    env.close()
    again_env, again = start(states[0], image_size=32)
    again_env.close()
    images = seen.images["corner2"]
    np.testing.assert_array_equal(images[0], again.images["corner2"][0])
    assert min(differs(images[0], images[1]), differs(images[0], images[2])) > 0.01
    for later in range(shifts.NUM_SCENES):
        change = shifts.scene_change(InitialState(task, 1, later))
        assert change == shifts.scene_change(InitialState(task, 1, later + shifts.NUM_SCENES))


@pytest.mark.parametrize("task", ["button-press-topdown-v3", "drawer-open-v3", "window-open-v3"])
def test_the_hand_begins_elsewhere_and_the_expert_goes_on_from_there(task):
    states = [InitialState(f"{task}{at}", 4242, 5) for at in ("", "@start")]
    env, seen = start(*states, cameras=[], max_episode_steps=60)
    moved = seen.state[1, :3] - seen.state[0, :3]
    assert 0.005 < np.abs(moved).max() < 0.075
    # What the task is about stands where it stood.
    np.testing.assert_allclose(
        env.expert_observation(1)[4:18], env.expert_observation(0)[4:18], atol=1e-4
    )
    running = [0, 1]
    for _ in range(60):
        actions = np.stack([env.expert_action(slot) for slot in running])[:, None]
        step = env.step(actions, running)
        assert not step.truncated.any()
        running = [slot for slot, ended in zip(running, step.terminated, strict=True) if not ended]
        if not running:
            break
    assert not running
    env.close()


def test_other_words():
    for task in TASKS:
        worded = {
            name: {
                wording(InitialState(f"{task}@{name}", seed, index), INSTRUCTIONS[task])
                for seed in range(4)
                for index in range(50)
            }
            for name in ("wording", "other-wording")
        }
        assert min(map(len, worded.values())) >= 3, task
        assert not worded["wording"] & worded["other-wording"]
        assert INSTRUCTIONS[task] not in worded["wording"] | worded["other-wording"]
    states = [InitialState(f"{TASK}@wording", 4242, index) for index in range(4)]
    env, seen = start(*states, cameras=[])
    env.close()
    assert seen.instruction == [wording(each, INSTRUCTIONS[TASK]) for each in states]
    assert len(set(seen.instruction)) > 1


def test_all_changed_tasks_are_tasks():
    assert len(SHIFTED_TASKS) == len(TASKS) * len(shifts.SHIFTS)
    cfg = MetaWorldCfg()
    cfg.check_task("peg-insert-side-v3@texture")
    with pytest.raises(ValueError, match=r"no Meta-World task 'drawer-open-v3@lights'.*@light"):
        cfg.check_task("drawer-open-v3@lights")


@pytest.mark.slow
def test_the_pictures_of_all_changed_tasks_can_be_drawn():
    for task in TASKS:
        plain = [InitialState(task, 42, 7)]
        states = plain + [InitialState(f"{task}@{shift}", 42, 7) for shift in PICTURES]
        env, seen = start(*states, image_size=32)
        env.close()
        images = seen.images["corner2"]
        assert all(differs(images[0], image) > 0.003 for image in images[1:]), task
