"""Which environment process plays which job."""

from rrf.envs.vec_env import InitialState
from rrf.orchestra.dispatch import Dispatcher
from rrf.storage.trajectories import Job


def jobs(letters):
    return [Job(number, 0, InitialState(task, 42, 0)) for number, task in enumerate(letters)]


def ids(picked):
    return [job.id for job in picked]


def test_a_process_gets_the_jobs_of_its_tasks_oldest_first():
    dispatcher, waiting = Dispatcher(2), jobs("abacbcad")
    assert ids(dispatcher.pick(waiting, 0, 3)) == [0, 2, 3]  # a and c live in process 0
    assert ids(dispatcher.pick(waiting, 1, 9)) == [1, 4, 7]
    assert ids(waiting) == [5, 6]


def test_homes_outlast_a_round():
    dispatcher = Dispatcher(2)
    dispatcher.pick(jobs("ab"), 0, 1)
    waiting = jobs("bbaa")
    assert ids(dispatcher.pick(waiting, 0, 4)) == [2, 3]


def test_a_process_with_nothing_at_home_takes_half_of_what_waits():
    dispatcher, waiting = Dispatcher(2), jobs("aaaaa")
    assert ids(dispatcher.pick(waiting, 1, 9)) == [2, 3, 4]
    assert ids(waiting) == [0, 1]


def test_a_single_waiting_job_is_taken_by_whoever_asks():
    dispatcher, waiting = Dispatcher(2), jobs("a")
    assert ids(dispatcher.pick(waiting, 1, 1)) == [0]
    assert waiting == []


def test_a_process_that_is_full_gets_nothing():
    dispatcher, waiting = Dispatcher(1), jobs("ab")
    assert dispatcher.pick(waiting, 0, -2) == []
    assert len(waiting) == 2
