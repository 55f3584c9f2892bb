"""Checkpoints: written whole, loaded strictly, refused when tampered with."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rrf import atomic
from rrf.lineage import Lineage
from rrf.run_directory import TrainingResult
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.supervised.frames import open_split
from rrf.runners.supervised.runner import SupervisedRunner
from tests.runners.supervised.conftest import tiny_run_cfg


@pytest.fixture(scope="module")
def runner(dataset, tmp_path_factory):
    cfg = tiny_run_cfg(dataset)
    split = open_split(dataset, 2, None, cfg.validation_fraction)
    runner = SupervisedRunner(
        cfg, split, tmp_path_factory.mktemp("run"), Lineage(source_digest="0123")
    )
    runner.run()
    return runner


@pytest.fixture
def copy(runner, tmp_path):
    """A checkpoint that a test may damage."""
    return checkpoint.export(checkpoint.latest(runner.run_dir), tmp_path / "copy")


def test_a_checkpoint_holds_the_files_users_are_told_of(runner):
    path = checkpoint.latest(runner.run_dir)
    files = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
    assert path.name == "global_step_20"
    assert files == [
        "config.yaml",
        "manifest.json",
        "model.safetensors",
        "norm_stats.json",
        "trainer_state/optimizer.safetensors",
        "trainer_state/state.json",
    ]
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["step"], manifest["lineage"]) == (20, {"source_digest": "0123"})


def test_the_averaged_weights_are_the_deployed_ones_and_the_trained_ones_are_kept(runner):
    path = checkpoint.latest(runner.run_dir)
    deployed = load_file(path / "model.safetensors")["head.output.weight"]
    trained = load_file(path / "trainer_state" / "optimizer.safetensors")[
        "weights/head.output.weight"
    ]
    assert torch.equal(deployed, runner.ema.module.head.output.weight)
    assert torch.equal(trained, runner.policy.head.output.weight)
    assert not torch.equal(deployed, trained)


def test_a_loaded_policy_acts_exactly_as_the_one_that_was_saved(runner):
    policy = checkpoint.load_policy(checkpoint.latest(runner.run_dir))
    observation = runner.split.validation.batch(np.arange(4)).observation
    expected = runner.deployed.sample(observation, greedy=True).actions
    assert np.array_equal(policy.sample(observation, greedy=True).actions, expected)
    assert not policy.training


def test_what_lies_beside_the_checkpoints_is_none(tmp_path):
    for name in ("global_step_9", "global_step_10", "global_step_10.bak", "global_step_"):
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoint.steps(tmp_path).values()] == [
        *("global_step_9", "global_step_10")
    ]


def test_a_config_that_is_no_mapping_is_named(copy):
    (copy / "config.yaml").write_text("[]")
    atomic.write_manifest(copy)
    with pytest.raises(ValueError, match=r"config\.yaml must hold a mapping at top level, found l"):
        checkpoint.load_policy(copy)


def test_an_export_lacks_the_trainer_state_and_has_the_same_digest(runner, copy):
    assert sorted(p.name for p in copy.iterdir()) == [
        "config.yaml",
        "manifest.json",
        "model.safetensors",
        "norm_stats.json",
    ]
    source = checkpoint.latest(runner.run_dir)
    assert deployable_digest(copy) == deployable_digest(source)
    assert checkpoint.load_policy(copy).chunk_length == 2


def test_an_export_cannot_be_resumed_and_says_how_to_use_it(copy):
    with pytest.raises(ValueError, match=r"without trainer_state/, .* weights with init_from="):
        checkpoint.load_trainer_state(copy)


def test_a_changed_byte_in_the_weights_is_refused(copy):
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model.safetensors was changed after it was written"):
        checkpoint.load_policy(copy)


def test_an_added_file_is_refused(copy):
    (copy / "code.py").write_text("print()")
    with pytest.raises(ValueError, match=r"code.py is not listed"):
        checkpoint.load_policy(copy)


def test_weights_of_another_architecture_are_refused_with_the_differences(copy):
    weights = load_file(copy / "model.safetensors")
    weights["head.output.weight"] = torch.zeros(4, 7)
    weights["extra"] = weights.pop("state_encoder.bias")
    save_file(weights, copy / "model.safetensors")
    atomic.write_manifest(copy)
    with pytest.raises(
        ValueError,
        match=r"state_encoder.bias is not in the checkpoint; extra is only in the checkpoint; "
        r"head.output.weight is \[4, 7\], expected \[4, 32\]",
    ):
        checkpoint.load_policy(copy)


def test_a_config_outside_the_trusted_packages_is_refused(copy):
    text = (copy / "config.yaml").read_text()
    changed = text.replace("rrf.policies.vla.configs:CompactVLACfg", "os:system")
    (copy / "config.yaml").write_text(changed)
    atomic.write_manifest(copy)
    with pytest.raises(ValueError, match=r"'os:system' lies outside the trusted packages"):
        checkpoint.load_policy(copy)


def test_weights_that_are_no_safetensors_file_are_refused(copy):
    (copy / "model.safetensors").write_bytes(b"\x80\x04pickle")
    atomic.write_manifest(copy)
    with pytest.raises(ValueError, match=r"is not a safetensors file"):
        checkpoint.load_policy(copy)


def test_a_run_directory_stands_for_its_newest_checkpoint_and_nothing_else_does(runner, tmp_path):
    assert checkpoint.find(runner.run_dir).name == "global_step_20"
    with pytest.raises(ValueError, match=r"neither a checkpoint"):
        checkpoint.find(tmp_path)


def test_a_finished_run_stands_for_the_checkpoint_that_it_chose(runner, tmp_path):
    for step in (1, 2, 3):
        shutil.copytree(runner.run_dir / "global_step_20", tmp_path / f"global_step_{step}")
    assert checkpoint.find(tmp_path).name == "global_step_3"
    moved = "/elsewhere/run/global_step_2"
    TrainingResult(moved, "", steps=3, metrics={}, wall_s=0.0, cpu_s=0.0).write(tmp_path)
    assert checkpoint.find(tmp_path).name == "global_step_2"
    assert checkpoint.find(tmp_path, newest=True).name == "global_step_3"


def test_the_bare_name_of_a_run_is_answered_with_its_directory(runner, tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    runs = tmp_path / ".rrf" / "runs"
    runs.mkdir(parents=True)
    (runs / "lab").symlink_to(runner.run_dir)
    with pytest.raises(ValueError, match=rf"nor a run .*; that run lies in {runs / 'lab'}$"):
        checkpoint.find("lab")
    with pytest.raises(ValueError, match=r"a checkpoint; those of this workspace: rrf runs$"):
        checkpoint.find("other")


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (900, 1000, 50):
        (tmp_path / f"global_step_{step}").mkdir(parents=True)
    assert list(checkpoint.steps(tmp_path)) == [50, 900, 1000]
