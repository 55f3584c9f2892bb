"""The curriculum: all tasks, weak ones more often, all initial states in turn."""

import collections
import itertools

import pytest

from rrf.envs.vec_env import InitialState
from rrf.runners.vla_rl.configs import CurriculumCfg
from rrf.runners.vla_rl.curriculum import Curriculum

TASKS = ["easy", "hard"]


def drawn(curriculum, round_number, count):
    return list(itertools.islice(curriculum.draw(round_number), count))


def test_a_task_that_fails_is_drawn_more_often():
    curriculum = Curriculum(CurriculumCfg(floor=0.25), TASKS, [42], 50, seed=0)
    curriculum.success = {"easy": 1.0, "hard": 0.0}
    counts = collections.Counter(state.task for state in drawn(curriculum, 0, 100))
    assert counts == {"easy": 20, "hard": 80}  # weights 0.25 and 1


def test_a_hopeless_task_takes_little_if_asked():
    curriculum = Curriculum(CurriculumCfg(floor=0.25, hope_episodes=2), TASKS, [42], 50, seed=0)
    curriculum.success = {"easy": 0.5, "hard": 0.0}
    counts = collections.Counter(state.task for state in drawn(curriculum, 0, 625))
    assert counts == {"easy": 425, "hard": 200}  # .25 + .75 * .5 * (1 - .5**2) = .53125; .25


def test_every_initial_state_comes_once_before_any_comes_twice():
    curriculum = Curriculum(CurriculumCfg(), ["only"], [42, 43], 5, seed=0)
    first = [(state.seed, state.index) for state in drawn(curriculum, 0, 10)]
    second = [(state.seed, state.index) for state in drawn(curriculum, 1, 10)]
    everything = sorted(itertools.product([42, 43], range(5)))
    assert sorted(first) == sorted(second) == everything
    assert first != second


def test_success_rates_follow_the_outcomes():
    curriculum = Curriculum(CurriculumCfg(memory=0.6), TASKS, [42], 50, seed=0)
    state = InitialState("easy", 42, 0)
    curriculum.learn([(state, True), (state, True), (state, True), (state, False)])
    assert curriculum.success == {"easy": pytest.approx(0.6), "hard": 0.5}  # .6 * .5 + .4 * .75


def test_it_goes_on_from_its_state():
    one, other = (Curriculum(CurriculumCfg(), TASKS, [42], 50, seed=3) for _ in range(2))
    drawn(one, 0, 17)
    one.learn([(state, state.index % 2 == 0) for state in drawn(one, 1, 20)])
    other.load_state_dict(one.state_dict())
    assert drawn(one, 1, 30) == drawn(other, 1, 30)


def test_states_that_all_solved_are_mostly_passed_over_until_one_fails_there():
    curriculum = Curriculum(CurriculumCfg(skip=0.75), ["only"], [42], 40, seed=0)
    solved = [InitialState("only", 42, index) for index in range(20)]
    curriculum.learn([(state, True) for state in solved])
    counts = collections.Counter(state.index < 20 for state in drawn(curriculum, 0, 500))
    assert counts[True] / counts[False] == pytest.approx(0.25, abs=0.08)
    curriculum.learn([(state, False) for state in solved])
    counts = collections.Counter(state.index < 20 for state in drawn(curriculum, 1, 400))
    assert counts[True] / counts[False] == pytest.approx(1, abs=0.1)
