"""OpenVLA-OFT with tokens: against RLinf and SimpleVLA-RL, and what their checkpoints may say."""

import json
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rrf.data.schema import ACTION, STATE
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.prismatic.configs import PrismaticCfg
from rrf.networks.vlm.prismatic.vision import FusedVision
from rrf.policies.vla.heads.oft_configs import OFTRegressionHeadCfg, OFTTokenHeadCfg
from rrf.policies.vla.published import openvla
from rrf.policies.vla.published.formats import FORMATS, format_at
from rrf.policies.vla.published.openvla_rl import normalization
from tests.closeness import assert_close
from tests.golden_files import golden
from tests.policies.vla.heads.test_openvla_heads import OFT_TOKENS, observation, policy_cfg
from tests.policies.vla.oft_tokens_golden import (
    FILE,
    PROJECTS,
    decoding_errors,
    imported,
    step_errors,
    tiny,
    write_folder,
)

CLOSE = 1e-5
LAYOUT = FORMATS["openvla"]


@pytest.mark.parametrize("project", PROJECTS)
def test_tokens_actions_and_log_probabilities_are_those_of_the_project(project, tmp_path):
    folder = write_folder(project, tmp_path / project)
    errors = decoding_errors(project, imported(project, folder))
    assert errors.pop("wrong_tokens") == 0
    assert max(errors.values()) < CLOSE, errors


def test_a_grpo_step_is_that_of_rlinf(tmp_path):
    errors = step_errors(imported("rlinf", write_folder("rlinf", tmp_path / "rlinf")))
    assert max(errors.values()) < CLOSE, errors


@pytest.mark.parametrize("project", PROJECTS)
def test_a_checkpoint_of_the_project_is_known_by_its_config(project, tmp_path):
    folder = write_folder(project, tmp_path / project)
    assert format_at(folder).preset(folder) == "openvla-oft-tokens-sft"
    cfg = LAYOUT.fitted(folder, tiny(project).replace(chunk_length=5), None)
    expected = {  # chunk length, reads the state, tokens after the slots, filter of images
        "rlinf": (2, False, [], "bicubic"),
        "official": (8, True, [2], "lanczos"),
        "simplevla": (5, False, [2], "lanczos"),
    }
    assert isinstance(cfg.head, OFTTokenHeadCfg)
    assert isinstance(cfg.backbone, PrismaticCfg)
    found = (
        cfg.chunk_length, cfg.head.uses_state, cfg.backbone.slot_suffix_ids,
        cfg.backbone.image.filter,
    )  # fmt: skip
    assert found == expected[project]
    assert (cfg.state_dim, cfg.action_dim) == (4, 7)


def test_images_are_resized_as_rlinf_does(tmp_path):
    folder = write_folder("rlinf", tmp_path / "rlinf")
    arrays = golden(FILE, "rlinf")[1]
    cfg = LAYOUT.fitted(folder, tiny("rlinf"), None)
    rule = ImageRuleCfg(size=(42, 42), fit="stretch", filter="bicubic")
    assert isinstance(cfg.backbone, PrismaticCfg)
    assert cfg.backbone.image == rule
    pixels = FusedVision(cfg.backbone).pixels(arrays["big_images"])
    assert_close(pixels, arrays["big_pixels"])


