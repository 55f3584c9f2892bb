"""Two datasets compared by what their episodes hold."""

import shutil

import h5py
import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.schema import Episode, Schema, Vector
from rrf.data.validation.diff import Drift, diff_datasets
from tests.data.conftest import edit_column, edit_images, make_cfg, write_raw
from tests.data.fixtures_lerobot_v2 import change_columns, data_path, edit_features, write_v2
from tests.data.validation.test_summary import recompressed

LENGTHS = {"pull": [8, 6, 7], "push": [5, 10]}


def numbers(episodes):
    return [episode.number for episode in episodes]


@pytest.fixture
def pair(tmp_path, raw, cfg):
    """The same dataset twice."""
    convert(cfg, raw, tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    return tmp_path / "before", tmp_path / "after"


def test_a_dataset_equals_itself(pair):
    found = diff_datasets(*pair)
    assert not found.is_different
    assert len(found.same) == 5
    assert found.drift == []
    assert found.properties == {}


def test_files_and_compression_do_not_matter(pair):
    edit_images(pair[1], {0: recompressed})
    assert not diff_datasets(*pair).is_different


def test_changed_values_are_told_by_episode_and_key(pair):
    edit_column(pair[1], "action", {9: [0.5, -0.01, 0.25]})
    edit_images(pair[1], {25: lambda blob: recompressed(blob, change=1)})
    found = diff_datasets(*pair)
    assert found.is_different
    assert [(one.before.number, one.after.number, one.keys) for one in found.changed] == [
        (1, 1, ["action"]),
        (3, 3, ["observation.images.front"]),
    ]
    assert (found.added, found.removed) == ([], [])
    assert numbers(before for before, _ in found.same) == [0, 2, 4]
    assert {one.dimension for one in found.drift} == {"action.dx", "action.dz"}
    without = diff_datasets(*pair, with_images=False)
    assert [one.before.number for one in without.changed] == [1]


def test_another_instruction_is_a_change(tmp_path, cfg, raw):
    convert(cfg, raw, tmp_path / "before")
    with h5py.File(raw / "push.hdf5", "a") as file:
        file["data"].attrs["instruction"] = "press it"
    convert(cfg, raw, tmp_path / "after")
    found = diff_datasets(tmp_path / "before", tmp_path / "after")
    assert [(one.before.number, one.keys) for one in found.changed] == [
        (3, ["task"]),
        (4, ["task"]),
    ]


def test_removed_added_and_renumbered_episodes_are_told_apart(tmp_path, cfg):
    write_raw(tmp_path / "all", LENGTHS)
    write_raw(tmp_path / "fewer", {"pull": [8, 6, 7]})
    convert(cfg, tmp_path / "all", tmp_path / "before")
    convert(cfg, tmp_path / "fewer", tmp_path / "after")
    found = diff_datasets(tmp_path / "before", tmp_path / "after")
    assert (numbers(found.removed), found.added, found.changed) == ([3, 4], [], [])
    back = diff_datasets(tmp_path / "after", tmp_path / "before")
    assert (back.removed, numbers(back.added), back.changed) == ([], [3, 4], [])


def write_states(root, episodes):
    """A dataset without cameras: (state [T, 2], action [T, 2]) per episode, reward 0."""
    schema = Schema(
        fps=10,
        image_size=(0, 0),
        cameras=(),
        state=Vector(("x", "y"), "m"),
        action=Vector(("dx", "dy"), "m"),
        has_success=False,
    )
    write_dataset(
        root,
        schema,
        [
            Episode({}, s, a, "go", f"test:{i}", reward=np.zeros(len(s), np.float32))
            for i, (s, a) in enumerate(episodes)
        ],
    )
    return root


def motion(seed, length=6):
    random = np.random.default_rng(seed)
    return tuple(random.normal(size=(length, 2)).astype(np.float32) for _ in range(2))


def test_an_episode_in_front_renumbers_the_others(tmp_path):
    before = write_states(tmp_path / "before", [motion(0), motion(1), motion(2)])
    after = write_states(tmp_path / "after", [motion(9), motion(0), motion(2)])
    found = diff_datasets(before, after)
    assert (numbers(found.added), numbers(found.removed), found.changed) == ([0], [1], [])
    assert [(a.number, b.number) for a, b in found.same] == [(0, 1), (2, 2)]
    assert found.num_renumbered == 1


def test_a_shortened_episode_is_changed_and_not_replaced(tmp_path):
    state, action = motion(1)
    before = write_states(tmp_path / "before", [motion(0), (state, action)])
    after = write_states(tmp_path / "after", [motion(0), (state[:4], action[:4])])
    (change,) = diff_datasets(before, after).changed
    assert (change.before.length, change.after.length) == (6, 4)
    assert change.keys == ["observation.state", "action", "next.reward"]


def test_episodes_that_share_only_their_reward_are_not_paired(tmp_path):
    before = write_states(tmp_path / "before", [motion(0), motion(1, length=7)])
    after = write_states(tmp_path / "after", [motion(0), motion(5, length=7)])
    found = diff_datasets(before, after)
    assert (found.changed, numbers(found.removed), numbers(found.added)) == ([], [1], [1])


def test_what_many_episodes_share_does_not_pair_them(tmp_path):
    rest = np.zeros((6, 2), np.float32)
    idle = [(motion(seed)[0], rest) for seed in range(3)]
    before = write_states(tmp_path / "before", idle[:2])
    after = write_states(tmp_path / "after", [idle[0], idle[2]])
    found = diff_datasets(before, after)
    assert (found.changed, numbers(found.removed), numbers(found.added)) == ([], [1], [1])


def test_another_order_is_a_difference(tmp_path):
    before = write_states(tmp_path / "before", [motion(0), motion(1)])
    after = write_states(tmp_path / "after", [motion(1), motion(0)])
    found = diff_datasets(before, after)
    assert found.is_different
    assert (found.num_renumbered, found.changed, found.added) == (2, [], [])


def test_doubled_episodes_count_each(tmp_path):
    before = write_states(tmp_path / "before", [motion(0), motion(0)])
    after = write_states(tmp_path / "after", [motion(0), motion(0), motion(0)])
    found = diff_datasets(before, after)
    assert (len(found.same), numbers(found.added), found.removed) == (2, [2], [])


def test_features_and_rate_are_compared(tmp_path, raw):
    convert(make_cfg(), raw, tmp_path / "before")
    convert(make_cfg(fps=5, reward=None), raw, tmp_path / "after")
    found = diff_datasets(tmp_path / "before", tmp_path / "after")
    assert found.properties == {"fps": ("10", "5"), "next.reward": ("float32[1]", "absent")}


def test_versions_of_the_format_are_compared_by_content(tmp_path):
    write_v2(tmp_path / "v20", {0: 4, 1: 5}, version="v2.0", storage="image")
    write_v2(tmp_path / "v21", {0: 4, 1: 5}, version="v2.1", storage="video")
    doubles = [[frame / 100, -0.01] for frame in range(5)]  # float32 in the other
    change_columns(data_path(tmp_path / "v21", 1), action=doubles)
    found = diff_datasets(tmp_path / "v20", tmp_path / "v21", with_images=False)
    assert list(found.properties) == ["observation.images.front"]
    assert len(found.same) == 2


def test_drift_is_measured_in_standard_deviations_of_before():
    moved = Drift("action.dx", mean=(1.0, 1.5), std=(2.0, 2.0), low=(0, 0), high=(1, 1))
    assert (moved.shift, moved.ratio, moved.is_large) == (0.25, 1.0, True)
    still = Drift("action.dx", mean=(1.0, 1.1), std=(2.0, 2.1), low=(0, 0), high=(1, 1))
    assert still.shift == pytest.approx(0.05)
    assert (still.ratio, still.is_large) == (1.05, False)
    wider = Drift("action.dx", mean=(1.0, 1.0), std=(2.0, 1.7), low=(0, 0), high=(1, 1))
    assert wider.is_large
    woken = Drift("action.dx", mean=(1.0, 1.0), std=(0.0, 0.1), low=(0, 0), high=(1, 1))
    assert woken.is_large
    constant = Drift("action.dx", mean=(1.0, 1.0), std=(0.0, 0.0), low=(0, 0), high=(1, 1))
    assert not constant.is_large


def test_features_without_statistics_are_compared_too(tmp_path):
    roots = [write_v2(tmp_path / name, {0: 4, 1: 5}) for name in ("before", "after")]
    for root, changed in zip(roots, (0.0, 1.0), strict=True):
        edit_features(root, depth={"dtype": "float32", "shape": [30, 40], "names": None})
        for number, length in ((0, 4), (1, 5)):
            depth = np.arange(length * 1200, dtype=np.float32).reshape(length, 30, 40)
            depth[-1, -1, -1] += changed * number
            change_columns(data_path(root, number), depth=depth.tolist())
    found = diff_datasets(*roots, with_images=False)
    assert [(one.before.number, one.keys) for one in found.changed] == [(1, ["depth"])]
