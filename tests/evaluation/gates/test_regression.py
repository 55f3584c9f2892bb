"""One evaluation against another: numbers worked by hand."""

import pytest

from rrf.evaluation.gates.regression import compare
from rrf.evaluation.results import EpisodeResult, Evaluation


def report(solved: dict[str, str], protocol: str = "p") -> Evaluation:
    """`{"task": "110"}`: three episodes of a task, the first two solved."""
    episodes = [
        EpisodeResult(task, 4242, index, mark == "1", steps=10, episode_return=0.0)
        for task, marks in solved.items()
        for index, mark in enumerate(marks)
    ]
    return Evaluation({"name": "p"}, protocol, "c", episodes, timings={})


def test_equal_nights_show_no_regression():
    night = report({"a": "1100", "b": "1111"})
    found = compare(night, night)
    assert (found.wins, found.losses, found.p_value, found.regressions) == (0, 0, 1.0, ())


def test_seven_losses_and_no_win_are_a_regression():
    # Seven coin flips all on one side: 1/128 = 0.0078, below 0.01.
    found = compare(report({"a": "0000000"}), report({"a": "1111111"}))
    assert found.p_value == 1 / 128
    assert found.regressions == (
        "all tasks: 7 episodes lost and 0 won (p 0.0078)",
        "a: 7 episodes lost and 0 won (p 0.0078)",
    )


def test_six_losses_may_be_chance():
    found = compare(report({"a": "000000"}), report({"a": "111111"}))
    assert found.p_value == 1 / 64
    assert found.regressions == ()


def test_a_task_unlearned_shows_although_others_improved():
    before = report({"a": "1" * 10, "b": "0" * 10})
    tonight = report({"a": "0" * 10, "b": "1" * 10})
    found = compare(tonight, before)
    assert (found.wins, found.losses) == (10, 10)
    # 1/1024 = 0.00098, below 0.01 / 2 tasks
    assert found.regressions == ("a: 10 episodes lost and 0 won (p 0.0010)",)


def test_another_protocol_is_not_compared():
    with pytest.raises(ValueError, match="under two protocols"):
        compare(report({"a": "1"}, "new"), report({"a": "1"}, "old"))
