"""Bounds and tests against published tables and hand calculations."""

import math

import numpy as np
import pytest

from rrf.evaluation.intervals import (
    bounded_mean,
    clopper_pearson,
    episodes_to_decide,
    mcnemar_p,
    noninferiority_p,
    paired_difference,
    pairs_to_decide,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "episodes", "low", "high"),
    [  # Newcombe, Stat. Med. 17:857 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_bounds_equal_the_published_ones(successes, episodes, low, high):
    assert wilson(successes, episodes) == pytest.approx((low, high), abs=5e-5)


def test_wilson_bounds_by_hand_for_nine_of_ten():
    # z = 1.959964, z^2 = 3.841459: center = (.9 + .192073) / 1.384146, half = 1.959964 sqrt(.009 +
    # .009604) / 1.384146
    assert wilson(9, 10) == pytest.approx((0.59585, 0.98212), abs=2e-5)


def test_wilson_bounds_are_exact_at_the_ends_and_open_without_episodes():
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0


@pytest.mark.parametrize(
    ("successes", "episodes", "low", "high"),
    [  # Newcombe, Stat. Med. 17:857 (1998), table I, method 5
        (81, 263, 0.2527, 0.3676),
        (15, 148, 0.0578, 0.1617),
        (0, 20, 0.0000, 0.1684),
        (1, 29, 0.0009, 0.1776),
    ],
)
def test_exact_bounds_equal_the_published_ones(successes, episodes, low, high):
    assert clopper_pearson(successes, episodes) == pytest.approx((low, high), abs=5e-5)


def test_exact_bounds_keep_their_level_where_wilsons_do_not():
    def error(bounds, rate: float, episodes: int = 20) -> float:
        """How often the lower 95 % bound lies above the true rate."""
        chances = (
            math.comb(episodes, k) * rate**k * (1 - rate) ** (episodes - k)
            for k in range(episodes + 1)
            if bounds(k, episodes, 0.9)[0] > rate
        )
        return sum(chances)

    rates = [number / 200 for number in range(1, 200)]
    assert max(error(clopper_pearson, rate) for rate in rates) <= 0.05
    assert max(error(wilson, rate) for rate in rates) > 0.08


def test_no_loss_in_n_pairs_excludes_a_margin_like_one_minus_margin_to_the_n():
    # Without wins in the model, the p-value is (1 - margin)^pairs; wins can only raise it.
    assert 0.9**40 <= noninferiority_p(0, 0, 40, 0.1) < 2 * 0.9**40
    # one pair, no margin: the first policy wins it with at most 1/2 if it is not better
    assert noninferiority_p(1, 0, 1, 0.0) == pytest.approx(0.5, abs=1e-3)
    assert noninferiority_p(0, 0, 40, 0.0) == 1.0
    assert noninferiority_p(0, 40, 40, 1.0) == 0.0


@pytest.mark.parametrize(("pairs", "margin"), [(12, 0.2), (20, 0.3), (30, 0.1), (15, 0.0)])
def test_noninferiority_is_wrongly_concluded_with_at_most_the_level(pairs, margin):
    outcomes = [(w, lost) for w in range(pairs + 1) for lost in range(pairs + 1 - w)]
    passing = [(w, n) for w, n in outcomes if noninferiority_p(w, n, pairs, margin) <= 0.05]
    assert passing
    for lost in (margin, margin + 0.1):  # at the margin, and worse than that
        for rate in [lost + (1 - lost) / 2 * step / 37 for step in range(38)]:
            win = rate - lost
            chance = sum(
                math.comb(pairs, w)
                * math.comb(pairs - w, n)
                * win**w
                * rate**n
                * max(0.0, 1 - win - rate) ** (pairs - w - n)
                for w, n in passing
            )
            assert chance <= 0.0505  # the maximum over the rates is taken on a grid


def test_noninferiority_is_nearly_the_same_where_the_approximation_takes_over():
    exact, approximate = (noninferiority_p(20, 34, pairs, 0.1) for pairs in (400, 401))
    assert exact == pytest.approx(approximate, abs=2e-3)
    assert 1e-4 < exact < 0.05


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="5 successes in 4 episodes"):
        wilson(5, 4)
    for difference in (paired_difference, lambda *counts: noninferiority_p(*counts, 0.1)):
        with pytest.raises(ValueError, match="3 wins and 2 losses in 4 pairs"):
            difference(3, 2, 4)
    with pytest.raises(ValueError, match="5 successes in 4 episodes"):
        clopper_pearson(5, 4)


def test_mcnemar_is_the_binomial_tail():
    # P(X >= 8), X ~ Bin(10, 1/2) = (45 + 10 + 1) / 1024
    assert mcnemar_p(8, 2) == 56 / 1024
    assert mcnemar_p(0, 0) == 1.0
    assert mcnemar_p(0, 5) == 1.0
    assert mcnemar_p(5, 0) == 1 / 32


def test_paired_difference_by_hand():
    # (7+1)/100 - (15+1)/100 = -.08; half = 1.959964 sqrt((.24 - .0064) / 100) = .094729
    difference, low, high = paired_difference(7, 15, 98)
    assert difference == pytest.approx(-8 / 98)
    assert (low, high) == pytest.approx((-0.174729, 0.014729), abs=1e-6)


def test_a_longer_evaluation_is_asked_for_the_closer_rate_and_threshold_are():
    # n = z^2 p (1-p) / d^2 = 3.841459 * .25 / .01 = 96.04
    assert episodes_to_decide(0.6, 0.5) == 97
    assert episodes_to_decide(0.51, 0.5) == 9604
    assert episodes_to_decide(0.5, 0.5, limit=300) == 300
    low, _ = wilson(60, 100)
    assert low > 0.5


def test_pairs_to_decide_by_hand():
    # rates 2/20 and 2/20 after adding one: difference 0, variance .2, n = 3.841459 * .2 / .01 =
    # 76.8
    assert pairs_to_decide(1, 1, 18, threshold=-0.1) == 77


def test_bounds_of_a_mean_are_the_adjusted_wald_interval_where_values_are_0_or_1():
    # n = 10 + 3.841459, p = (8 + 1.920729) / n = .716739, half = z sqrt(p (1 - p) / n) = .237375
    mean, low, high = bounded_mean([1.0] * 8 + [0.0] * 2, 1.0)
    assert mean == 0.8
    assert (low, high) == pytest.approx((0.479364, 0.954113), abs=1e-5)
    assert bounded_mean([4.0] * 8 + [0.0] * 2, 4.0) == pytest.approx((3.2, 4 * low, 4 * high))


def test_bounds_of_a_mean_hold_what_they_say():
    random = np.random.default_rng(0)
    for shares in ([0.2] * 5, [0.9, 0.05, 0.02, 0.02, 0.01], [0.02, 0.03, 0.05, 0.1, 0.8]):
        true = float(np.dot(range(5), shares))
        draws = random.choice(5, size=(500, 60), p=shares).astype(float)
        inside = [low <= true <= high for _, low, high in (bounded_mean(d, 4.0) for d in draws)]
        assert np.mean(inside) > 0.93
    mean, low, high = bounded_mean([5.0] * 20, 5.0)
    assert (mean, high) == (5.0, 5.0)
    assert 4.0 < low < 5.0
    assert bounded_mean([], 5.0) == (0.0, 0.0, 5.0)
    with pytest.raises(ValueError, match=r"must lie in 0\.\.5"):
        bounded_mean([6.0], 5.0)
