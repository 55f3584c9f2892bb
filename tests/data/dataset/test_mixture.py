"""Several datasets drawn together, merged ones by the weights in their table."""

import numpy as np
import pytest

from rrf.data.conversion.dataset_cfg import MergeCfg, MergePartCfg
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.conversion.merge import merge
from rrf.data.dataset.mixture import Mixture
from rrf.data.dataset.opening import open_dataset
from rrf.data.dataset.sampling import batch_indices
from rrf.data.schema import ACTION, STATE, Vector
from tests.data.conversion.test_lerobot_writer import make_episode, make_schema


def write(root, numbers, instruction, **changes):
    """Episodes of 10 frames; state dimension 2 and the images tell the episode."""
    schema = make_schema()
    if changes:
        schema = type(schema)(**(vars(schema) | changes))
    episodes = [make_episode(number, 10, instruction=instruction) for number in numbers]
    write_dataset(root, schema, episodes, "video")
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """a: episodes 0, 1 (20 frames); b: episodes 5, 6, 7 (30 frames)."""
    folder = tmp_path_factory.mktemp("mixture")
    write(folder / "a", [0, 1], "pull")
    write(folder / "b", [5, 6, 7], "push")
    return folder


def open_mixture(folder, weights=None, **options):
    readers = [open_dataset(folder / name, 3, **options) for name in ("a", "b")]
    return Mixture(readers, weights), readers


def test_a_batch_holds_the_frames_asked_for_in_that_order(folder):
    mixture, (a, b) = open_mixture(folder, state_history=2, image_history=1)
    batch = mixture.batch(np.array([49, 0, 20, 19, 20]))
    first, second = a.batch(np.array([0, 19])), b.batch(np.array([29, 0, 0]))
    assert batch.observation.state[:, 2].tolist() == [7, 0, 5, 1, 5]
    assert batch.observation.instruction == ["push", "pull", "push", "pull", "push"]
    front = batch.observation.images["front"]
    np.testing.assert_array_equal(front[[1, 3]], first.observation.images["front"])
    np.testing.assert_array_equal(front[[0, 2, 4]], second.observation.images["front"])
    np.testing.assert_array_equal(batch.action[[1, 3]], first.action)
    assert batch.is_pad[0].tolist() == batch.is_pad[3].tolist() == [False, True, True]
    history = batch.history
    np.testing.assert_array_equal(history.state[[0, 2, 4]], second.history.state)
    np.testing.assert_array_equal(history.images["front"][[1, 3]], first.history.images["front"])
    assert history.is_state_pad.all(axis=1).tolist() == [False, True, True, False, True]
    assert history.is_image_pad[:, 0].tolist() == [False, True, True, False, True]


def test_weights_say_how_often_a_frame_is_drawn(folder):
    mixture, _ = open_mixture(folder, [3.0, 1.0])
    assert mixture.weights.tolist() == [3.0] * 20 + [1.0] * 30
    draws = np.concatenate([mixture.draw(10, seed=1, step=step) for step in range(5)])
    # 20 * 3 / 90 * 50 = 33.3 draws of an epoch's 50
    assert (draws < 20).sum() == 33
    even, _ = open_mixture(folder)
    np.testing.assert_array_equal(even.draw(8, 1, 4), batch_indices(50, 8, 1, 4))


def test_a_mixture_says_what_it_holds(folder):
    mixture, (a, b) = open_mixture(folder)
    assert (mixture.num_frames, mixture.num_episodes) == (50, 5)
    assert mixture.instructions == ["pull", "push"]
    assert mixture.schema == a.schema
    stats = mixture.norm_stats
    assert stats[STATE]["count"] == stats[ACTION]["count"] == [50]
    # state dimension 2 is the episode: 0, 1, 5, 6, 7, ten frames each
    assert (stats[STATE]["min"][2], stats[STATE]["max"][2]) == (0.0, 7.0)
    assert stats[STATE]["mean"][2] == pytest.approx(3.8)
    assert set(stats[STATE]) == {"min", "max", "mean", "std", "q01", "q99", "count"}
    assert Mixture([b]).batch(np.array([3])).observation.state[0, 2] == 5


def test_limits_are_the_widest_of_all(folder, tmp_path):
    wide = Vector(("dx", "dy", "dz"), "fraction", (-3.0, -0.5, -1.0), (1.0, 1.0, 9.0))
    write(tmp_path / "wide", [0], "pull", action=wide)
    readers = [open_dataset(root, 3) for root in (folder / "a", tmp_path / "wide")]
    action = Mixture(readers).schema.action
    assert (action.low, action.high) == ((-3.0, -1.0, -1.0), (1.0, 1.0, 9.0))
    write(tmp_path / "free", [0], "pull", action=Vector(wide.names, wide.unit))
    readers.append(open_dataset(tmp_path / "free", 3))
    assert Mixture(readers).schema.action.low is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fps": 20}, r"fps of .*a is 10, but of .*other it is 20; align them in a merged"),
        ({"state": Vector(("x", "y", "z", "g"), "m")}, r"state of .*a is .*gripper.*of .*other"),
    ],
)
def test_datasets_that_do_not_fit_are_named(folder, tmp_path, changes, message):
    write(tmp_path / "other", [0], "pull", **changes)
    with pytest.raises(ValueError, match=message):
        Mixture([open_dataset(folder / "a", 3), open_dataset(tmp_path / "other", 3)])


def test_wrong_requests_are_named(folder):
    mixture, (a, b) = open_mixture(folder)
    for indices in ([50], [-1], []):
        with pytest.raises(ValueError, match=r"indices must lie in 0\.\.49"):
            mixture.batch(np.array(indices))
    with pytest.raises(ValueError, match=r"the weight of .*b is 0, must be positive"):
        Mixture([a, b], [1, 0])
    with pytest.raises(ValueError, match="2 datasets, but 1 weights"):
        Mixture([a, b], [1])
    with pytest.raises(ValueError, match="at least one dataset"):
        Mixture([])
    with pytest.raises(ValueError, match=r"chunk_length of .*a is 3, but of .*b it is 2"):
        Mixture([a, open_dataset(folder / "b", 2)])


def test_a_merged_dataset_is_drawn_by_the_weights_in_its_table(folder):
    parts = [MergePartCfg(dataset="a", weight=4.0), MergePartCfg(dataset="b")]
    merge(MergeCfg(name="c", merge=parts, licence="MIT", provenance="a, b"), folder, folder / "c")
    reader = open_dataset(folder / "c", 1, episodes=[1, 2, 3])  # one of a, two of b
    assert reader.weights.tolist() == [4.0] * 10 + [1.0] * 20
    # 40 of 60 in weight, so 20 of an epoch's 30 draws
    draws = np.concatenate([reader.draw(6, seed=0, step=step) for step in range(5)])
    assert np.bincount(draws, minlength=30)[:10].tolist() == [2] * 10
    # in a mixture the dataset's own weights count on top
    mixture = Mixture([reader, open_dataset(folder / "a", 1)], [0.5, 3.0])
    assert mixture.weights.tolist() == [2.0] * 10 + [0.5] * 20 + [3.0] * 20


def test_an_unweighted_dataset_is_drawn_as_ever(folder):
    reader = open_dataset(folder / "b", 1)
    np.testing.assert_array_equal(reader.draw(7, 3, 11), batch_indices(30, 7, 3, 11))
