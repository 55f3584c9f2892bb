import dataclasses

import numpy as np
import pytest

from rrf.data.dataset.transforms import Normalize

STATS = {
    "min": [-2.0, 0.0, 5.0],
    "max": [2.0, 10.0, 5.0],
    "mean": [0.5, 4.0, 5.0],
    "std": [0.5, 2.0, 0.0],
    "q01": [-1.0, 1.0, 5.0],
    "q99": [1.0, 9.0, 5.0],
}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("mean_std", [1.0, -1.0, 1.0]),
        ("min_max", [0.5, -0.6, 1.0]),
        ("quantile", [1.0, -0.75, 1.0]),
    ],
)
def test_normalisation_worked_by_hand(mode, expected):
    # the third dimension never changed, so it is only shifted by its one value, 5
    normalize = Normalize(STATS, mode)
    normalized = normalize.apply(np.array([1.0, 2.0, 6.0], np.float32))
    assert normalized.dtype == np.float32
    assert normalized == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["mean_std", "min_max", "quantile"])
def test_the_inverse_gives_back_what_went_in_outside_the_statistics_too(mode):
    values = np.random.default_rng(0).normal(0, 30, (4, 6, 3)).astype(np.float32)
    normalize = Normalize(STATS, mode)
    np.testing.assert_allclose(normalize.invert(normalize.apply(values)), values, rtol=1e-6)


def test_a_chunk_may_have_statistics_of_its_own_for_each_step():
    stats = {"min": [[0.0, -1.0], [0.0, -2.0]], "max": [[1.0, 1.0], [2.0, 2.0]]}
    normalize = Normalize(stats, "min_max", {1: "none"})
    chunk = np.array([[[0.5, 7.0], [2.0, 7.0]]])
    assert normalize.apply(chunk).tolist() == [[[0.0, 7.0], [1.0, 7.0]]]
    assert normalize.invert(normalize.apply(chunk)).tolist() == chunk.tolist()
    assert normalize.apply(chunk[:, :1]).tolist() == [[[0.0, 7.0]]]  # of a shorter chunk
    with pytest.raises(ValueError, match="3 steps, but there are statistics of 2"):
        normalize.apply(np.zeros((1, 3, 2)))


def test_transforms_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Normalize(STATS).scale = (1.0,)


def test_wrong_use_is_named():
    with pytest.raises(ValueError, match="mode is 'zscore', must be one of: mean_std"):
        Normalize(STATS, "zscore")
    with pytest.raises(ValueError, match=r"needs the statistics \['q01'\]"):
        Normalize({"q99": [1.0]}, "quantile")
    with pytest.raises(ValueError, match="2 dimensions, expected 3"):
        Normalize(STATS).apply(np.zeros((5, 2), np.float32))
    with pytest.raises(ValueError, match="must be finite"):
        Normalize({"mean": [np.nan], "std": [1.0]})
