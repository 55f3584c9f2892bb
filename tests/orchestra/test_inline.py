"""The inline backend: who plays, and what happens to a worker, does not change what is played."""

import os
import signal

import numpy as np
import pytest
import torch

from rrf.config import trust
from rrf.envs.process.child import Child, ChildError
from rrf.orchestra.inline import InlineBackend, check_division
from rrf.orchestra.rollout_role import RolloutRole
from rrf.runners.vla_rl.job_sources import JobList
from rrf.runners.vla_rl.preflight import check_log_probs
from tests.orchestra import toy
from tests.orchestra.conftest import (
    ENV,
    TASKS,
    assert_same,
    group_round,
    make_policy,
    play,
    states,
)


def toy_backend(num_workers, policy=None):
    """Workers of the toy simulator, which start in an instant."""
    trust("tests")
    rollout = RolloutRole(policy or make_policy(toy.POLICY, stats=toy.STATS), batch_rows=4)
    env = toy.ToyCfg(num_envs=4, max_episode_steps=8)
    return InlineBackend(env, rollout, num_workers)


def test_workers_that_are_killed_are_replaced_and_their_episodes_are_played_again():
    alone, backend = toy_backend(1), toy_backend(2)
    pids = backend.pids()
    try:
        expected = toy.play(alone)
        episodes = toy.play(backend, lambda: pids and os.kill(pids.pop(), signal.SIGKILL))
    finally:
        alone.close()
        backend.close()
    assert_same(episodes, expected)
    assert backend.num_restarts == 2


@pytest.mark.slow
def test_killed_workers_of_metaworld_are_replaced_too(one_worker_round):
    def kill_at_the_first_end(backend, source):
        pids, report = backend.pids(), source.report

        def kill_and_report(episode):
            if pids:
                os.kill(pids.pop(), signal.SIGKILL)
            report(episode)

        source.report = kill_and_report

    episodes, backend = play(2, kill_at_the_first_end)
    assert_same(episodes, one_worker_round)
    assert backend.num_restarts == 2


@pytest.mark.slow
def test_a_worker_that_died_before_its_first_job_is_replaced(one_worker_round):
    def kill(backend, _):
        os.kill(backend.pids()[1], signal.SIGKILL)

    episodes, backend = play(2, kill)
    assert_same(episodes, one_worker_round)
    assert backend.num_restarts == 1


@pytest.mark.slow
def test_a_hung_worker_is_replaced(one_worker_round, monkeypatch):
    backend = InlineBackend(ENV, RolloutRole(make_policy(), batch_rows=4), 1, timeout_s=600)
    try:
        backend.play(JobList([next(states())]), (0, 0), keeps=False)  # past the slow first answer
        [worker] = backend._workers
        restart = worker.restart

        def with_all_the_time_it_needs():
            worker._timeout_s = 600
            return restart()

        worker._timeout_s = 1
        monkeypatch.setattr(worker, "restart", with_all_the_time_it_needs)
        os.kill(worker.child.pid, signal.SIGSTOP)
        source = group_round()
        backend.play(source, (0, 7))
    finally:
        backend.close()
    assert backend.num_restarts == 1
    assert_same(source.episodes, one_worker_round)


def test_a_worker_that_dies_again_and_again_ends_the_run(monkeypatch):
    class Dying(Child):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.kill()

    monkeypatch.setattr("rrf.orchestra.env_workers.Child", Dying)
    with pytest.raises(ChildError, match="worker 1 of 1 was restarted 3 times and failed again"):
        play(1)


def test_what_the_environment_refuses_ends_the_run_at_once():
    with pytest.raises(ValueError, match="no renderer 'wrap'; did you mean 'warp'"):
        play(1, env=ENV.replace(renderer="wrap"))


def test_a_greedy_round_repeats_itself_and_keeps_nothing_it_was_not_asked_to():
    backend = toy_backend(1)
    try:
        rounds = [toy.group_round(), toy.group_round()]
        for source, stream in zip(rounds, ((0, 7), (0, 8)), strict=True):  # another randomness
            backend.play(source, stream, greedy=True, keeps=False)
    finally:
        backend.close()
    episodes, others = (source.episodes for source in rounds)
    assert [episode.observation for episode in episodes] == [None] * 8
    for one, other in zip(episodes, others, strict=True):
        assert torch.equal(one.replay["actions"], other.replay["actions"])
    # greedy: the members of a group do the same
    assert torch.equal(episodes[0].replay["actions"], episodes[1].replay["actions"])


@pytest.mark.slow
def test_members_of_a_group_begin_alike_and_act_differently(one_worker_round):
    first, second = one_worker_round[:2]
    assert first.reset_digest == second.reset_digest
    assert first.reset_digest != one_worker_round[2].reset_digest
    assert not torch.equal(first.replay["actions"], second.replay["actions"])


def test_truncated_episodes_carry_the_value_of_what_they_ended_in(one_worker_round):
    for episode in one_worker_round:
        assert episode.truncated != episode.success
        assert np.isfinite(episode.final_value) == episode.truncated
        assert episode.num_steps == 5 or episode.success
        assert episode.steps.tolist()[:-1] == [2] * (len(episode) - 1)


def test_the_policy_that_trains_agrees_with_the_one_that_played(one_worker_round):
    policy = make_policy()
    found = check_log_probs(policy, make_policy(), one_worker_round)
    assert found["preflight/max_ratio_error"] < 1e-5


def test_an_action_that_is_not_finite_stops_the_round():
    policy = make_policy(toy.POLICY, stats=toy.STATS)
    torch.nn.init.constant_(policy.head.output.bias, float("nan"))
    backend = toy_backend(1, policy)
    try:
        with pytest.raises(ValueError, match=r"action of env \d+, step 0, dimension 0 is nan"):
            backend.play(toy.group_round(), (0, 0))
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("num_envs", "num_workers", "fitting"), [(7, 2, "6 or 8"), (3, 4, "4"), (9, 4, "8 or 12")]
)
def test_slots_that_cannot_be_divided_are_refused_with_numbers_that_fit(
    num_envs, num_workers, fitting
):
    with pytest.raises(ValueError, match=f"set num_envs={fitting}$"):
        check_division(num_envs, num_workers)


def test_tasks_of_the_round_are_those_asked_for(one_worker_round):
    played = [episode.job.initial_state.task for episode in one_worker_round]
    assert played == [TASKS[0]] * 2 + [TASKS[1]] * 2 + [TASKS[0]] * 2
