"""The rules of the nightly benchmark: their false alarms, what they find, and their page."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.nightly_rules import Outcomes, against, outcomes_of
from rrf.evaluation.nightly.cusum import NIGHTS, cusum
from rrf.evaluation.nightly.differences import differences
from rrf.evaluation.nightly.page import trend_page
from rrf.evaluation.nightly.series import (
    ALL,
    FALSE_ALARM,
    Ack,
    Count,
    Night,
    Point,
    follow,
    together,
)
from rrf.evaluation.results import EpisodeResult, Evaluation
from tests.browser import browser
from tests.evaluation.reports.test_report import Page

REFERENCE = {"a": np.arange(50) < 46}  # 92 %


def night(number: int, solved: Outcomes, reference: Outcomes = REFERENCE, **facts) -> Night:
    """A night in which these episodes succeeded: bool [episodes] by task."""
    tasks, outcomes = against(solved, reference), outcomes_of(solved)
    time = f"2026-11-{number + 1:02d}T020000Z"
    kept = {"against": "promotion"} | facts
    return Night(f"run-{number}", time, tasks, f"night-{number}", outcomes, **kept)


def counted(solved: Outcomes) -> dict[str, Count]:
    return {task: Count(int(one.sum()), len(one)) for task, one in solved.items()}


def after(nights: Sequence[Night], reference: Outcomes = REFERENCE) -> list[Point]:
    return follow(counted(reference), "promotion", nights)


def first_red(points: Sequence[Point]) -> int | None:
    return next((place for place, one in enumerate(points, start=1) if one.is_red), None)


def falling(nights: int = 10) -> list[Night]:
    """92 % to 42 % in equal steps, each night some more of the first episodes."""
    rates = np.linspace(0.92, 0.42, nights)
    solved = [{"a": np.arange(50) < round(50 * rate)} for rate in rates]
    return [night(number, one) for number, one in enumerate(solved)]


# --- the CUSUM


def test_a_cusum_of_one_episode_a_night_is_worked_by_hand():
    # S rises by 1 - 5/8 after a failure and falls by 5/8, not below 0, after a success. From 3/8 a
    # second failure reaches 6/8: the alarm needs two failures in a row.
    rule = dataclasses.replace(rule_of(9, 10, 1), eighths=5, limit=6)
    assert rule.after(0, 0, 1) == 0.375
    assert rule.after(0.375, 0, 1) == rule.threshold == 0.75
    assert rule.after(0.375, 1, 1) == 0
    assert rule.alarm_chance(0.5, 1) == 0
    assert rule.alarm_chance(0.5, 2) == pytest.approx(1 / 4)
    assert rule.alarm_chance(0.5, 3) == pytest.approx(3 / 8)  # FF., SFF
    assert rule.mean_nights(0.5) == pytest.approx(6)  # the first two tails in a row
    assert rule.mean_nights(1.0) == math.inf


def rule_of(successes: int, episodes: int, per_night: int, chance: float = 0.03):
    rule = cusum(successes, episodes, per_night, chance)
    assert rule is not None
    return rule


def test_the_chain_of_a_cusum_agrees_with_a_simulation():
    rule, rng, num_runs = rule_of(46, 50, 50), np.random.default_rng(3), 4000
    for success in (0.76, 0.72):
        statistics, is_alarm = np.zeros(num_runs), np.zeros(num_runs, bool)
        for _ in range(30):
            failures = rng.binomial(50, 1 - success, num_runs)
            statistics = np.maximum(0, statistics + failures - rule.allowance)
            is_alarm |= statistics >= rule.threshold
        expected = rule.alarm_chance(success, 30)
        error = math.sqrt(expected * (1 - expected) / num_runs)
        assert is_alarm.mean() == pytest.approx(expected, abs=4 * error)
    assert 0.1 < rule.alarm_chance(0.76, 30) < rule.alarm_chance(0.72, 30)


@pytest.mark.parametrize("success", [0.98, 0.92, 0.8, 0.5, 0.1])
def test_false_alarms_of_a_cusum_stay_below_what_was_asked_at_any_true_success(success):
    """Summed exactly over what the promotion's evaluation may show, and over a year of nights."""
    episodes, asked, total = 20, 0.03, 0.0
    for successes in range(episodes + 1):
        ways = math.comb(episodes, successes)
        chance = ways * success**successes * (1 - success) ** (episodes - successes)
        if rule := cusum(successes, episodes, episodes, asked):
            total += chance * rule.alarm_chance(success)
    assert total <= asked


