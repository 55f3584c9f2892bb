"""Flat files without `timeouts`: where episodes end, and whether one was cut in the middle."""

import json

import h5py
import numpy as np
import pytest

from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.conversion_record import read_conversion
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import (
    InstructionCfg,
    MergeCfg,
    MergePartCfg,
    SourceCfg,
    VectorCfg,
)
from rrf.data.conversion.merge import merge
from rrf.data.formats import d4rl
from rrf.data.formats.d4rl import D4RLSource
from rrf.data.validation.validate import HTML_NAME, validate
from tests.data.conftest import make_cfg
from tests.data.fixtures_simulators import edit, read_all, replace, write_d4rl

LENGTHS = [20, 20, 13, 20, 20]  # the first and the third end in a terminal state


def flat_cfg(**options):
    return make_cfg(
        source=SourceCfg(format="d4rl", path="recordings/flat", options=options),
        image_size=None,
        cameras={},
        state=VectorCfg(keys=["observations"], names=["x", "y"], unit="m"),
        action=VectorCfg(keys=["actions"], names=["dx", "dy"], unit="m"),
        reward="rewards",
        success=None,
        instruction=InstructionCfg(text="run"),
    )


@pytest.fixture
def flat(tmp_path):
    path = write_d4rl(tmp_path / "flat.hdf5", LENGTHS, timeouts=False, next_observations=True)

    def end_the_third(file):
        file["terminals"][sum(LENGTHS[:3]) - 1] = True

    edit(path, end_the_third)
    return path


def lengths_of(path, **options):
    source = D4RLSource(path, options)
    return [len(episode) for episode in read_all(source, ["actions"])], source


def test_episodes_end_where_the_next_observation_is_not_that_of_the_next_row(flat):
    lengths, source = lengths_of(flat)
    assert lengths == LENGTHS
    assert source.recordings()[0].num_episodes == 5
    (warning,) = source.warnings
    assert warning == (
        f"{flat} has no timeouts. Its next_observations show 5 episodes, of 20, 20, 13, 20 and 20 "
        "steps. If that is wrong, set the option max_episode_steps"
    )
    episodes = read_all(source, ["observations"])
    assert [episode.arrays["observations"][0, 0] for episode in episodes] == [0, 100, 200, 300, 400]
    assert [episode.continues for episode in episodes] == [False] * 5


def test_many_lengths_are_told_in_short(tmp_path):
    path = write_d4rl(tmp_path / "a.hdf5", [30] * 15 + [8, 9], False, next_observations=True)
    _, source = lengths_of(path)
    assert "show 17 episodes, of 8 to 30 steps (15 of them of 30). If" in source.warnings[0]


def test_rounding_and_blocks_make_no_difference(flat, monkeypatch):
    def round_off(file):
        replace(file, "next_observations", file["next_observations"][()].astype(np.float32))
        replace(file, "observations", file["observations"][()] + 1e-9)

    edit(flat, round_off)
    monkeypatch.setattr(d4rl, "_BLOCK_BYTES", 100)  # six rows
    assert lengths_of(flat)[0] == LENGTHS


def test_the_last_episode_is_finished_if_it_is_as_long_as_the_longest(flat):
    assert lengths_of(flat, keep_unfinished=False)[0] == LENGTHS

    def shorten(file):
        for key in ("observations", "actions", "rewards", "terminals", "next_observations"):
            replace(file, key, file[key][:-5])

    edit(flat, shorten)
    assert lengths_of(flat)[0] == [20, 20, 13, 20, 15]
    assert lengths_of(flat, keep_unfinished=False)[0] == [20, 20, 13, 20]


def test_the_option_cuts_otherwise_and_the_cuts_are_compared(flat):
    lengths, source = lengths_of(flat, max_episode_steps=10)
    assert lengths == [10, 10, 10, 10, 10, 3, 10, 10, 10, 10]
    (warning,) = source.warnings
    assert ": 5 of 10 episodes end although their last next_observations is the obs" in warning
    assert warning.endswith("cut in the middle. The first is episode_0, rows 0 to 9")


def test_time_outs_of_the_file_decide_and_are_compared_too(tmp_path):
    path = write_d4rl(tmp_path / "a.hdf5", LENGTHS, next_observations=True)
    lengths, source = lengths_of(path)
    assert (lengths, source.warnings) == (LENGTHS, [])
    edit(path, lambda f: f["timeouts"].write_direct(np.arange(93) % 31 == 30))
    assert "2 of 4 episodes end although" in lengths_of(path)[1].warnings[0]
    edit(path, lambda f: f.pop("next_observations"))
    assert [episode.continues for episode in read_all(D4RLSource(path, {}), ["actions"])] == [
        None
    ] * 4


