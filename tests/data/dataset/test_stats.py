import numpy as np
import pytest

from rrf.data.dataset import stats
from rrf.data.dataset.stats import ImageStats, VectorStats, describe


def test_statistics_of_five_numbers_worked_by_hand():
    stream = VectorStats()
    stream.update(np.array([[1.0, 10.0], [2.0, 10.0]], np.float32))
    stream.update(np.zeros((0, 2), np.float32))
    stream.update(np.array([[3.0, 10.0], [4.0, 10.0], [10.0, 10.0]], np.float32))
    result = stream.result()
    assert result["count"].tolist() == [5]
    assert result["min"].tolist() == [1.0, 10.0]
    assert result["max"].tolist() == [10.0, 10.0]
    assert result["mean"].tolist() == [4.0, 10.0]
    # squared deviations 9 + 4 + 1 + 0 + 36 = 50, over 5
    assert result["std"] == pytest.approx([10.0**0.5, 0.0])
    assert result["q50"].tolist() == [3.0, 10.0]
    # position 0.9 * 4 = 3.6 between 4 and 10
    assert result["q90"] == pytest.approx([7.6, 10.0])
    assert result["q01"] == pytest.approx([1.04, 10.0])


def test_a_stream_in_pieces_equals_the_whole_far_from_zero():
    values = np.random.default_rng(0).normal(1e4, 0.01, (1000, 3)).astype(np.float32)
    stream = VectorStats()
    for start in range(0, 1000, 7):
        stream.update(values[start : start + 7])
    whole = describe(values)
    for name, expected in stream.result().items():
        np.testing.assert_allclose(expected, whole[name], rtol=1e-9, err_msg=name)


def test_quantiles_of_a_stream_too_long_to_keep_use_every_second_fourth_row():
    stream = VectorStats(max_exact_rows=4)
    for value in range(11):
        stream.update(np.array([[float(value)]]))
    # kept 0..4 -> 0 2 4 -> 0 2 4 6 8 -> 0 4 8; then 10 is not a multiple of 4
    result = stream.result()
    assert result["q50"].tolist() == [4.0]
    assert result["q90"] == pytest.approx([7.2])  # position 0.9 * 2 between 4 and 8
    assert result["max"].tolist() == [10.0]
    assert result["mean"].tolist() == [5.0]


def test_quantiles_are_exact_in_blocks_and_leave_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(stats, "_BLOCK_ROWS", 64)
    monkeypatch.setattr(stats, "_QUANTILE_BYTES", 2 * 8 * 700)  # two columns at once
    values = np.random.default_rng(0).normal(size=(700, 5)).astype(np.float32)
    stream = VectorStats(folder=tmp_path)
    for start in range(0, 700, 33):
        stream.update(values[start : start + 33])
    found = stream.result()
    for name, q in stats.QUANTILES.items():
        expected = np.quantile(values.astype(np.float64), q, axis=0)
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
    assert list(tmp_path.iterdir()) == []


def test_image_statistics_worked_by_hand():
    images = np.zeros((1, 2, 2, 3), np.uint8)
    images[0, :, :, 0] = [[0, 51], [102, 255]]  # 0, 0.2, 0.4, 1
    images[0, :, :, 1] = 255
    stream = ImageStats()
    stream.update(images)
    result = stream.result()
    assert result["mean"].shape == (3, 1, 1)
    assert result["mean"].ravel() == pytest.approx([0.4, 1.0, 0.0])
    assert result["min"].ravel() == pytest.approx([0.0, 1.0, 0.0])
    assert result["max"].ravel() == pytest.approx([1.0, 1.0, 0.0])
    # deviations 0.16 + 0.04 + 0 + 0.36 = 0.56, over 4
    assert result["std"].ravel() == pytest.approx([0.14**0.5, 0.0, 0.0])
    # position 1.5: halfway between 0.2 and 0.4
    assert result["q50"].ravel() == pytest.approx([0.3, 1.0, 0.0])
    assert result["count"].tolist() == [1]


def test_image_quantiles_are_those_of_all_pixels():
    images = np.random.default_rng(1).integers(0, 256, (3, 5, 4, 3), dtype=np.uint8)
    halves = ImageStats(), ImageStats()
    halves[0].update(images[:1])
    halves[1].update(images[1:])
    halves[0].merge(halves[1])
    expected = np.quantile(images.reshape(-1, 3) / 255.0, 0.9, axis=0)
    np.testing.assert_allclose(halves[0].result()["q90"].ravel(), expected)


def test_no_values_have_no_statistics():
    with pytest.raises(ValueError, match="no values"):
        VectorStats().result()
    with pytest.raises(ValueError, match="no images"):
        ImageStats().result()
