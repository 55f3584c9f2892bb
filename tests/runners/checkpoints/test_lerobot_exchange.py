"""lerobot's own policies through `rrf models import` and `export`, and registered."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from rrf.cli import app
from rrf.mlflow_store import store
from rrf.policies.vla.lerobot.kinds import REFUSED
from rrf.policies.vla.published import lerobot
from rrf.presets import resolve
from rrf.registry import listing, loading
from rrf.runners.checkpoints import checkpoint
from rrf.workspace import HOME_VARIABLE
from tests.policies.vla.lerobot.lerobot_cases import build, directories, observation, policy_cfg


def rrf(*words):
    """Output and exception of `rrf WORDS`."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.output, done.exception


def theirs(kind, folder):
    policy = build(policy_cfg(kind, directories(kind, folder / "models"))).eval()
    return policy, lerobot.write(policy, folder / "theirs")


def actions(policy):
    torch.manual_seed(3)
    return policy.sample(observation()).actions


@pytest.mark.parametrize("kind", ["act", "smolvla", "eo1", "vla_jepa"])
def test_a_policy_acts_the_same_after_import_and_export(kind, tmp_path):
    policy, folder = theirs(kind, tmp_path)
    said, error = rrf("models", "import", folder, "--out", tmp_path / "ours", "seed=4")
    assert error is None, error
    cameras = ", ".join(policy.cfg.cameras)
    assert f"cameras {cameras} of 24 x 32 px, state 4, action 3, 4 actions per chunk" in said
    preset = "lerobot-act" if kind == "act" else "lerobot-smolvla"
    assert f"rrf train {preset} init_from=" in said
    config = checkpoint.load_config(tmp_path / "ours")
    recipe = resolve(preset).to_dict()
    assert (config["seed"], config["optimizer"]) == (4, recipe["optimizer"])
    ours = checkpoint.load_policy(tmp_path / "ours")
    assert np.abs(actions(ours) - actions(policy)).max() < 1e-5
    words = ("models", "export", tmp_path / "ours", "--format", "lerobot", "--out")
    _, error = rrf(*words, tmp_path / "back")
    assert error is None, error
    back, _ = lerobot.read(tmp_path / "back")
    assert np.abs(actions(back) - actions(policy)).max() < 1e-5
    names = {file.name for file in folder.iterdir()}
    assert {file.name for file in (tmp_path / "back").iterdir()} == names


def test_the_models_in_it_may_lie_elsewhere(tmp_path):
    policy, folder = theirs("multi_task_dit", tmp_path)
    (tmp_path / "models").rename(tmp_path / "moved")
    words = ("models", "import", folder, "--out", tmp_path / "ours")
    assert "fetch the model" in str(rrf(*words)[1])
    error = str(rrf(*words, "policy.chunk_length=2")[1])
    assert "only policy.options.vision_encoder_name, policy.options.text_encoder_name may" in error
    moved = [
        f"policy.options.{option}={tmp_path / 'moved' / f'clip-{option}'}"
        for option in ("vision_encoder_name", "text_encoder_name")
    ]
    _, error = rrf(*words, *moved)
    assert error is None, error
    ours = checkpoint.load_policy(tmp_path / "ours")
    assert np.abs(actions(ours) - actions(policy)).max() < 1e-5


def test_what_does_not_fit_is_named(tmp_path):
    _, folder = theirs("act", tmp_path)
    words = ("models", "import", folder, "--out", tmp_path / "ours")
    assert "policy.chunk_length cannot be changed" in str(rrf(*words, "policy.chunk_length=2")[1])
    assert "leave out --statistics" in str(rrf(*words, "--statistics", "lab")[1])
    assert "leave out --statistics" in str(rrf(*words, "--format", "openpi")[1])
    assert "trains no policy on recordings" in str(rrf(*words, "--preset", "pendulum-ppo")[1])
    tensors = load_file(folder / "model.safetensors")
    tensors["model.other.weight"] = tensors.pop("model.action_head.weight")
    save_file(tensors, folder / "model.safetensors")
    error = str(rrf(*words)[1])
    assert "model.action_head.weight is missing; model.other.weight is unexpected" in error
    assert not (tmp_path / "ours").exists()


def test_a_kind_that_is_refused_is_refused_with_its_reason(tmp_path):
    (tmp_path / "config.json").write_text('{"type": "groot"}')
    error = str(rrf("models", "import", tmp_path, "--out", tmp_path / "ours")[1])
    assert f"is lerobot's policy groot, which is refused: {REFUSED['groot']}" in error


def test_other_layouts_have_no_place_for_it(tmp_path):
    _, folder = theirs("act", tmp_path)
    assert rrf("models", "import", folder, "--out", tmp_path / "ours")[1] is None
    words = ("models", "export", tmp_path / "ours", "--out", tmp_path / "back")
    assert "is written with --format lerobot" in str(rrf(*words, "--format", "openpi")[1])
    assert not (tmp_path / "back").exists()


@pytest.mark.slow
def test_an_imported_policy_can_be_registered(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    _, folder = theirs("act", tmp_path)
    assert rrf("models", "import", folder, "--out", tmp_path / "ours")[1] is None
    said, error = rrf("models", "register", tmp_path / "ours", "arm")
    assert error is None, error
    assert rrf("models", "register", tmp_path / "ours", "arm")[1] is None
    assert "lineage lacks the data of a published policy" in said
    (version,) = listing.versions("arm")
    assert version.tags["lineage.published.name"] == str(folder)
    loading.fetch("arm/1", tmp_path / "fetched")
    assert np.array_equal(
        actions(checkpoint.load_policy(tmp_path / "fetched")),
        actions(checkpoint.load_policy(tmp_path / "ours")),
    )
    client = store.connect()
    runs = client.search_runs([store.experiment_id(client, "imported")])
    assert [run.info.status for run in runs] == ["FINISHED"]
