import numpy as np
import pytest

from rrf.data.sampling import batch_indices


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
