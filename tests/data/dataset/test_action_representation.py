"""Actions relative to the state, or as differences."""

import numpy as np
import pytest

from rrf.data.dataset.action_representation import Representation
from rrf.data.dataset.transforms import Normalize

STATE = np.array([[1.0, 10.0]], np.float32)
ACTION = np.array([[[2.0, 11.0, 0.5], [4.0, 15.0, 0.7], [3.0, 15.0, 0.9]]], np.float32)


def test_relative_actions_are_differences_to_the_state_at_the_beginning():
    found = Representation(relative=((0, 0),)).apply(ACTION, STATE)
    assert found[0, :, 0].tolist() == [1.0, 3.0, 2.0]
    assert np.array_equal(found[..., 1:], ACTION[..., 1:])


def test_deltas_are_differences_to_the_step_before():
    found = Representation(delta=((1, 1),)).apply(ACTION, STATE)
    assert found[0, :, 1].tolist() == [1.0, 4.0, 0.0]
    assert np.array_equal(found[..., [0, 2]], ACTION[..., [0, 2]])


def test_the_inverse_gives_the_actions_back():
    rng = np.random.default_rng(0)
    action = rng.normal(size=(5, 16, 4)).astype(np.float32)
    state = rng.normal(size=(5, 3)).astype(np.float32)
    representation = Representation(relative=((0, 2), (3, 0)), delta=((1, 1),))
    again = representation.invert(representation.apply(action, state), state)
    assert np.abs(again - action).max() < 2e-6


def test_an_absolute_action_is_not_changed_at_all():
    assert Representation().is_absolute
    assert np.array_equal(Representation().apply(ACTION, STATE), ACTION)


def test_dimensions_that_do_not_exist_or_are_named_twice_are_refused():
    with pytest.raises(ValueError, match="action dimension 5 is expressed by state dimension 0"):
        Representation(relative=((5, 0),)).apply(ACTION, STATE)
    with pytest.raises(ValueError, match="state dimension 2, but there are 3 dimensions of action"):
        Representation(delta=((0, 2),)).invert(ACTION, STATE)
    with pytest.raises(ValueError, match="action dimension 0 is named more than once"):
        Representation(relative=((0, 0),), delta=((0, 1),))


def test_single_dimensions_have_a_normalisation_of_their_own():
    stats = {"mean": [1.0, 1.0, 1.0], "std": [2.0, 2.0, 2.0], "min": [0.0] * 3, "max": [4.0] * 3}
    normalize = Normalize(stats, "mean_std", {1: "min_max", 2: "none"})
    assert normalize.apply(np.array([5.0, 3.0, 5.0])).tolist() == [2.0, 0.5, 5.0]
    assert normalize.invert(np.array([2.0, 0.5, 5.0])).tolist() == [5.0, 3.0, 5.0]
    with pytest.raises(ValueError, match="dimension 3 has a mode of its own, but there are 3"):
        Normalize(stats, "mean_std", {3: "none"})
    with pytest.raises(ValueError, match=r"mode 'quantile' needs the statistics \['q01', 'q99'\]"):
        Normalize(stats, "mean_std", {0: "quantile"})