def test_the_threshold_is_the_smallest_that_keeps_the_false_alarms():
    rule = rule_of(46, 50, 50)
    lower = dataclasses.replace(rule, limit=rule.limit - 1)
    assert rule.false_alarm <= 0.03 / 4 < lower.false_alarm


def test_what_cannot_fall_has_no_rule_and_nonsense_is_refused():
    assert cusum(0, 20, 20, 0.01) is None
    with pytest.raises(ValueError, match="both must be above 0"):
        cusum(5, 20, 0, 0.01)
    with pytest.raises(ValueError, match="21 successes in 20"):
        cusum(21, 20, 20, 0.01)
    with pytest.raises(ValueError, match="20 episodes per night, but this night has 19"):
        rule_of(9, 20, 20).after(0, 9, 19)


# --- the nights


def test_a_fall_from_92_to_42_percent_over_ten_nights_is_an_alarm_on_the_fifth():
    points = after(falling())
    # 46, 43, 41, 38, 35, ... of 50. On night 4, the third that differs, 8 are lost and none is won:
    # p = 1/256 = 0.0039, tested at 0.02 / 12 = 0.0017. On night 5, 11 are lost: 1/2048 = 0.0005,
    # tested at 0.02 / 20.
    assert first_red(points) == 5
    assert points[4].alarms == (
        "all tasks: 11 episodes lost and 0 won since the reference (p 0.00049, an alarm up to "
        "0.001)",
    )
    assert all(point.is_red for point in points[4:])
    assert any("add up to" in alarm for alarm in points[-1].alarms)


def test_a_slow_fall_is_found_by_the_sum_alone():
    """66 % every night, of other episodes each; the episodes are not compared one by one."""
    rng = np.random.default_rng(0)
    nights = [night(n, {"a": rng.permutation(50) < 33}, against="lost") for n in range(10)]
    points = after(nights)
    rule = points[0].rules[ALL]
    expected = [(17 - rule.allowance) * n for n in range(1, 11)]
    assert [one.statistics[ALL] for one in points] == pytest.approx(expected)
    assert first_red(points) == math.ceil(rule.threshold / (17 - rule.allowance))


def test_a_constant_success_raises_no_more_alarms_than_stated():
    """Forty years at about 92 %: new draws every night, or only after one night of twenty."""
    rng, false_alarms, num_years, chance = np.random.default_rng(11), 0, 40, (1.0, 0.05)
    for year in range(num_years):
        hard = rng.beta(9.2, 0.8, 50)  # how often each initial state is solved
        reference = {"a": rng.random(50) < hard}
        solved, nights = reference, []
        for number in range(NIGHTS):
            if rng.random() < chance[year % 2]:
                solved = {"a": rng.random(50) < hard}
            nights.append(night(number, solved, reference))
        false_alarms += first_red(after(nights, reference)) is not None
    assert false_alarms / num_years <= FALSE_ALARM


def test_a_year_of_nights_like_the_promotion_is_green_and_repeats_count_once():
    same = after([night(n, REFERENCE) for n in range(NIGHTS)])
    assert first_red(same) is None
    assert same[-1].statistics[ALL] == 0
    worse = {"a": np.arange(50) < 40}  # 6 lost: p = 1/64, tested at 0.02 / 2 = 0.01
    repeated = after([night(n, worse) for n in range(NIGHTS)])
    assert first_red(repeated) is None
    assert repeated[-1].statistics == repeated[0].statistics


def test_a_task_that_falls_is_found_although_another_gains():
    reference = {"a": np.arange(40) < 30, "b": np.arange(40) < 10}
    points = after(
        [night(0, {"a": np.arange(40) < 15, "b": np.arange(40) < 25}, reference)], reference
    )
    assert [alarm.partition(":")[0] for alarm in points[0].alarms] == ["a"]


def test_an_alarm_stays_until_it_is_acknowledged_and_then_the_rules_begin_anew():
    nights = falling()
    healthy = [night(n, REFERENCE) for n in range(10, 13)]
    points = after([*nights, *healthy])
    assert all(point.is_red for point in points[4:])
    seen = dataclasses.replace(nights[9], acks=(Ack("2026-11-11", "ann", "a broken camera"),))
    points = after([*nights[:9], seen, *healthy])
    assert [point.is_red for point in points[9:]] == [True, False, False, False]
    assert points[10].statistics[ALL] == 0


