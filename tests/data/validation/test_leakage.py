"""What is held out for measuring is not among what was learned from: episodes and frames."""

import numpy as np
import pytest

from rrf.data.conversion.convert import convert
from rrf.data.dataset.held_out import held_out, is_held_out, split_range
from rrf.data.formats.robomimic import write_robomimic
from rrf.data.schema import ACTION, STATE
from rrf.data.validation.integrity import divisions, leakage_findings
from rrf.data.validation.tables import episode_digests, frame_digests, read_tables
from tests.data.conftest import FPS, make_cfg, make_demo, writable_tables, write_raw


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Six episodes of ten frames, all different."""
    folder = tmp_path_factory.mktemp("leakage")
    raw = write_raw(folder / "raw", {"pull": [10] * 6})
    convert(make_cfg(), raw, folder / "d")
    return folder / "d"


@pytest.fixture
def tables(converted):
    return writable_tables(converted)


def copy_frames(tables, source, target, frames):
    """Some frames of one episode get the content of the same frames of another."""
    for frame in frames:
        row, twin = target * 10 + frame, source * 10 + frame
        for values in tables.vectors.values():
            values[row] = values[twin]
        for scan in tables.scans.values():
            scan.digest[row] = scan.digest[twin]


def leaks(tables, splits=None, fraction=0.0, most=0.2):
    tables.info["splits"] = splits or {"train": "0:6"}
    found = leakage_findings(tables, episode_digests(tables), fraction, most)
    return [str(finding) for finding in found]


def test_the_held_out_rule_takes_every_nth_episode():
    assert [episode for episode in range(12) if is_held_out(episode, 0.25)] == [3, 7, 11]
    assert not any(is_held_out(episode, 0) for episode in range(12))


def test_of_few_episodes_the_last_one_is_held_out():
    assert held_out(24, 0.08) == [11, 23]
    assert held_out(10, 0.08) == [9]
    assert held_out(2, 0.25) == [1]
    assert held_out(1, 0.25) == held_out(10, 0) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:6", range(6)),
        ("2:2", range(2, 2)),
        ("0:7", None),
        ("4:2", None),
        ("train", None),
        ("0:", None),
    ],
)
def test_a_split_is_a_range_within_the_dataset(text, expected):
    assert split_range(text, 6) == expected


def test_every_split_is_compared_with_train_and_the_held_out_rule_with_the_rest():
    splits = {"test": "5:6", "train": "0:4", "val": "4:5", "lost": "9:12"}
    found = {one.name: (one.training, one.held_out) for one in divisions(splits, 6, 0.5)}
    assert found == {
        "splits.test": ({0, 1, 2, 3}, {5}),
        "splits.val": ({0, 1, 2, 3}, {4}),
        "held_out_fraction": ({0, 2, 4}, {1, 3, 5}),
    }
    (only,) = divisions({"train": "0:6"}, 6, 0.08)
    assert only.held_out == {5}


def test_different_episodes_do_not_leak(tables):
    assert leaks(tables, {"train": "0:3", "val": "3:6"}, fraction=0.5) == []


def test_a_copy_of_a_training_episode_is_found_in_another_split(tables):
    copy_frames(tables, 1, 4, range(10))
    assert leaks(tables, {"train": "0:3", "val": "3:6"}) == [
        "episode 4, splits.val: same content as training episode 1"
    ]
    assert leaks(tables, {"train": "0:3", "val": "3:4"}) == []


def test_a_copy_is_found_among_those_that_training_holds_out(tables):
    copy_frames(tables, 0, 3, range(10))
    assert leaks(tables, fraction=0.25) == [
        "episode 3, held_out_fraction: same content as training episode 0"
    ]


def play_back(tables, source, target):
    """An episode gets the actions of another one and keeps its own states and images."""
    rows = tables.vectors[ACTION]
    rows[target * 10 : target * 10 + 10] = rows[source * 10 : source * 10 + 10]


def test_the_actions_of_a_training_episode_are_found_though_its_poses_differ(tables):
    play_back(tables, 1, 4)
    assert leaks(tables, {"train": "0:3", "val": "3:6"}) == [
        "episode 4, splits.val: same actions as training episode 1"
    ]
    tables.vectors[ACTION][10:20] = tables.vectors[ACTION][40:50] = 0.5
    assert leaks(tables, {"train": "0:3", "val": "3:6"}) == []  # anybody may stand still


def test_the_share_of_frames_decides_over_episodes_that_differ(tables):
    copy_frames(tables, 1, 4, [5, 6, 7])
    assert leaks(tables, {"train": "0:3", "val": "3:6"}) == [
        "episode 4, frame 5, splits.val: 30% of its frames are in training episodes too, "
        "this one in episode 1, frame 5"
    ]
    assert leaks(tables, {"train": "0:3", "val": "3:6"}, most=0.3) == []


def test_splits_that_overlap_leak_whole_episodes(tables):
    assert leaks(tables, {"train": "0:4", "val": "3:5"}) == [
        "episode 3, splits.val: is among the training episodes itself"
    ]


def test_an_excerpt_is_found_though_its_video_was_compressed_anew(tmp_path):
    whole = make_demo(0, 20)
    part = {
        key: value[5:] if isinstance(value, np.ndarray) else value for key, value in whole.items()
    }
    part["obs"] = {key: value[5:] for key, value in whole["obs"].items()}
    write_robomimic(tmp_path / "raw/pull.hdf5", [whole, part], {"env_name": "x"}, "pull", FPS)
    convert(make_cfg(storage="video"), tmp_path / "raw", tmp_path / "d")
    tables = read_tables(tmp_path / "d")
    assert tables.scans["front"].digest[5:20] != tables.scans["front"].digest[20:]
    assert leaks(tables, {"train": "0:1", "val": "1:2"}) == [
        "episode 1, frame 0, splits.val: 100% of its frames are in training episodes too, "
        "this one in episode 0, frame 5"
    ]


def test_frames_are_told_apart_by_state_action_and_pixels(tables):
    before = frame_digests(tables)
    assert len(set(before.tolist())) == 60
    for key in (STATE, ACTION):
        value = tables.vectors[key][7, 0]
        tables.vectors[key][7, 0] += 1
        changed = frame_digests(tables)
        assert np.flatnonzero(changed != before).tolist() == [7]
        tables.vectors[key][7, 0] = value
    tables.scans["front"].digest[9] = b"other"
    assert np.flatnonzero(frame_digests(tables) != before).tolist() == [9]
