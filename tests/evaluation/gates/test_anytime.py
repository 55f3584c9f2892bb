"""Gates of trials may be asked after every block: errors, bounds, and what they decide by."""

import math

import numpy as np
import pytest

from rrf.evaluation.comparison import pair_tests
from rrf.evaluation.gates.anytime import bounds, log_e_above, log_e_below, log_e_pairs
from rrf.evaluation.gates.decision import Rival, decide
from rrf.evaluation.protocols.limits import MeanLimitCfg
from rrf.evaluation.results import EpisodeResult, Evaluation
from tests.evaluation.trials.studies import GATE, PROTOCOL


def evaluation(successes, digest="c", **metrics):
    """Of [blocks, conditions] outcomes."""
    protocol = PROTOCOL.replace(episodes_per_task=len(successes), study="s", record="r")
    episodes = [
        EpisodeResult(
            state.task,
            state.seed,
            state.index,
            bool(successes[state.index][list(PROTOCOL.conditions).index(state.task)]),
            *(0, 0.0),
            metrics=metrics,
        )
        for state in protocol.initial_states()
    ]
    return Evaluation(protocol.to_dict(), protocol.hash, digest, episodes, {})


def test_evidence_against_a_threshold_by_hand():
    # One success of one: the mixture over a > 1/2 of a / (1/2) with density ~ 1/sqrt(a (1 - a)).
    # Its mean of a above 1/2 is 1/2 + 1/pi, so E = 1 + 2/pi.
    assert log_e_above(1, 1, 0.5) == pytest.approx(math.log(1 + 2 / math.pi))
    assert log_e_below(0, 1, 0.5) == pytest.approx(math.log(1 + 2 / math.pi))
    assert log_e_above(0, 1, 0.5) == pytest.approx(math.log(1 - 2 / math.pi))


def test_a_bound_that_is_looked_at_after_every_trial_errs_at_its_level():
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(300):
        solved = np.cumsum(rng.random(60) < 0.7)
        wrong += any(
            log_e_above(int(s), n, 0.7) >= math.log(20) for n, s in enumerate(solved, start=1)
        )
    assert wrong <= 25  # 15 are allowed on average; 25 and more have a chance of 1 %


def test_bounds_contain_the_rate_and_meet_the_evidence():
    low, high = bounds(17, 20, 0.05)
    assert low < 17 / 20 < high
    assert log_e_above(17, 20, low) == pytest.approx(math.log(20), abs=1e-6)
    assert log_e_below(17, 20, high) == pytest.approx(math.log(20), abs=1e-6)
    assert bounds(0, 0, 0.05) == (0.0, 1.0)
    assert bounds(5, 5, 0.05)[1] == 1.0


@pytest.mark.parametrize(("margin", "rates"), [(0.1, (0.6, 0.7)), (0.0, (0.7, 0.7))])
def test_a_pair_that_should_not_pass_passes_at_the_level_however_often_it_is_looked_at(
    margin, rates
):
    rng, passed = np.random.default_rng(1), 0
    for _ in range(200):
        # two conditions of different difficulty: only the mean rates are at the margin
        hard, easy = np.array(rates) - 0.2, np.array(rates) + 0.2
        solved = (rng.random((50, 2)) < hard).astype(int) + (rng.random((50, 2)) < easy)
        passed += any(
            log_e_pairs(solved[:blocks], 2, margin)[0] >= math.log(20) for blocks in range(1, 51)
        )
    assert passed <= 19  # 10 are allowed on average; 19 and more have a chance of 1 %


def test_a_clear_difference_decides_before_the_last_block():
    good, bad = np.ones((12, 2)), np.zeros((12, 2))
    rival = Rival(evaluation(bad, "champion"), "1")
    assert decide(evaluation(good), GATE, rival).outcome == "pass"
    assert decide(evaluation(bad), GATE, Rival(evaluation(good, "champion"), "1")).outcome == "fail"
    assert decide(evaluation(good[:2]), GATE, Rival(evaluation(bad[:2], "x"))).outcome == "hold"


def test_a_mean_out_of_its_range_does_not_end_a_trial_that_goes_on():
    gate = GATE.replace(limits={"progress": MeanLimitCfg(min=0.9)})
    good, rival = np.ones((12, 2)), Rival(evaluation(np.zeros((12, 2)), "x"))
    assert decide(evaluation(good, progress=0.5), gate, rival).outcome == "hold"
    assert decide(evaluation(good, progress=0.95), gate, rival).outcome == "pass"
    assert decide(evaluation(good), gate, rival).outcome == "hold"  # the number is missing
    longer = np.ones((40, 2)), Rival(evaluation(np.zeros((40, 2)), "x"))
    assert decide(evaluation(longer[0]), gate, longer[1]).outcome == "fail"


def test_arms_of_different_trials_are_not_compared():
    other = evaluation(np.zeros((12, 2)), "x")
    other.protocol["study"] = "another"
    other.protocol_hash = PROTOCOL.from_dict(other.protocol).hash
    with pytest.raises(ValueError, match="not arms of the same trial"):
        decide(evaluation(np.ones((12, 2))), GATE, Rival(other))


def test_trials_of_different_studies_are_not_paired_in_comparisons():
    one, other = evaluation(np.ones((3, 2))), evaluation(np.zeros((3, 2)), "x")
    assert pair_tests({"one": one, "other": other})[0].losses == 6
    other.protocol["study"] = "another"
    with pytest.raises(ValueError, match="cannot be paired"):
        pair_tests({"one": one, "other": other})


def test_a_gate_of_trials_has_one_look():
    with pytest.raises(ValueError, match=r"looks has one number, the most blocks, e.g. \[40\]"):
        GATE.replace(looks=[20, 40])
