"""One bad episode does not stop the others, and nothing is left out unsaid."""

import json

import h5py
import numpy as np
import pytest

from rrf.data.conversion.conversion_record import read_conversion
from rrf.data.conversion.convert import convert
from rrf.data.dataset import parquet
from rrf.data.dataset.opening import open_dataset
from rrf.data.formats.robomimic import write_robomimic
from rrf.data.pages.card import render_card
from rrf.data.transport.publish import publish
from rrf.data.validation.summary import summarise
from rrf.data.validation.validate import validate
from tests.data.conftest import FPS, make_cfg, make_demo
from tests.data.conversion.test_lerobot_writer import content
from tests.data.fixtures_simulators import write_maniskill, write_minari
from tests.data.formats.test_every_format import CASES, cfg_of

NUMBERS = range(8)


@pytest.fixture
def raw(tmp_path):
    """Eight episodes in two files. 1 holds a NaN, 4 lacks its images, 5 has a state too few."""
    demos = [make_demo(number, 6) for number in NUMBERS]
    demos[1]["actions"][3, 2] = np.nan
    del demos[4]["obs"]["front_image"]
    demos[5]["obs"]["eef_pos"] = demos[5]["obs"]["eef_pos"][:, :2]
    for name, part in (("a", demos[:4]), ("b", demos[4:])):
        write_robomimic(tmp_path / f"raw/{name}.hdf5", part, {}, f"do {name}", FPS)
    return tmp_path / "raw"


def starts(root):
    """The z of each episode's state, which is the number it was drawn with."""
    rows = parquet.read_episodes(root)["dataset_from_index"]
    return open_dataset(root, 1).batch(rows.to_numpy()).observation.state[:, 2].tolist()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_all_faults_are_said_at_once_with_what_to_type(raw, tmp_path, num_workers):
    with pytest.raises(ValueError, match="3 of 8 episodes are faulty") as caught:
        convert(make_cfg(), raw, tmp_path / "d", num_workers=num_workers)
    _, *listed, hint = str(caught.value).splitlines()
    assert [line.strip().split(":")[0] for line in listed] == ["1", "4", "5"]
    assert "demo_1: actions at frame 3, dimension 2 is nan" in listed[0]
    assert "demo_0 has no key 'obs/front_image'" in listed[1]
    assert "has 3 dimensions, the config names 4" in listed[2]
    assert hint == (
        "To leave them out, write into the config skip: [1, 4-5], or on_bad_episode: skip"
    )
    assert not (tmp_path / "d").exists()


def test_what_was_converted_is_not_converted_again_once_the_config_says_skip(raw, tmp_path):
    with pytest.raises(ValueError, match="faulty"):
        convert(make_cfg(), raw, tmp_path / "d")
    done = convert(make_cfg(skip=[1, "4-5"]), raw, tmp_path / "d")
    assert (done.episodes, done.reused) == (5, 2)
    assert starts(tmp_path / "d") == [0, 2, 3, 6, 7]


@pytest.mark.parametrize(
    ("changes", "left_out"),
    [
        pytest.param({"skip": [1, "4-5", 7]}, [1, 4, 5, 7], marks=pytest.mark.slow),
        pytest.param({"on_bad_episode": "skip"}, [1, 4, 5], marks=pytest.mark.slow),
        ({"on_bad_episode": "skip", "max_bad_episodes": 2, "skip": [0, 4]}, [0, 1, 4, 5]),
    ],
)
def test_what_is_left_out_stands_in_record_report_and_card(raw, tmp_path, changes, left_out):
    cfg = make_cfg(**changes)
    done = convert(cfg, raw, tmp_path / "d")
    assert starts(tmp_path / "d") == [number for number in NUMBERS if number not in left_out]
    record = read_conversion(tmp_path / "d")
    assert record is not None
    assert [entry["episode"] for entry in record["skipped"]] == left_out
    why = {entry["episode"]: entry["why"] for entry in record["skipped"]}
    assert "actions at frame 3, dimension 2 is nan" in why[1]
    assert str(tmp_path) not in json.dumps(record)
    said = [text for text in done.warnings if "left out" in text]
    assert said
    report = validate("toy", tmp_path / "d", cfg.checks, tmp_path / "reports")
    (source,) = [check for check in report.checks if check.check == "source"]
    assert {str(finding.value)[:30] for finding in source.findings} == {t[:30] for t in said}
    publish(tmp_path / "d", tmp_path / "reports", tmp_path / "toy")
    card = (tmp_path / "toy/README.md").read_text()
    for text in said:
        assert text[:40] in card


def test_more_than_the_limit_stop_the_conversion(raw, tmp_path):
    cfg = make_cfg(on_bad_episode="skip", max_bad_episodes=2)
    with pytest.raises(ValueError, match="or a larger max_bad_episodes than 2"):
        convert(cfg, raw, tmp_path / "d")


def test_a_single_fault_is_said_as_before_with_its_number(raw, tmp_path):
    with pytest.raises(ValueError, match=r"actions at frame 3.* \(episode 1, the only"):
        convert(make_cfg(skip=["4-5"]), raw, tmp_path / "d")


def test_a_wrong_config_is_no_fault_of_the_episodes(raw, tmp_path):
    cfg = make_cfg(fps=7)
    with pytest.raises(ValueError, match=r"demo_0 was recorded at 10 frames/s") as caught:
        convert(cfg, raw, tmp_path / "d")
    assert "faulty" not in str(caught.value)


def test_to_skip_an_episode_that_there_is_not_is_refused(raw, tmp_path):
    with pytest.raises(ValueError, match="skip names episode 8, but there are only 0 to 7"):
        convert(make_cfg(skip=[8]), raw, tmp_path / "d")
    with pytest.raises(ValueError, match="'7-3' is neither an episode"):
        make_cfg(skip=["7-3"])


def test_without_faults_the_dataset_is_the_same_whatever_the_config_says_of_them(raw, tmp_path):
    convert(make_cfg(skip=[1, 4, 5]), raw, tmp_path / "d")
    convert(make_cfg(skip=[1, 4, 5], on_bad_episode="skip"), raw, tmp_path / "e")
    assert content(tmp_path / "d") == content(tmp_path / "e")


@pytest.mark.parametrize(
    ("name", "write", "episode"),
    [("maniskill", write_maniskill, "traj_1"), ("minari", write_minari, "episode_1")],
)
def test_an_episode_that_cannot_be_read_leaves_the_others_of_its_file_alone(
    tmp_path, name, write, episode
):
    write(tmp_path / "raw")
    path = next(path for path in (tmp_path / "raw").rglob("*.h*5"))
    cfg = cfg_of(CASES[name]).replace(on_bad_episode="skip")
    total = sum(part.num_episodes for part in cfg.reader(tmp_path / "raw").recordings())
    with h5py.File(path, "a") as file:
        state = f"{episode}/{CASES[name].state[0]}"
        values = np.asarray(file[state])[:1]
        del file[state]
        file[state] = values
    done = convert(cfg, tmp_path / "raw", tmp_path / "d")
    assert done.episodes == total - 1
    assert "are faulty and left out: " in render_card(summarise(tmp_path / "d"), None)
