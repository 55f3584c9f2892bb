"""The alarm for states that a policy was not trained on, and how often it is false."""

import itertools

import numpy as np
import pytest

from rrf.client import PolicyClient
from rrf.data.dataset.seen_images import NUM_COLORS, SeenImages
from rrf.data.schema import STATE
from rrf.serving.book import Book
from rrf.serving.configs import ServingCfg
from rrf.serving.drift import _BETS, EXPECTED, Drift, Sightings
from rrf.serving.model import loaded
from tests.serving.conftest import Scripted, request

LOW, HIGH = np.array([-1.0, 0.0]), np.array([1.0, 2.0])
BLACK = SeenImages(np.zeros(NUM_COLORS), np.eye(NUM_COLORS), limit=1.0)


def test_what_lies_outside_is_seen_by_dimension():
    drift = Drift(LOW, HIGH)
    assert drift.outside({STATE: np.array([0.0, 1.0])}).tolist() == [False, False]
    assert drift.outside({STATE: np.array([-1.1, 2.5])}).tolist() == [True, True]


def test_what_a_part_of_a_policy_does_not_see_is_evidence_of_nothing():
    drift = Drift(LOW, HIGH, {"observation.images.ego": BLACK})
    white, black = (np.full((8, 8, 3), grey, np.uint8) for grey in (255, 0))
    seen = Sightings(3)
    for inputs in (
        {"observation.images.ego": white},
        {"observation.images.ego": black},
        {STATE: np.array([0.0, 2.5]), "observation.images.ego": white},
        {STATE: np.array([0.0, 1.0]), "observation.images.ego": white},
    ):
        seen.note(drift.outside(inputs))
    assert seen.share.tolist() == [0.0, 0.5, 0.75]
    blind = Sightings(3)
    blind.note(drift.outside({"observation.images.ego": white}))
    drift.add(blind.share)
    assert drift.log_evidence[:2].tolist() == [0.0, 0.0]
    assert drift.log_evidence[2] > 1


def test_a_dimension_that_moved_is_named_once_after_few_episodes():
    drift = Drift(LOW, HIGH)
    found = [drift.add(np.array([0.02, 0.9])) for _ in range(10)]
    first = next(k for k, dimensions in enumerate(found) if dimensions)
    assert found[first] == [1]
    assert first < 4
    assert sum(map(bool, found)) == 1


def test_a_small_move_needs_more_episodes():
    drift = Drift(LOW, HIGH)
    found = [bool(drift.add(np.array([0.02, 0.15]))) for _ in range(100)]
    assert 3 < found.index(True) < 20


def test_the_expectation_is_1_for_every_distribution_of_this_mean():
    """All sequences of three episodes in which a share is 0 or s, with a mean of EXPECTED."""
    for s in (0.02, 0.1, 0.5, 1.0):
        chance = EXPECTED / s
        total = 0.0
        for seen in itertools.product((0.0, s), repeat=3):
            drift = Drift(LOW[:1], HIGH[:1])
            for share in seen:
                drift.add(np.array([share]))
            likelihood = np.prod([chance if share else 1 - chance for share in seen])
            total += likelihood * np.exp(drift.log_evidence[0])
        assert total == pytest.approx(1)
    assert (_BETS * EXPECTED < 1).all()


@pytest.mark.slow
def test_false_alarms_are_rarer_than_stated():
    """1,000 robots of 300 episodes each; whole episodes lie outside or inside, the hardest case."""
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(1_000):
        drift = Drift(LOW, HIGH, alpha=0.05)
        alarms += any(drift.add(share) for share in (rng.random((300, 2)) < EXPECTED) * 1.0)
    assert 0 < alarms <= 50


def test_a_server_raises_the_alarm_before_anybody_fails(serving, tmp_path, caplog):
    book = Book(tmp_path / "book.sqlite")
    running = serving(Scripted(), book=book)
    running.cast.champion.drift = Drift(np.array([-1.0] * 3), np.array([1.0] * 3))
    with PolicyClient(running.url) as robot:
        for _ in range(6):
            robot.begin_episode()
            robot.infer(request(0.5, 3, 0))
            robot.end_episode(True)
    book.close()
    said = "scripted sees what it was not trained on: dimension 1 of observation.state"
    assert caplog.text.count(said) == 1
    assert 'rrf_drift{dimension="1"' in running.server.metrics.text()


def test_the_states_of_the_training_are_those_of_the_checkpoint(checkpoint):
    player = loaded(checkpoint, "compact", ServingCfg(max_batch=1), "cpu")
    assert player.action_std.tolist() == [1.0] * 4
    seen = {STATE: np.array([0.0, -2.0, 0.0, 2.0])}
    assert player.drift.outside(seen).tolist() == [0, 1, 0, 1]
    assert "images of" in player.unwatched
    assert "are not watched for drift: the checkpoint has no statistics" in player.unwatched
