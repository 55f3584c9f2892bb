"""Demonstrations repeated in other initial states."""

import numpy as np
import pytest

from rrf.envs.demonstrations import recorder
from rrf.envs.demonstrations.collect import CollectCfg, collect
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.metaworld.env import Expert
from rrf.envs.metaworld.replay import Demonstration, Replay
from rrf.envs.vec_env import InitialState
from tests.envs.demonstrations.test_demonstrations import demos

REACH_M = 0.05


def observation(hand, target=(0.0, 0.0, 0.0), goal=(0.0, 0.0, 0.0)):
    seen = np.zeros(39)
    seen[:3], seen[4:7], seen[36:39] = hand, target, goal
    return seen


def test_the_path_shifts_to_the_object_and_then_to_the_goal():
    hand = np.linspace([0, 0, 0], [0.2, 0, 0], 11)
    moved = [(0.1 if step < 6 else 0.05 * step, 0, 0) for step in range(11)]
    seen = np.stack([observation(*places) for places in zip(hand, moved, strict=True)])
    replay = Replay(Demonstration(seen, np.zeros((11, 4), np.float32)), REACH_M)
    now = np.zeros(3)
    shifts = []
    for step in range(11):
        shifts.append(now - hand[step])
        start = (0.1, 0.02, 0), (0, 0, 0.03)  # the object lies 2 cm aside, the goal 3 cm higher
        now = now + REACH_M * replay.action(observation(now, *start))[:3]
        now += hand[min(step + 1, 10)] - hand[step]  # what the demonstrated action would do
    np.testing.assert_allclose(shifts[0], 0, atol=1e-6)
    np.testing.assert_allclose(shifts[6], [0, 0.02, 0], atol=1e-3)
    np.testing.assert_allclose(now - hand[-1], [0, 0, 0.03], atol=1e-3)


def test_where_nothing_is_moved_the_goal_counts():
    seen = np.stack([observation((0, 0, 0.01 * step)) for step in range(5)])
    replay = Replay(Demonstration(seen, np.zeros((5, 4), np.float32)), REACH_M)
    first = replay.action(observation((0, 0, 0), target=(0.5, 0, 0), goal=(0, 0.04, 0)))
    assert first[1] > 0 == first[0]


def test_in_its_own_initial_state_it_repeats_the_demonstration():
    state = InitialState("pick-place-v3", 5, 0)
    shown, _ = played(state, Expert("pick-place-v3"))
    again, is_success = played(state, Replay(shown, REACH_M))
    assert is_success
    np.testing.assert_allclose(again.actions, shown.actions, atol=1e-5)


@pytest.mark.parametrize("task", ["pick-place-v3", "peg-insert-side-v3", "reach-v3"])
def test_one_demonstration_serves_other_initial_states(task):
    shown, _ = played(InitialState(task, 5, 0), Expert(task))
    solved = [played(InitialState(task, 6, n), Replay(shown, REACH_M))[1] for n in range(8)]
    assert sum(solved) >= 6


def played(state, teacher):
    """What a teacher sees and does in an episode, and whether it succeeds."""
    env = MetaWorldCfg(num_envs=1, chunk_length=1, cameras=[], max_episode_steps=60).build()
    env.reset([state])
    seen, actions, is_over = [], [], False
    while not is_over:
        seen.append(env.expert_observation(0))
        actions.append(teacher.action(seen[-1]))
        step = env.step(actions[-1][None, None])
        is_over = step.terminated[0] or step.truncated[0]
    return Demonstration(np.stack(seen), np.stack(actions)), bool(step.success[0])


