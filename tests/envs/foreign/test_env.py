"""An environment in a foreign interpreter fulfils the contract, and its death is noticed."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from rrf.envs.foreign import interpreters
from rrf.envs.process.child import ChildError, ChildValueError
from rrf.envs.process.workers import WorkerVecEnv
from rrf.envs.vec_env import ExpertVecEnv, InitialState
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.rollout_role import RolloutRole
from rrf.runners.vla_rl.job_sources import GroupRound
from tests.envs.foreign.configs import DotsCfg
from tests.orchestra.conftest import assert_same, make_policy
from tests.orchestra.toy import ToyCfg
from tests.waiting import is_running, wait_for

CFG = DotsCfg(num_envs=3)
TASK = "drawer-open-v3"


def starts(*indices):
    return [InitialState(TASK, 42, index) for index in indices]


@pytest.fixture
def env(home):
    env = CFG.build()
    yield env
    env.close()


def test_numbers_worked_by_hand(env):
    observation = env.reset(starts(0, 1, 0))
    begun = np.random.RandomState([42, 0, len(TASK)]).uniform(-0.5, 0.5, 4)
    np.testing.assert_array_equal(observation.state[0], begun.astype(np.float32))
    np.testing.assert_array_equal(observation.state[2], observation.state[0])
    assert observation.instruction == ["Open a drawer"] * 3
    images = observation.images["corner2"]
    assert (images.dtype, images.shape) == (np.uint8, (3, 32, 32, 3))
    row, column = ((begun[:2] + 1) / 2 * 31).astype(int)
    assert np.argwhere(images[0, :, :, 0]).tolist() == [[row, column]]
    actions = np.zeros((2, 2, 4), np.float32)
    actions[0, :, 0] = 0.5
    step = env.step(actions, [2, 0])  # other slots, another order
    np.testing.assert_allclose(step.observation.state[0], begun + np.eye(4)[0] / 10, atol=1e-7)
    np.testing.assert_allclose(step.reward, [2 * begun[0] + 0.15, 2 * begun[0]], rtol=1e-6)
    assert step.steps.tolist() == [2, 2]
    assert (step.truncated | step.terminated).tolist() == [False, False]
    assert set(env.cpu_s) == {"reset", "physics", "rendering"}
    kept = images.copy()
    env.step(np.ones((3, 2, 4), np.float32))
    np.testing.assert_array_equal(images, kept)  # what was handed out is not drawn over


def test_an_episode_ends_by_success_inside_a_chunk_or_by_its_horizon(env):
    env.reset(starts(0, 1, 2))
    actions = np.zeros((3, 2, 4), np.float32)
    actions[0] = 9.0  # clipped to 1
    while True:
        step = env.step(actions[[0]], [0])
        if step.terminated[0] or step.truncated[0]:
            break
    first = np.random.RandomState([42, 0, len(TASK)]).uniform(-0.5, 0.5, 4)
    needed = int(np.ceil((0.8 - first.max()) / 0.1 + 1e-9))
    assert needed <= 5
    assert step.success.tolist() == step.terminated.tolist() == [True]
    assert step.extras["log"]["episode/steps"] == needed
    ends = [env.step(actions[1:], [1, 2]) for _ in range(3)]
    assert [end.steps.tolist() for end in ends] == [[2, 2], [2, 2], [1, 1]]
    assert ends[2].truncated.tolist() == [True, True]
    with pytest.raises(ValueError, match="the episode of env 1 has ended"):
        env.step(actions[1:], [1, 2])


def test_an_episode_may_go_on_after_success(home):
    """`success` stays, `success_at_end` says what the last step said, `rewards` are of actions."""
    cfg = CFG.replace(num_envs=1, ignore_terminations=True)
    env = WorkerVecEnv(cfg, num_workers=1)
    [begun] = env.reset(starts(0)).state
    forth, back = (np.full((1, 2, 4), value, np.float32) for value in (1.0, -1.0))
    steps = [env.step(actions) for actions in (forth, forth, back)]
    env.close()
    needed = int(np.ceil((0.8 - begun.max()) / 0.1 + 1e-9))
    assert needed in (3, 4)
    assert [step.success[0] for step in steps] == [False, True, True]
    assert [step.extras["success_at_end"][0] for step in steps] == [False, True, needed == 3]
    assert not any(step.terminated[0] for step in steps)
    assert [step.truncated[0] for step in steps] == [False, False, True]
    assert [step.steps[0] for step in steps] == [2, 2, 1]
    places = begun[0] + 0.1 * np.array([1, 2, 3, 4, 3])
    rewards = np.concatenate([step.extras["rewards"][0] for step in steps])
    np.testing.assert_allclose(rewards, [*places, 0], atol=1e-6)
    assert steps[1].reward[0] == pytest.approx(rewards[2:4].sum())


def test_what_a_run_is_told_of_episodes_that_went_on(home):
    """The runner's source gets rewards of actions, and when the task was first solved."""
    env = CFG.replace(num_envs=2, ignore_terminations=True, max_episode_steps=40)
    backend = InlineBackend(env, RolloutRole(make_policy(), batch_rows=4), 1)
    source = GroupRound(iter(starts(*range(4))), 4, 2, 4, keeps_uniform=True)
    try:
        backend.play(source, (0, 7))
    finally:
        backend.close()
    solved = [episode for episode in source.episodes if episode.success]
    assert solved
    assert len(source.episodes) == 8
    for episode in source.episodes:
        assert episode.truncated
        assert episode.num_steps == 40 == len(episode.step_reward)
        by_chunk = episode.step_reward.reshape(20, 2).sum(1)
        np.testing.assert_allclose(by_chunk, episode.reward, atol=1e-6)
        assert (episode.steps_to_success is not None) == episode.success
        assert episode.success or not episode.success_at_end
    assert {episode.steps_to_success for episode in solved} <= set(range(2, 41, 2))


