"""What came before each frame: past states and images, worked by hand."""

import numpy as np
import pytest

from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.opening import open_dataset
from rrf.data.schema import ACTION, STATE
from tests.data.conftest import draw
from tests.data.conversion.test_lerobot_writer import make_episode, make_schema

LENGTHS = (3, 2, 4)


@pytest.fixture(scope="module", params=["image", "video"])
def root(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("history") / "d"
    episodes = [make_episode(number, length) for number, length in enumerate(LENGTHS)]
    write_dataset(root, make_schema(), episodes, request.param)
    return root


def test_past_states_and_their_masks_worked_by_hand(root):
    reader = open_dataset(root, 1, state_history=2)
    # frames 0, 2 of episode 0 (rows 0, 2), frame 0 of episode 1 (row 3), frame 1 of episode 2 (6)
    history = reader.batch(np.array([0, 2, 3, 6])).history
    # state dimension 0 is frame / 50, dimension 2 is the episode
    np.testing.assert_allclose(
        history.state[..., 0], [[0, 0], [0, 0.02], [0, 0], [0, 0]], atol=1e-7
    )
    assert history.state[..., 2].tolist() == [[0, 0], [0, 0], [1, 1], [2, 2]]
    assert history.is_state_pad.tolist() == [
        [True, True],
        [False, False],
        [True, True],
        [True, False],
    ]
    assert history.state.dtype == np.float32
    assert history.images["front"].shape == (4, 0, 16, 16, 3)
    assert history.is_image_pad.shape == (4, 0)


def test_past_images_and_their_masks_worked_by_hand(root):
    reader = open_dataset(root, 1, image_history=3)
    batch = reader.batch(np.array([8, 1, 4]))  # frames 3 of episode 2, 1 of 0, 1 of 1
    assert batch.history.images["front"].dtype == np.uint8
    assert batch.history.is_image_pad.tolist() == [
        [False, False, False],
        [True, True, False],
        [True, True, False],
    ]
    alone = open_dataset(root, 1).batch(np.arange(9)).observation.images["front"]
    np.testing.assert_array_equal(
        batch.history.images["front"], alone[[[5, 6, 7], [0, 0, 0], [3, 3, 3]]]
    )
    np.testing.assert_array_equal(batch.observation.images["front"], alone[[8, 1, 4]])
    assert batch.history.state.shape == (3, 0, 4)


def test_past_images_are_the_recorded_ones(tmp_path):
    write_dataset(tmp_path / "d", make_schema(), [make_episode(0, 6)])
    history = open_dataset(tmp_path / "d", 1, image_history=2).batch(np.array([5, 0])).history
    drawn = draw(0, 6)
    expected = np.stack([drawn[[3, 4]], drawn[[0, 0]]])
    np.testing.assert_array_equal(history.images["front"], expected)


@pytest.mark.parametrize("kept", ["memory", "nowhere", "disk"])
def test_history_is_the_same_however_images_are_kept(root, tmp_path, kept):
    options = {
        "memory": {},
        "nowhere": {"cache_bytes": 0},
        "disk": {"cache_bytes": 0, "cache_dir": tmp_path},
    }[kept]
    frames = np.array([8, 0, 4, 4, 7])
    reader = open_dataset(root, 2, state_history=1, image_history=2, **options)
    every = open_dataset(root, 1).batch(np.arange(9)).observation
    rows = [[6, 7], [0, 0], [3, 3], [3, 3], [5, 6]]
    for _ in range(2):
        history = reader.batch(frames).history
        np.testing.assert_array_equal(history.images["front"], every.images["front"][rows])
        np.testing.assert_array_equal(history.state, every.state[[[7], [0], [3], [3], [6]]])


def test_a_selection_has_no_history_beyond_its_own_episodes(root):
    reader = open_dataset(root, 1, episodes=[0, 2], state_history=1)
    history = reader.batch(np.array([3])).history  # frame 0 of episode 2
    assert history.is_state_pad.tolist() == [[True]]
    assert history.state[0, 0, 2] == 2.0


def test_without_history_a_batch_has_none(root):
    assert open_dataset(root, 1).batch(np.array([1])).history is None
    with pytest.raises(ValueError, match="state_history is 0 and image_history is -1; neither may"):
        open_dataset(root, 1, image_history=-1)


def test_all_vectors_of_a_selection_come_at_once(root):
    reader = open_dataset(root, 1, episodes=[1, 2])
    assert reader.vectors(STATE)[:, 2].tolist() == [1, 1, 2, 2, 2, 2]
    assert reader.vectors(ACTION).shape == (6, 3)
