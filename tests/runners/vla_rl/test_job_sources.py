"""Which groups a round plays: enough with contrast, the same ones whatever the timing."""

import random

import pytest

from rrf.envs.vec_env import InitialState
from rrf.runners.vla_rl.job_sources import GroupRound, JobList
from tests.runners.vla_rl.toy import TASKS


class Played:
    """As much of an episode as a job source looks at."""

    def __init__(self, job, success, reset_digest="same"):
        self.job, self.success, self.reset_digest = job, success, reset_digest


def states():
    number = 0
    while True:
        yield InitialState(TASKS[0], 42, number)
        number += 1


def finish(source, outcome, shuffle=None):
    """Play everything; `outcome(group, member)` says what succeeds."""
    order, waiting = random.Random(shuffle), []
    while True:
        waiting += source.take()
        if not waiting:
            return source
        job = waiting.pop(order.randrange(len(waiting)) if shuffle is not None else 0)
        source.report(Played(job, outcome(job.group, job.id % source._group_size)))


def mixed(group, member):
    """Every third group has contrast, the others succeed or fail as a whole."""
    return member % 2 == 0 if group % 3 == 2 else group % 3 == 1


def test_groups_without_contrast_are_replaced_until_there_are_enough():
    source = finish(GroupRound(states(), 2, 4, 100), mixed)
    assert [group[0].job.group for group in source.groups] == [2, 5]
    assert source.num_begun == 6
    assert len(source.episodes) == 6 * 4


def test_more_groups_begin_at_once_if_fewer_are_expected_to_have_contrast():
    source = GroupRound(states(), 4, 4, 100, expected_share=0.5)
    assert source.num_begun == 8
    finish(source, mixed)
    assert [group[0].job.group for group in source.groups] == [2, 5, 8, 11]
    lucky = finish(GroupRound(states(), 4, 4, 100, expected_share=0.5), lambda _, m: m == 0)
    assert len(lucky.groups) == lucky.num_begun == 8


def test_a_bound_ends_the_search():
    source = finish(GroupRound(states(), 2, 4, 3), mixed)
    assert [group[0].job.group for group in source.groups] == [2]
    assert source.num_begun == 3


def test_groups_that_will_hardly_teach_anything_are_given_up_early():
    source = finish(GroupRound(states(), 2, 8, 100, 2, 4), mixed)
    assert [len(group) for group in source.groups] == [8, 8]
    # groups 0 and 3 fail and are given up after 4, groups 1 and 4 succeed and are after 2
    assert len(source.episodes) == 2 * 8 + 2 * 4 + 2 * 2


def test_a_late_success_is_waited_for_as_long_as_asked():
    def late(_, member):
        return member == 3

    assert finish(GroupRound(states(), 1, 8, 2, 2, 3), late).groups == []
    assert len(finish(GroupRound(states(), 1, 8, 2, 2, 4), late).groups) == 1


@pytest.mark.parametrize("patience", [(None, None), (2, 3)])
@pytest.mark.parametrize("shuffle", range(5))
def test_the_order_in_which_episodes_end_does_not_matter(shuffle, patience):
    def outcome(group, member):
        return random.Random(1000 * group + member).random() < 0.3

    def groups_of(shuffle):
        source = GroupRound(states(), 5, 4, 40, *patience, expected_share=0.6)
        finish(source, outcome, shuffle)
        return [[episode.job for episode in group] for group in source.groups], source.num_begun

    assert groups_of(shuffle) == groups_of(None)


def test_a_critic_learns_from_groups_without_contrast_too():
    source = finish(GroupRound(states(), 3, 2, 9, keeps_uniform=True), lambda *_: False)
    assert len(source.groups) == source.num_begun == 3


def test_members_that_do_not_begin_alike_are_refused():
    source = GroupRound(states(), 1, 2, 1)
    one, other = source.take()
    source.report(Played(one, True, "this"))
    with pytest.raises(ValueError, match=r"group 0 \(drawer-open-v3, seed 42, initial state 0\)"):
        source.report(Played(other, True, "that"))


def test_a_list_of_states_is_played_once_in_its_order():
    wanted = [InitialState(TASKS[number % 2], 2024, number) for number in range(5)]
    source = JobList(wanted)
    jobs = source.take()
    assert source.take() == []
    for job in reversed(jobs):
        source.report(Played(job, True))
    assert [episode.job.initial_state for episode in source.episodes] == wanted