@pytest.mark.parametrize("sees_success", [False, True])
def test_the_end_of_a_solved_episode_is_seen_where_it_is_asked_for(home, sees_success):
    env = CFG.replace(num_envs=2, max_episode_steps=40)
    rollout = RolloutRole(make_policy(), batch_rows=4, sees_success=sees_success)
    backend = InlineBackend(env, rollout, 1)
    source = GroupRound(iter(starts(*range(4))), 4, 2, 4, keeps_uniform=True)
    try:
        backend.play(source, (0, 7))
    finally:
        backend.close()
    values = {True: [], False: []}
    for episode in source.episodes:
        values[episode.success].append(np.isfinite(episode.final_value))
    assert set(values[False]) <= {True}
    assert set(values[True]) == {sees_success}


def test_only_environments_that_can_go_on_are_told_to():
    with pytest.raises(ValueError, match="episodes of toy end with success; set ignore_termin"):
        ToyCfg(ignore_terminations=True)
    assert "ignore_terminations" not in CFG.to_dict()
    assert CFG.replace(ignore_terminations=True).to_dict()["ignore_terminations"]


def test_an_action_is_held_and_the_last_images_may_be_left_out(home):
    env = CFG.replace(num_envs=1, action_repeat=2, max_episode_steps=2, draws_final=False).build()
    assert env.fps == 5
    begun = env.reset(starts(3))
    step = env.step(np.full((1, 2, 4), 0.25, np.float32))
    np.testing.assert_allclose(step.observation.state, begun.state + 0.1, atol=1e-6)
    assert step.truncated.tolist() == [True]
    assert not step.observation.images["corner2"].any()
    env.close()


def test_a_task_may_have_a_shorter_horizon_of_its_own(home):
    env = CFG.replace(num_envs=2, horizons={"drawer-open-v3": 1}).build()
    env.reset([InitialState(task, 42, 0) for task in CFG.tasks])
    step = env.step(np.zeros((2, 2, 4), np.float32))
    assert step.steps.tolist() == [1, 2]
    assert step.truncated.tolist() == [True, False]
    env.close()


