"""Validation reports every trap of the real recordings beside the project (see their README)."""

import json

import pytest

from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.convert import convert
from rrf.data.conversion.dataset_cfg import SourceCfg
from rrf.data.validation.validate import validate
from tests.data.formats.test_real_recordings import BRIDGE, BRIDGE_CFG, G1, G1_CFG, GR1, GR1_CFG


def validated(tmp_path, cfg, path, **changes):
    """Check -> findings of what is not right, and whether the dataset passed."""
    if not path.is_dir():
        pytest.skip(f"{path} is not here")
    cfg = cfg.replace(**changes)
    convert(cfg, path, tmp_path / "d", num_workers=1)
    report = validate(cfg.name, tmp_path / "d", ChecksCfg(), tmp_path / "report")
    wrong = {}
    for check in report.checks:
        if check.status != "pass":
            wrong.setdefault(check.check, []).extend(map(str, check.findings))
    return wrong, report.passed


def test_bridge_holds_its_episodes_twice_and_a_black_camera(tmp_path):
    cameras = {"front": "observation/image_0", "unused": "observation/image_3"}
    source = SourceCfg(format="rlds", path="bridge")
    wrong, passed = validated(tmp_path, BRIDGE_CFG, BRIDGE, source=source, cameras=cameras)
    assert not passed
    info = json.loads((tmp_path / "d/meta/info.json").read_text())
    assert info["splits"] == {"train": "0:25", "val": "25:50"}
    leaked = [text for text in wrong["leakage"] if "splits.val: same content as training" in text]
    assert len(leaked) == 20  # of 25, the first ones are listed
    assert "episode 25, episode: same content as episode 6" in wrong["duplicate_episodes"]
    assert "episode 0, frame 0, observation.images.unused.std: 0.0" in wrong["blank_image"]
    assert not any("front" in text for text in wrong["blank_image"])
    train = "bridge/bridge_dataset-train.tfrecord-00000-of-00001"
    flag = "is false for episodes whose"
    assert {
        "recordings: bridge: 25 of the 25 episodes of split 'val' are in split 'train' too",
        f"recordings: {train}: episode_metadata/episode_id is the same for several episodes",
        f"recordings: {train}: episode_metadata/has_image_0 {flag} observation/image_0 is there",
    } <= set(wrong["source"])


def test_bridge_with_one_split_and_two_cameras_still_tells_of_the_others(tmp_path):
    wrong, passed = validated(tmp_path, BRIDGE_CFG, BRIDGE)
    assert passed, wrong
    found = "\n".join(wrong["source"])
    for expected in (
        "25 of the 25 episodes of split 'val' are in split 'train' too",
        "episode_metadata/episode_id is the same for several episodes",
        "episode_metadata/has_image_0 is false for episodes whose observation/image_0 is there",
        "observation/image_3, which is not read, shows nothing but one colour",
    ):
        assert expected in found, found
    assert "image_2" not in found  # not read either, but a camera


@pytest.mark.slow
def test_gr1_claims_what_is_not_there(tmp_path):
    source = SourceCfg(format="lerobot", path="gr1")
    wrong, passed = validated(tmp_path, GR1_CFG, GR1, source=source)
    assert passed, wrong
    found = "\n".join(wrong["source"])
    for expected in (
        "'observation.images.egoview' is declared but not on disk",
        "gr1/meta/info.json: total_chunks is 0, on disk there are 1",
        "gr1/meta/info.json: total_videos is 2, on disk there are 5",
        "gr1/meta/info.json: split 'train' is '0:100', on disk there are 5 episodes",
        "leads to files that do not exist",
        "5 episodes list several tasks, as episode 0 does: 'pick the pear from the counter and "
        "place it in the plate', 'valid'; one is kept",
        "has up to 250 frames from one keyframe to the next",
    ):
        assert expected in found, found
    assert wrong["constant_dimensions"]  # its legs and waist stand still
    assert "keyframes" not in wrong  # encoded again


@pytest.mark.slow
def test_g1_is_one_of_a_hundred_episodes(tmp_path):
    source = SourceCfg(format="lerobot", path="g1")
    wrong, passed = validated(tmp_path, G1_CFG, G1, source=source)
    assert passed, wrong
    found = "\n".join(wrong["source"])
    for expected in (
        "99 of 100 data files are not on disk",
        "g1/meta/info.json: total_episodes is 100, on disk there are 1",
        "g1/meta/info.json: split 'train' is '0:100', on disk there are 1 episodes",
        "the 1 episodes on disk have the numbers 29 to 29; they are numbered anew from 0",
    ):
        assert expected in found, found