def changed(folder, **settings):
    """The folder with these settings; those that are None are left out."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | settings
    file.write_text(json.dumps({name: v for name, v in config.items() if v is not None}))
    return folder


def test_what_no_file_says_must_be_said(tmp_path):
    folder = write_folder("simplevla", tmp_path / "sft")
    changed(folder, use_proprio=None, proprio_dim=None)
    assert LAYOUT.preset(folder) == "openvla-sft"
    stats = json.loads((folder / "config.json").read_text())["norm_stats"]
    (folder / "dataset_statistics.json").write_text(json.dumps(stats))
    with pytest.raises(ValueError, match=r"one action at a time .* --preset openvla-oft-tokens-sf"):
        LAYOUT.preset(folder)
    (folder / "modeling_prismatic.py").write_text("from .constants import NUM_ACTIONS_CHUNK")
    assert LAYOUT.preset(folder) == "openvla-oft-tokens-sft"
    assert LAYOUT.preset(changed(folder, num_action_chunks=1)) == "openvla-sft"
    torch.save({}, folder / "action_head--1_checkpoint.pt")
    assert LAYOUT.preset(folder) == "openvla-oft-sft"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"implement_version": "next"}, "implement_version next, which cannot be had: known are r"),
        ({"action_offset": 1}, "the setting action_offset, which is not known here"),
        ({"num_images_in_input": 2}, "num_images_in_input 2, but the number of cameras is 1"),
        ({"action_dim": 14}, "action_dim 14, but action_dim is 7"),
        ({"vocab_size": 32001}, r"vocab_size 32001, but .*num_reserved_tokens is 32000"),
        ({"hidden_size": 41}, r"hidden_size 41, but backbone.language.width is 40"),
        ({"unnorm_key": "other"}, "has no statistics of 'other', known: setx"),
        ({"n_action_bins": 128}, "n_action_bins 128, but head.num_bins is 256"),
    ],
)
def test_a_setting_that_cannot_be_followed_is_refused_by_name(settings, message, tmp_path):
    folder = changed(write_folder("rlinf", tmp_path / "rlinf"), **settings)
    with pytest.raises(ValueError, match=message):
        imported("rlinf", folder)


def test_the_state_of_a_policy_that_reads_it_must_have_its_size(tmp_path):
    folder = changed(write_folder("official", tmp_path / "official"), proprio_dim=5)
    with pytest.raises(ValueError, match="proprio_dim 5, but state_dim is 4"):
        imported("official", folder)


def test_images_are_not_cut_where_the_original_does_not_cut(tmp_path):
    folder = changed(write_folder("official", tmp_path / "official"), center_crop=False)
    assert LAYOUT.fitted(folder, tiny("official"), None).backbone.image.keeps == 1


def test_statistics_are_those_that_rlinf_acts_by(tmp_path):
    folder = write_folder("rlinf", tmp_path / "rlinf")
    stats = json.loads((folder / "config.json").read_text())["norm_stats"]["setx"]
    other = json.loads(json.dumps(stats))
    other["action"]["q01"] = [-9.0] * 7
    changed(folder, norm_stats={"suite_no_noops": stats, "other": other}, unnorm_key="suite")
    found = LAYOUT.norm_stats(folder, tiny("rlinf"), None)
    assert found[ACTION]["q01"] == stats["action"]["q01"]
    assert LAYOUT.norm_stats(folder, tiny("rlinf"), "other")[ACTION]["q01"] == [-9.0] * 7


def test_the_critic_of_training_is_left_out_and_all_else_is_strict(tmp_path):
    folder = write_folder("rlinf", tmp_path / "rlinf")
    file = folder / "model.safetensors"
    tensors = load_file(file) | {"value_head.mlp.0.weight": torch.zeros(8, 40)}
    save_file(tensors, file)
    imported("rlinf", folder)
    save_file(tensors | {"action_head.weight": torch.zeros(1)}, file)
    with pytest.raises(ValueError, match=r"action_head.weight is unexpected"):
        imported("rlinf", folder)


@pytest.mark.parametrize("suffix", [[], [2]], ids=["rlinf", "official"])
def test_a_written_policy_is_known_again_and_acts_as_before(suffix, tmp_path):
    torch.manual_seed(0)
    stats = {
        ACTION: {"q01": [-1.0, 0.0, -1.0], "q99": [3.0, 0.5, 1.0]},
        STATE: {"q01": [-1.0] * 4, "q99": [1.0] * 4},
    }
    cfg = policy_cfg(OFT_TOKENS, slot_suffix_ids=suffix)
    policy = cfg.build(stats)
    with pytest.warns(UserWarning, match="trained with filter bilinear"):
        LAYOUT.write(policy, stats, tmp_path, "lab")
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["implement_version"] == ("official" if suffix else "rlinf")
    assert (config["num_action_chunks"], config["use_proprio"]) == (2, True)
    assert LAYOUT.preset(tmp_path) == "openvla-oft-tokens-sft"
    other = cfg.replace(chunk_length=1, backbone=cfg.backbone.replace(slot_suffix_ids=[7]))
    again = openvla.read(tmp_path, "lab", LAYOUT.fitted(tmp_path, other, None))
    found, expected = (p.sample(observation(), greedy=True).actions for p in (again, policy))
    assert np.array_equal(found, expected)


def test_an_export_refuses_other_ends_of_the_slots(tmp_path):
    policy = policy_cfg(OFT_TOKENS, slot_suffix_ids=[7]).build(
        {key: {"q01": [-1.0] * n, "q99": [1.0] * n} for key, n in ((STATE, 4), (ACTION, 3))}
    )
    with pytest.raises(ValueError, match=r"slot_suffix_ids is \[7\], but OpenVLA-OFT has \[2\]"):
        openvla.write(policy, tmp_path, "lab", {ACTION: {}, STATE: {}})


def test_two_arms_are_normalised_by_the_whole_range_as_oft_does():
    arms = policy_cfg(OFT_TOKENS).replace(action_dim=14)
    assert normalization(arms) == "min_max"
    assert normalization(arms.replace(head=OFTRegressionHeadCfg())) == "min_max"
    assert normalization(arms.replace(action_dim=7)) == "quantile"


def test_an_export_says_how_others_see_images(tmp_path):
    stats = {key: {"q01": [-1.0] * n, "q99": [1.0] * n} for key, n in ((STATE, 4), (ACTION, 3))}
    as_rlinf = ImageRuleCfg(size=(16, 16), fit="stretch", filter="bicubic")
    rules = {"slot_suffix_ids": [], "instructions": "lower"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = policy_cfg(OFT_TOKENS, image=as_rlinf, **rules).build(stats)
        openvla.write(policy, tmp_path / "alike", "lab", stats)
    policy = policy_cfg(OFT_TOKENS, **rules).build(stats)
    with pytest.warns(UserWarning, match=r"with bicubic, keep all of .* trained with filter bilin"):
        openvla.write(policy, tmp_path / "other", "lab", stats)
