import math

import pytest
import torch

from tests.closeness import ULP, assert_close, tolerance


def test_a_tolerance_follows_the_largest_number_and_has_a_floor():
    assert tolerance(torch.zeros(3)) == 1e-7
    assert tolerance([0.5, -4.0]) == 64 * ULP + 1e-7
    assert tolerance([0.5, math.inf], ulps=2) == ULP + 1e-7
    assert tolerance(0.001, ulps=1, scale=[-8.0]) == 8 * ULP + 1e-7


def test_what_is_further_away_or_of_another_shape_or_type_is_refused():
    expected = torch.tensor([1024.0, 1.0])
    assert_close(expected + torch.tensor([0.0, 15 * 1024 * ULP]), expected)
    with pytest.raises(AssertionError):
        assert_close(expected + torch.tensor([0.0, 17 * 1024 * ULP]), expected)
    with pytest.raises(AssertionError):
        assert_close(expected[:1], expected)
    with pytest.raises(AssertionError):
        assert_close(expected.double(), expected)
    with pytest.raises(AssertionError):
        assert_close(math.nan, 1.0)
    with pytest.raises(AssertionError):
        assert_close([1.0, math.inf], [1.0, 2.0])
    assert_close([1.0, -math.inf], [1.0, -math.inf])
