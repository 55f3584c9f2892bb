"""Guards of a server, and a shadow that computes beside the champion."""

import numpy as np
import pytest

from rrf.client import PolicyClient
from rrf.registry.served import ReleaseState, State
from rrf.serving.batching import Row
from rrf.serving.book import Book, Outcome
from rrf.serving.configs import ServingCfg
from rrf.serving.guards import violations
from tests.serving.conftest import Scripted, request
from tests.serving.test_following import Model, Version, acts
from tests.waiting import wait_for

ROW = Row({"observation.state": np.array([0.1, 0.2, 0.3], np.float32)})
ACTIONS = np.array([[0.0, 1.0], [0.5, -2.0]], np.float32)


@pytest.mark.parametrize(
    ("settings", "kind", "why"),
    [
        ({"action_low": [-1.0, -1.0]}, "action", "action 1 is -2, allowed: action_low=-1"),
        ({"action_high": [0.4, 2.0]}, "action", "action 0 is 0.5, allowed: action_high=0.4"),
        ({"action_high": [1.0]}, "action", "action_high has 1 numbers, but there are 2 dim"),
        ({"state_high": [1.0, 0.1, 1.0]}, "state", "state 1 is 0.2, allowed: state_high=0.1"),
        ({"max_rate_hz": 10.0}, "rate", "20.0 requests per second, allowed: 10"),
        ({"latency_ms": 5.0}, "latency", "the answer took 7.0 ms, allowed: 5"),
    ],
)
def test_what_exceeds_a_limit_is_named(settings, kind, why):
    found = violations(ServingCfg(**settings), ROW, ACTIONS, 0.007, 0.05)
    assert found.keys() == {kind}
    assert found[kind].startswith(why)


def test_within_the_limits_and_without_limits_nothing_is_said():
    limits = {"action_low": [-3.0, -3.0], "action_high": [3.0, 3.0], "state_low": [0.0] * 3}
    for settings in ({}, limits | {"max_rate_hz": 30.0, "latency_ms": 10.0}):
        assert violations(ServingCfg(**settings), ROW, ACTIONS, 0.007, 0.05) == {}
    assert violations(ServingCfg(max_rate_hz=1.0), ROW, ACTIONS, 0.0, None) == {}


def test_a_violation_is_told_and_belongs_to_the_outcome(serving, tmp_path):
    book = Book(tmp_path / "book.sqlite")
    running = serving(Scripted(), book=book, action_high=[2.0, 2.0, 2.0])
    with PolicyClient(running.url) as robot:
        robot.begin_episode("a")
        assert robot.request(request(1, 2, 2)).guards == ()
        answer = robot.request(request(1, 2, 3))
        assert answer.guards == ("action 2 is 3, allowed: action_high=2",)
        np.testing.assert_array_equal(answer.actions[0], [1, 2, 3])  # it changes no action
        robot.end_episode(True, guards=2)
        assert book.find("a").outcome.guards == 3
        robot.begin_episode("b")
        robot.end_episode(True)
        assert book.find("b").outcome.guards == 0
    book.close()


def test_a_violation_stays_with_its_episode_if_the_connection_breaks(serving, tmp_path):
    book = Book(tmp_path / "book.sqlite")
    running = serving(Scripted(), book=book, action_high=[2.0, 2.0, 2.0])
    with PolicyClient(running.url) as robot:
        robot.begin_episode("a")
        robot.request(request(1, 2, 3))
        robot.close()
        assert robot.request(request(1, 2, 2)).guards == ()  # on a new connection
        robot.close()
        robot.end_episode(True)
    assert book.find("a").outcome == Outcome(True, "", 1)
    book.close()


@pytest.fixture
def shadowed(serving, tmp_path):
    """A server with version 1 as champion, and as shadow what `model` loads for version 2."""
    book = Book(tmp_path / "book.sqlite")

    def start(model):
        running = serving(Version(1), book=book, follow=(model, 0.02))
        model.now = State("1", {}, ReleaseState("5" * 64, "2", "1", True, 0.5))
        return running

    yield start
    book.close()


def test_a_shadow_computes_and_never_acts(shadowed, caplog):
    model = Model()
    running = shadowed(model)
    shadow = wait_for(lambda: running.cast.shadow)
    running.cast.champion.action_std = np.array([0.5, 1.0, 2.0])
    with PolicyClient(running.url) as robot:
        assert {robot.begin_episode(f"e{k}")["version"] for k in range(20)} == {"1"}
        wait_for(lambda: acts(robot) == 1 and shadow.num_compared >= 3)
    assert "by [2, 1, 0.5] per action dimension on average" in shadow.summary()
    assert ", in standard deviations of the training, over " in shadow.summary()
    model.now = State("1", {}, None)
    wait_for(lambda: running.cast.shadow is None)
    assert "the shadow, version 2, differs from the champion" in caplog.text


def test_a_shadow_without_statistics_of_actions_differs_in_physical_units(shadowed):
    running = shadowed(Model())
    shadow = wait_for(lambda: running.cast.shadow)
    with PolicyClient(running.url) as robot:
        wait_for(lambda: acts(robot) == 1 and shadow.num_compared >= 1)
    assert "by [1, 1, 1] per action dimension on average, at most [1, 1, 1], in physical units" in (
        shadow.summary()
    )


def test_a_shadow_that_fails_or_is_slow_harms_nobody(shadowed):
    class Slow(Version):
        def answer(self, rows):
            assert self.may_go.wait(60)
            raise RuntimeError("out of memory")

    slow = Slow(2)
    slow.may_go.clear()
    model = Model()
    model.load = lambda version: slow
    running = shadowed(model)
    shadow = wait_for(lambda: running.cast.shadow)
    with PolicyClient(running.url) as robot:
        assert [acts(robot) for _ in range(10)] == [1] * 10  # while the shadow computes
        wait_for(lambda: shadow.num_left_out == 9)
        slow.may_go.set()
        wait_for(lambda: running.errors("shadow"))
        assert acts(robot) == 1
