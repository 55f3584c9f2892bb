import numpy as np
import pytest

from rrf.data.dataset.sampling import WeightedSampler, batch_indices


def test_every_frame_comes_once_per_epoch_also_across_batches():
    frames = np.concatenate([batch_indices(10, 4, seed=1, step=step) for step in range(5)])
    assert sorted(frames[:10].tolist()) == list(range(10))
    assert sorted(frames[10:].tolist()) == list(range(10))
    assert frames[:10].tolist() != frames[10:].tolist()


def test_a_step_needs_nothing_but_its_number():
    later = batch_indices(100, 8, seed=3, step=57)
    for step in range(60):
        batch_indices(100, 8, seed=3, step=step)
    np.testing.assert_array_equal(batch_indices(100, 8, seed=3, step=57), later)
    assert later.dtype == np.int64


def test_the_order_never_changes_between_versions():
    assert batch_indices(6, 6, seed=0, step=0).tolist() == [3, 2, 5, 4, 0, 1]


def test_another_seed_is_another_order():
    first, second = (batch_indices(1000, 16, seed, 0).tolist() for seed in (0, 1))
    assert first != second


def test_a_batch_larger_than_the_dataset_holds_whole_epochs():
    assert np.bincount(batch_indices(3, 8, seed=0, step=0)).tolist() in (
        [3, 3, 2],
        [3, 2, 3],
        [2, 3, 3],
    )


@pytest.mark.parametrize(("num_frames", "batch_size", "step"), [(0, 4, 0), (5, 0, 0), (5, 2, -1)])
def test_nonsense_is_refused(num_frames, batch_size, step):
    with pytest.raises(ValueError, match="need num_frames > 0"):
        batch_indices(num_frames, batch_size, 0, step)


def test_equal_weights_draw_as_without_weights():
    sampler = WeightedSampler(np.full(10, 2.5))
    for step in (0, 3, 50):
        np.testing.assert_array_equal(sampler.indices(4, 7, step), batch_indices(10, 4, 7, step))


def test_a_frame_of_weight_3_comes_three_times_as_often_exactly():
    # 8 draws per epoch: frames 0..3 weigh 12 of 16, so 6 draws; frames 4..7 have 2
    sampler = WeightedSampler(np.array([3, 3, 3, 3, 1, 1, 1, 1]))
    first = sampler.indices(8, seed=0, step=0)
    assert (first < 4).sum() == 6
    draws = np.concatenate([sampler.indices(4, 0, step) for step in range(4)])  # two epochs
    assert np.bincount(draws).tolist() == [3, 3, 3, 3, 1, 1, 1, 1]


def test_in_a_group_every_frame_comes_before_any_comes_again():
    weights = np.concatenate([np.full(30, 5.0), np.full(70, 1.0)])
    sampler = WeightedSampler(weights)
    epochs = [sampler.indices(100, 3, epoch) for epoch in range(3)]
    light = np.concatenate([draws[draws >= 30] for draws in epochs])
    # 30 * 5 / 220 * 100 = 68.2 draws for the heavy frames, so 32 for the others
    assert [(draws < 30).sum() for draws in epochs] == [68, 68, 68]
    counts = np.bincount(light, minlength=100)[30:]
    assert sorted(set(counts.tolist())) == [1, 2]  # 96 draws of 70 frames
    assert counts.sum() == 96


def test_a_weighted_step_needs_nothing_but_its_number():
    weights = np.repeat([1.0, 2.0, 0.5], [40, 25, 35])
    later = WeightedSampler(weights).indices(16, seed=5, step=29)
    sampler = WeightedSampler(weights)
    for step in range(29):
        sampler.indices(16, seed=5, step=step)
        sampler.indices(16, seed=6, step=step)
    np.testing.assert_array_equal(sampler.indices(16, seed=5, step=29), later)
    assert later.dtype == np.int64
    assert later.tolist() != WeightedSampler(weights).indices(16, seed=6, step=29).tolist()


def test_the_weighted_order_never_changes_between_versions():
    sampler = WeightedSampler(np.array([1, 1, 1, 4, 4]))
    assert sampler.indices(12, seed=0, step=0).tolist() == [4, 4, 3, 2, 3, 4, 4, 3, 1, 3, 3, 3]


def test_a_group_too_light_for_a_draw_has_one_all_the_same():
    sampler = WeightedSampler(np.array([1000.0, 1000.0, 1000.0, 1e-6]))
    assert sorted(sampler.indices(4, 0, 0).tolist())[-1] == 3
    many = WeightedSampler(np.array([1e9, 1.0, 2.0, 3.0, 4.0]))
    assert sorted(many.indices(5, 0, 0).tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 0, 2], "the weight of frame 1 is 0.0, must be a positive number"),
        ([1, -2], "the weight of frame 1 is -2.0"),
        ([float("nan")], "the weight of frame 0 is nan"),
        ([float("inf"), 1], "the weight of frame 0 is inf"),
        ([], "there are no frames to draw from"),
    ],
)
def test_weights_that_are_none_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        WeightedSampler(np.array(weights))