def test_a_fall_that_goes_on_after_the_acknowledgement_is_another_alarm_unless_it_is_accepted():
    low = {"a": np.arange(50) < 21}
    for is_reference in (False, True):
        seen = (Ack("2026-11-01", "ann", "the new simulator", is_reference),)
        later = night(1, low) if not is_reference else night(1, low, low, against="night-0")
        points = after([night(0, low, acks=seen), later])
        assert [point.is_red for point in points] == [True, not is_reference]
    assert points[1].level.rate == 0.42


def test_a_night_of_other_tasks_does_not_fit():
    reference = REFERENCE | {"b": np.arange(50) < 40}
    with pytest.raises(ValueError, match="2026-11-01T020000Z lacks a, b"):
        after([night(0, REFERENCE)], reference)


# --- differences


def report(successes: Sequence[bool], **facts) -> Evaluation:
    episodes = [EpisodeResult("a", 1, i, one, 10, 1.0) for i, one in enumerate(successes)]
    known = {"source_digest": "c" * 64, "surroundings": {"torch": "2.8.0", "processor": "x"}}
    return Evaluation({"name": "p"}, "p", "weights", episodes, {}, **(known | facts))


def test_episodes_that_differ_although_nothing_recorded_changed_are_told_as_a_fact():
    then, now = report([True, True, False]), report([True, False, True])
    now.episodes[0].steps = 11
    assert differences(now, then).in_words("the evaluation at promotion") == (
        "2 of 3 episodes end otherwise than in the evaluation at promotion, and 1 more run "
        "differently, although nothing that is recorded has changed"
    )


def test_what_changed_is_named():
    then = report([True, True])
    now = report(
        [True, False], source_digest="d" * 64, surroundings={"torch": "2.9.0", "warp": "1"}
    )
    assert differences(now, then).in_words("last night") == (
        "1 of 2 episodes end otherwise than in last night; changed since then: code cccccccccccc → "
        "dddddddddddd, processor x → absent, torch 2.8.0 → 2.9.0, warp absent → 1"
    )
    assert differences(then, then).in_words("last night") == (
        "all 2 episodes run exactly as in last night; nothing that is recorded has changed"
    )


def test_two_checkpoints_are_not_expected_to_be_equal():
    with pytest.raises(ValueError, match="of two checkpoints"):
        differences(report([True]), dataclasses.replace(report([True]), checkpoint_digest="other"))


# --- the page


def ten_nights() -> str:
    """The trend page of ten nights with alarms."""
    nights = falling()
    reason = "a <broken> camera"
    nights[6] = dataclasses.replace(nights[6], acks=(Ack("2026-11-07", "ann", reason),))
    nights[1] = dataclasses.replace(nights[1], differences=("3 of 50 episodes end otherwise",))
    points = after(nights)
    alarms = [alarm for point in points[7:] for alarm in point.alarms]
    levels = together(counted(REFERENCE))
    return trend_page(
        "Nights of <m>", "the evaluation <at> promotion", levels, points, alarms,
        {"run-0": "http://127.0.0.1:5000/#/runs/run-0"},
    )  # fmt: skip


def test_the_trend_page_shows_nights_rules_alarms_and_acknowledgements_and_loads_nothing():
    text = ten_nights()
    page = Page(text)
    words = " ".join(page.text.split())
    assert [one for one in page.links if not one.startswith("#")] == [
        "http://127.0.0.1:5000/#/runs/run-0"
    ]
    assert "script" not in page.tags
    assert text.startswith("<!doctype html>")
    assert "Nights of <m> 10 nights from 2026-11-01 to 2026-11-10" in words
    assert "compared with the evaluation <at> promotion red" in words
    assert "acknowledged 2026-11-07 by ann: a <broken> camera" in words
    assert "3 of 50 episodes end otherwise" in words
    assert "all tasks 46/50 21/50 0 25" in words
    assert "at most 5%" in words
    assert page.tags.count("svg") == 2
    assert text.count("episodes lost and 0 won") >= 5


def test_a_telephone_shows_all_of_the_trend_page(tmp_path):
    (tmp_path / "trend.html").write_text(ten_nights())
    with browser() as window:
        assert window.cut_at(390, tmp_path / "trend.html") == []