def test_it_has_an_expert_and_refuses_what_is_wrong(env):
    assert isinstance(env, ExpertVecEnv)
    env.reset(starts(0), [1])
    assert env.expert_action(1).tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="env 0 has no episode yet"):
        env.expert_action(0)
    with pytest.raises(ValueError, match="no dots task 'drawer'"):
        env.reset([InitialState("drawer", 42, 0)], [0])
    with pytest.raises(ValueError, match="action of env 1, step 0, dimension 2 is nan"):
        env.step(np.full((1, 2, 4), [0, 0, np.nan, 0], np.float32), [1])
    env.reset(starts(5), [0])
    with pytest.raises(ChildValueError, match="left of the middle there is no expert"):
        env.expert_action(0)
    assert env.step(np.zeros((1, 2, 4), np.float32), [1]).steps.tolist() == [2]


def test_workers_play_what_one_process_plays(home, env):
    workers = WorkerVecEnv(CFG, num_workers=2)
    for one in (env, workers):
        one.seen = [one.reset(starts(4, 5, 6))]
        one.seen += [one.step(np.full((3, 2, 4), 0.2, np.float32)).observation]
    workers.close()
    for ours, theirs in zip(env.seen, workers.seen, strict=True):
        np.testing.assert_array_equal(ours.state, theirs.state)
        np.testing.assert_array_equal(ours.images["corner2"], theirs.images["corner2"])


def test_mistakes_and_failures_of_the_simulator_are_told(home):
    env = CFG.build()
    with pytest.raises(ChildValueError, match=r"^13 is an unlucky number\n"):
        env.reset(starts(13), [0])
    with pytest.raises(ValueError, match="closed"):
        env.reset(starts(1), [0])
    with pytest.raises(ChildError, match=r"failed in 'reset': RuntimeError: no scene no dots\n"):
        CFG.build().reset(starts(15), [0])
    with pytest.raises(ChildError, match=r"died during 'reset', exit code -6") as failure:
        CFG.build().reset(starts(14), [0])
    assert any("about to go wrong" in note for note in failure.value.__notes__)


def test_a_killed_process_is_an_error_at_once(env):
    env.reset(starts(0, 1, 2))
    os.kill(env._child.pid, signal.SIGKILL)
    with pytest.raises(ChildError, match=r"process of dots \(pid \d+\) died during 'step'.*-9"):
        env.step(np.zeros((3, 2, 4), np.float32))


def test_what_is_not_set_up_says_what_to_type(home):
    (interpreters.folder() / "dots" / interpreters.RECORD).unlink()
    with pytest.raises(ValueError, match="type: rrf envs add dots PYTHON"):
        CFG.build()


def groups():
    states = (InitialState(CFG.tasks[n % 2], 42, n) for n in range(12))
    return GroupRound(states, 3, 2, 3, keeps_uniform=True)


def foreign_pids(parents):
    """The processes of the simulator that these processes have started."""
    files = (file for pid in parents for file in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for file in files for child in file.read_text().split()]


def test_a_killed_simulator_is_a_replaced_worker_and_its_episodes_are_played_again(home):
    backend = InlineBackend(CFG, RolloutRole(make_policy(), batch_rows=4), num_workers=1)
    undisturbed, disturbed = groups(), groups()
    report = disturbed.report

    def kill_and_report(episode):
        if not backend.num_restarts:
            os.kill(foreign_pids(backend.pids())[0], signal.SIGKILL)
        report(episode)

    disturbed.report = kill_and_report
    try:
        backend.play(undisturbed, (0, 7))
        assert backend.num_restarts == 0
        backend.play(disturbed, (0, 7))
        children = foreign_pids(backend.pids())
    finally:
        backend.close()
    assert backend.num_restarts == 1
    assert_same(disturbed.episodes, undisturbed.episodes)
    assert len(children) == 1
    wait_for(lambda: not any(map(is_running, children)))
