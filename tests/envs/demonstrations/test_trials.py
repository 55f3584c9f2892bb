"""Trial and error around a demonstration, and the path that it bends."""

import numpy as np
import pytest

from rrf.envs.demonstrations import path, trials

HIDDEN = np.random.default_rng(0).uniform(-0.1, 0.1, (40, 2))  # where each object is, in metres


def searched(num_trials, numbers=range(40), seed=(0,)):
    """What is found where the hand must come within 3 cm of an object, and all sweeps."""
    sweeps = []

    def solved(bends):
        sweeps.append(dict(bends))
        near = [n for n, b in bends.items() if np.abs(b.first[:2] - HIDDEN[n]).max() < 0.03]
        return reversed(near)

    *_, found = trials.search(solved, numbers, num_trials, seed)
    return found, sweeps


def test_it_finds_what_only_success_tells():
    found, sweeps = searched(200)
    assert len(found) >= 38
    assert all(np.abs(b.first[:2] - HIDDEN[n]).max() < 0.03 for n, b in found.items())
    assert not any(np.any(bend) for bend in sweeps[0].values())  # at first nothing is bent
    assert [len(s) for s in sweeps] == sorted((len(s) for s in sweeps), reverse=True)


def test_what_worked_elsewhere_is_tried_near_there():
    """Objects on a line a long way from where the demonstration went: hardly found by themselves,
    and soon when some have been."""
    line = np.stack([np.linspace(-0.02, 0.25, 28), np.linspace(-0.02, 0.25, 28)], axis=1)

    def solved(bends):
        return [n for n, b in bends.items() if np.abs(b.first[:2] - line[n]).max() < 0.03]

    *_, found = trials.search(solved, range(28), 150, (0,))
    alone = [list(trials.search(solved, [n], 150, (0,)))[-1] for n in range(28)]
    assert len(found) >= 24
    assert sum(map(len, alone)) <= len(found) - 6


def test_it_depends_on_its_seed_and_not_on_who_else_waits_first():
    first, again = searched(20), searched(20)
    assert first[0].keys() == again[0].keys()
    assert all(np.array_equal(first[0][n], again[0][n]) for n in first[0])
    other, _ = searched(20, seed=(1,))
    assert any(n not in other or not np.array_equal(first[0][n], other[n]) for n in first[0])


def test_it_gives_up():
    _, sweeps = searched(3, numbers=[int(np.abs(HIDDEN).max(1).argmax())])
    assert len(sweeps) == 3


@pytest.mark.parametrize(
    ("commands", "row"),
    [([-1, -1, 0.5, 1], 2), ([1, 1, 1], 3), ([0.2, -0.1, 0.3], 1), ([0.0], 1)],
)
def test_the_gripper_divides_the_path(commands, row):
    assert path.first_change(np.array(commands)) == row


def test_a_bent_path_is_followed():
    hand = np.linspace([0, 0, 0], [0.2, 0, 0], 11)
    bend = path.Bend(np.array([0, 0.02, 0]), np.array([0, 0, 0.03]))
    bent = path.ShiftedPath(hand, np.zeros((11, 4), np.float32), 0.05, divides=6)
    bent.bend = bend
    now, shifts = np.zeros(3), []
    for step in range(11):
        shifts.append(now - hand[step])
        now = now + 0.05 * bent.act(now)[:3]
        now += hand[min(step + 1, 10)] - hand[step]  # what the demonstrated action would do
    np.testing.assert_allclose(shifts[0], 0, atol=1e-6)
    np.testing.assert_allclose(shifts[6], bend.first, atol=1e-3)
    np.testing.assert_allclose(now - hand[-1], bend.last, atol=1e-3)


def test_the_demonstration_says_how_far_an_action_moves_the_hand():
    asked = np.random.default_rng(0).uniform(-1, 1, (20, 7)).astype(np.float32)
    hand = np.concatenate([np.zeros((1, 3)), 0.04 * np.cumsum(asked[:, :3], axis=0)[:-1]])
    assert path.reach_of(hand, asked) == pytest.approx(0.04)
    for elsewhere in (-hand, np.zeros_like(hand)):
        with pytest.raises(ValueError, match="do not move the hand along x, y and z"):
            path.reach_of(elsewhere, asked)
