"""Episodes without hope end early: the estimate worked by hand, the same bits for any number of
workers, and what a stopped episode leaves."""

import os
import signal
import types

import numpy as np
import pytest

from rrf.algorithms.vla.configs import VLAPPOCfg
from rrf.envs.vec_env import InitialState
from rrf.runners.checkpoints import checkpoint
from rrf.runners.vla_rl.early_stop import EarlyStop
from rrf.runners.vla_rl.early_stop_configs import EarlyStopCfg
from rrf.runners.vla_rl.job_sources import JobList
from tests.orchestra import toy
from tests.orchestra.conftest import assert_same

STATES = [InitialState(task, 42, number) for number in range(12) for task in toy.TASKS]


def episode(num_chunks, success=False, stopped_early=False):
    """As much of a `PlayedEpisode` as the estimate reads."""

    class Length(types.SimpleNamespace):
        def __len__(self):
            return num_chunks

    job = types.SimpleNamespace(initial_state=InitialState("a", 0, 0))
    return Length(job=job, success=success, stopped_early=stopped_early)


def estimate(**fields):
    return EarlyStop(EarlyStopCfg(hope=0.05, **fields), ["a"], 5)


def test_an_episode_is_hopeless_where_none_was_solved_later():
    stop = estimate()
    assert not any(stop.is_hopeless("a", n) for n in range(9))
    found = stop.learn([episode(2, success=True)] * 30 + [episode(5)] * 30)
    assert found == {"rollout/stopped": 0.0, "rollout/hope": 0.0}
    # Solved later, of those that got there: 30 of 60 after one chunk, then 0 of 30.
    assert stop.state_dict() == {"a": [[60, 60, 30, 30, 30], [30, 30, 0, 0, 0]]}
    assert [stop.is_hopeless("a", n) for n in range(6)] == [False, False, True, True, True, False]


def test_few_episodes_stop_nothing():
    stop = estimate()
    stop.learn([episode(5)] * 18)  # 1 / 19 is more than 0.05
    assert not stop.is_hopeless("a", 4)
    stop.learn([episode(5)] * 9)
    assert stop.is_hopeless("a", 4)


def test_what_goes_on_stands_for_what_was_stopped():
    stop = estimate(continued=0.25, memory=0.5)
    stop.learn([episode(2, success=True)] * 30 + [episode(5)] * 30)
    tested = [episode(2, stopped_early=True)] * 24 + [episode(5)] * 7 + [episode(4, success=True)]
    found = stop.learn([episode(2, success=True)] * 30 + tested)
    assert found == {"rollout/stopped": 24 / 62, "rollout/hope": 1 / 8}
    reached, solved = stop.state_dict()["a"]
    # All 32 that were tested got to the test; the eight that went on count four times after it.
    assert reached == [30 + 62, 30 + 62, 15 + 32, 15 + 32, 15 + 28]
    assert solved == [15 + 34, 15 + 34, 4, 4, 0]
    assert not stop.is_hopeless("a", 2)
    assert stop.is_hopeless("a", 4)


def test_tests_are_passed_by_the_share_that_is_asked_for():
    stop = estimate(continued=0.1)
    passed = [stop.goes_on((0, 1), job_id) for job_id in range(4000)]
    assert np.mean(passed) == pytest.approx(0.1, abs=0.02)
    assert passed != [stop.goes_on((0, 2), job_id) for job_id in range(4000)]


class Always(EarlyStop):
    """Every episode is tested after its second chunk; half go on."""

    def __init__(self):
        super().__init__(EarlyStopCfg(continued=0.5), toy.TASKS, 9)

    def is_hopeless(self, task, num_chunks):
        return num_chunks == 2


def played(parent, folder, num_workers, disturb=lambda backend: None, **changes):
    backend = toy.runner_of(parent, folder, num_workers=num_workers, **changes).backend
    source = JobList(STATES)
    report = source.report

    def told(episode):
        disturb(backend)
        report(episode)

    source.report = told
    try:
        backend.play(source, (0, 7), early_stop=Always())
    finally:
        backend.close()
    return source.episodes, backend


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    return toy.save_parent(tmp_path_factory.mktemp("sft"))


@pytest.fixture(scope="module")
def alone(parent, tmp_path_factory):
    """What one worker plays."""
    return played(parent, tmp_path_factory.mktemp("alone"), 1)[0]


def test_a_stopped_episode_is_truncated_where_it_was_and_its_end_is_valued(alone):
    stopped = [episode for episode in alone if episode.stopped_early]
    others = [episode for episode in alone if not episode.stopped_early]
    assert 0 < len(stopped) < len(alone)
    for episode in stopped:
        assert (len(episode), episode.success, episode.truncated) == (2, False, True)
        assert np.isfinite(episode.final_value)
    assert any(len(episode) > 2 for episode in others)
    assert {episode.weight for episode in alone} == {1.0}  # the toy policy has a critic


def test_without_a_critic_what_goes_on_counts_more(parent, tmp_path):
    cfg = toy.POLICY.replace(value_head=None)
    start = toy.save_parent(tmp_path / "sft", cfg)
    episodes, _ = played(start, tmp_path / "run", 2, policy=cfg)
    assert {(e.stopped_early, e.weight) for e in episodes if len(e) >= 3} == {(False, 2.0)}
    assert {e.weight for e in episodes if len(e) < 3} == {1.0}
    assert any(e.stopped_early for e in episodes)


def test_the_same_bits_for_any_number_of_workers_also_killed_ones(parent, tmp_path, alone):
    left = [2]

    def kill_one(backend):
        if left:
            os.kill(backend.pids()[left.pop() % 2], signal.SIGKILL)

    two, backend = played(parent, tmp_path / "two", 2, kill_one)
    assert backend.num_restarts >= 1
    assert_same(two, alone)
    assert [e.stopped_early for e in two] == [e.stopped_early for e in alone]


def test_a_process_whose_episodes_were_all_stopped_begins_the_next_round(parent, tmp_path):
    class Strict(Always):
        def goes_on(self, stream, job_id):
            return False

    backend = toy.runner_of(parent, tmp_path, num_workers=1).backend
    try:
        for _ in range(2):
            source = JobList(STATES[:3])
            backend.play(source, (0, 7), early_stop=Strict())
            assert all(e.stopped_early for e in source.episodes if len(e) == 2)
            assert len(source.episodes) == 3
        assert backend.num_restarts == 0
    finally:
        backend.close()


@pytest.mark.slow
def test_the_estimate_is_saved_with_a_checkpoint(parent, tmp_path):
    stop, algorithm = EarlyStopCfg(hope=0.3), VLAPPOCfg(num_epochs=1)
    cfg = toy.run_cfg(parent, early_stop=stop, algorithm=algorithm, max_rounds=3)
    runner = cfg.build(tmp_path)
    result = runner.run()
    assert result["metrics"]["rollout/stopped"] > 0
    saved = runner.early_stop.state_dict()
    state = checkpoint.load_trainer_state(checkpoint.latest(tmp_path))
    assert state.facts["early_stop"] == saved
    again = cfg.build(tmp_path)
    again.run()
    assert again.early_stop.state_dict() == saved