@pytest.mark.slow
def test_a_recording_says_what_was_shown_and_holds_successes_only(tmp_path):
    cfg = CollectCfg(
        env=MetaWorldCfg(image_size=8, max_episode_steps=50),
        tasks=["push-v3"],
        episodes=60,
        demonstrations=1,
        action_noise=[0.0],
        out=str(tmp_path),
        num_workers=1,
    )
    (result,) = collect(cfg)
    found = [attributes for attributes, _ in demos(result.path)]
    assert len(found) == result.episodes == 60
    assert all(attributes["success"] == 1 for attributes in found)
    assert [bool(attributes["repeats"]) for attributes in found] == [False, *[True] * 59]
    states = {(attributes["seed"], attributes["index"]) for attributes in found}
    assert len(states) == 60  # more than one seed has
    (kept,) = collect(cfg)
    assert kept.is_reused
    assert kept.episodes == 60
    with pytest.raises(ValueError, match="recorded with other settings"):
        collect(cfg.replace(demonstrations=2))


@pytest.mark.slow
def test_what_trial_and_error_finds_does_not_depend_on_how_many_play_at_once(tmp_path, monkeypatch):
    cfg = CollectCfg(
        env=MetaWorldCfg(image_size=8, max_episode_steps=50),
        tasks=["button-press-v3"],
        episodes=6,
        demonstrations=1,
        trials=60,
        action_noise=[0.0, 0.2],
        out=str(tmp_path / "many"),
    )
    alone = cfg.replace(out=str(tmp_path / "alone"))
    episodes, _, attempts = run_to_the_end(recorder.Recorder(cfg.to_dict()).record(cfg.tasks[0]))
    monkeypatch.setattr(recorder, "_SLOTS", 1)
    run_to_the_end(recorder.Recorder(alone.to_dict()).record(cfg.tasks[0]))
    path = cfg.path("button-press-v3")
    found = [attributes for attributes, _ in demos(path)]
    assert 3 <= len(found) == episodes
    assert attempts > 5 + 5  # more was tried than the expert's and those that are kept
    assert all(attributes["success"] == 1 for attributes in found)
    assert len({attributes["index"] for attributes in found}) == episodes
    assert path.read_bytes() == alone.path("button-press-v3").read_bytes()
    (kept,) = collect(cfg)
    assert kept.is_reused
    with pytest.raises(ValueError, match="recorded with other settings"):
        collect(cfg.replace(trials=None))


@pytest.mark.parametrize("wrong", [{"trials": 0}, {"demonstrations": None}])
def test_trials_without_a_demonstration_to_bend_are_refused(tmp_path, wrong):
    asked = {"demonstrations": 1, "trials": 10, **wrong}
    with pytest.raises(ValueError, match=r"trials=\d+ needs demonstrations to bend"):
        CollectCfg(env=MetaWorldCfg(), tasks=["push-v3"], out=str(tmp_path), **asked)


def test_an_expert_that_shows_too_little_is_an_error_and_leaves_no_file(tmp_path):
    cfg = CollectCfg(
        env=MetaWorldCfg(image_size=8, max_episode_steps=1),
        tasks=["reach-v3"],
        episodes=3,
        demonstrations=1,
        out=str(tmp_path),
    )
    with pytest.raises(
        ValueError, match=r"solved 0 of 5 attempts, but 1 demonstrations are wanted"
    ):
        list(recorder.Recorder(cfg.to_dict()).record("reach-v3"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_fewer_successes_than_asked_for_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "_MAX_REPEATS_PER_EPISODE", 1)
    env = MetaWorldCfg(image_size=8, max_episode_steps=50)
    cfg = CollectCfg(env=env, tasks=["soccer-v3"], episodes=12, demonstrations=1, out=str(tmp_path))
    episodes, _, attempts = run_to_the_end(recorder.Recorder(cfg.to_dict()).record("soccer-v3"))
    assert 1 <= episodes < 12
    assert attempts == 5 + 12
    assert len(list(demos(cfg.path("soccer-v3")))) == episodes


def run_to_the_end(generator):
    """What a generator returns."""
    while True:
        try:
            next(generator)
        except StopIteration as stopped:
            return stopped.value


def test_more_demonstrations_than_episodes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"demonstrations=4 must lie in 1\.\.3"):
        CollectCfg(
            env=MetaWorldCfg(),
            tasks=["push-v3"],
            episodes=3,
            demonstrations=4,
            out=str(tmp_path),
        )