def test_what_tells_nothing_is_not_believed(flat):
    def store_the_reset(file):
        following = file["observations"][1:]
        replace(file, "next_observations", np.concatenate([following, following[-1:]]))

    edit(flat, store_the_reset)
    with pytest.raises(
        ValueError, match=r"no timeouts, and its next_observations do not show where"
    ):
        lengths_of(flat)
    lengths, source = lengths_of(flat, max_episode_steps=10)
    assert (len(lengths), source.warnings) == (10, [])
    order = np.random.default_rng(0).permutation(93)

    def shuffle(file):
        for key in ("observations", "next_observations", "terminals"):
            replace(file, key, file[key][()][order])

    edit(flat, shuffle)
    with pytest.raises(ValueError, match="or rows are not in the order of time"):
        lengths_of(flat)


def test_next_observations_of_another_shape_are_refused(flat):
    edit(flat, lambda f: replace(f, "next_observations", np.zeros((93, 3))))
    with pytest.raises(ValueError, match=r"next_observations has shape \[93, 3\], observations \["):
        lengths_of(flat)


def test_conversion_shows_and_records_what_was_inferred(tmp_path, flat):
    folder = tmp_path / "several"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.hdf5").write_bytes(flat.read_bytes())
    done = convert(flat_cfg(), folder, tmp_path / "d")
    assert done.episodes == 10
    expected = [
        f"recordings/flat/{name}.hdf5 has no timeouts. Its next_observations show 5 episodes, of "
        "20, 20, 13, 20 and 20 steps. If that is wrong, set the option max_episode_steps"
        for name in ("a", "b")
    ]
    told = [text.replace(str(folder), "recordings/flat") for text in done.warnings]
    assert sorted(told) == expected
    record = read_conversion(tmp_path / "d")
    assert record is not None
    assert record["warnings"] == expected
    assert record["cut_episodes"] == []


def test_validation_finds_episodes_that_were_cut_in_the_middle(tmp_path, flat):
    def status():
        convert(flat_cfg(max_episode_steps=10), flat, tmp_path / "d")
        report = validate("toy", tmp_path / "d", ChecksCfg(), tmp_path / "report")
        return [check for check in report.checks if check.check == "cut_episodes"], report.passed

    (check,), passed = status()
    assert (check.status, check.num_bad, passed) == ("fail", 5, False)
    assert [finding.episode for finding in check.findings] == [0, 2, 4, 6, 8]
    assert str(check.findings[1]) == (
        "episode 2, end: its last step leads to the first observation of the next episode"
    )
    page = (tmp_path / "report" / HTML_NAME).read_text()
    assert "no episode is cut in the middle" in page
    edit(flat, lambda f: f.pop("next_observations"))
    checks, passed = status()
    assert (checks, passed) == ([], True)  # nothing tells, so nothing is claimed


def test_a_merged_dataset_knows_which_episodes_are_cut(tmp_path, flat):
    convert(flat_cfg(), flat, tmp_path / "whole")
    convert(flat_cfg(max_episode_steps=10), flat, tmp_path / "cut")
    parts = [MergePartCfg(dataset=name) for name in ("whole", "cut")]
    cfg = MergeCfg(name="both", merge=parts, licence="MIT", provenance="both")
    merge(cfg, tmp_path, tmp_path / "both")
    record = json.loads((tmp_path / "both/meta/conversion.json").read_text())
    assert record["cut_episodes"] == [5, 7, 9, 11, 13]


def test_long_files_are_cut_in_a_moment(tmp_path):
    """Real ones hold a million rows."""
    path, num, length = tmp_path / "long.hdf5", 400_000, 2000
    with h5py.File(path, "w") as file:
        seen = np.arange(num + 1, dtype=np.float32)[:, None] * np.ones(3, np.float32)
        ends = np.arange(1, num // length + 1) * length - 1
        led_to = seen[1:].copy()
        led_to[ends] += 0.5
        file["observations"], file["next_observations"] = seen[:-1], led_to
        file["actions"] = np.zeros((num, 1), np.float32)
        file["rewards"], file["terminals"] = np.zeros(num, np.float32), np.zeros(num, bool)
    (recording,) = D4RLSource(path, {}).recordings()
    assert recording.num_episodes == 200
