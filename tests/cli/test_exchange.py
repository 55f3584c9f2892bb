"""`rrf export` and `rrf import`."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from safetensors.torch import load_file

from rrf.networks import plain_mlp
from tests.algorithms.distillation.ridge import corridor_teacher, run_cfg
from tests.cli.conftest import TINY_PPO, TINY_SAC

GAUSSIAN = ("pendulum-ppo", *TINY_PPO[1:])


def test_an_onnx_file_is_checked_and_says_what_it_is_of(rrf, home):
    checkpoint = rrf("train", *GAUSSIAN).checkpoint
    said = rrf("export", checkpoint, "--onnx", "out/policy.onnx")
    name = f"{checkpoint.parent.name}/global_step_4"
    assert said.lines[0] == f"exporting {name} on cpu to out/policy.onnx"
    assert said.lines[1].startswith("the actions of onnxruntime and of the policy differ by at ")
    assert said.lines[2] == "onnx out/policy.onnx"
    session = onnxruntime.InferenceSession(home / "out/policy.onnx")
    weights = load_file(checkpoint / "model.safetensors")
    assert weights["actor.normalizer.count"] == 128
    # at the mean of all observations only the biases of the network speak
    obs = weights["actor.normalizer.mean"].unsqueeze(0).numpy()
    hidden = torch.tanh(weights["actor.backbone.layers.0.bias"])
    hidden = torch.tanh(
        weights["actor.backbone.layers.2.weight"] @ hidden + weights["actor.backbone.layers.2.bias"]
    )
    expected = (
        weights["actor.backbone.layers.4.weight"] @ hidden + weights["actor.backbone.layers.4.bias"]
    )
    (found,) = session.run(None, {"obs": obs})
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["task"] == "Pendulum-v1"
    assert metadata["run_path"] == f"{checkpoint.parent.name}/global_step_4"


def test_a_directory_in_place_of_a_file_is_refused_by_the_name_of_its_option(rrf, home):
    (home / "out").mkdir()
    for option in ("--onnx", "--rsl-rl"):
        said = rrf("export", "run", option, "out")
        assert said.code == 2
        assert f"Invalid value for '{option}'" in said.err
        assert "'out' is a directory" in said.err


def test_a_policy_of_sac_is_exported_for_any_number_of_observations(rrf, home):
    checkpoint = rrf("train", *TINY_SAC).checkpoint
    rrf("export", checkpoint, "--onnx", "policy.onnx", "--any-batch")
    session = onnxruntime.InferenceSession(home / "policy.onnx")
    (actions,) = session.run(None, {"obs": np.ones((7, 3), np.float32)})
    assert actions.shape == (7, 1)
    assert (np.abs(actions) < 1).all()


def test_rsl_rl_and_back_leaves_every_weight_as_it_was(rrf, home):
    checkpoint = rrf("train", *GAUSSIAN).checkpoint
    said = rrf("export", checkpoint, "--rsl-rl", "model_4.pt")
    assert said.lines[1:] == [
        "actor: hidden_dims=[64, 64], activation=tanh, obs_normalization=True, std_type=log",
        "critic: hidden_dims=[64, 64], activation=tanh, obs_normalization=True",
        "rsl_rl model_4.pt",
    ]
    data = torch.load(home / "model_4.pt", weights_only=True)
    assert data["iter"] == 4
    assert len(data["optimizer_state_dict"]["state"]) == 13  # log_std, and 6 of each network
    imported = rrf("import", "model_4.pt", "--preset", "pendulum-ppo", "--out", "back")
    assert imported.lines[0] == "model_4.pt (rsl_rl 5.x, iteration 4) for Pendulum-v1"
    before = load_file(checkpoint / "model.safetensors")
    after = load_file(imported.checkpoint / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    rrf("export", "back", "--rsl-rl", "again.pt")
    assert torch.load(home / "again.pt", weights_only=True)["iter"] == 4
    played = rrf("play", "back", "--steps", "10")
    original = rrf("play", checkpoint, "--steps", "10")
    assert played.lines[1].partition(": ")[2] == original.lines[1].partition(": ")[2]
    lineage = json.loads((home / "back/manifest.json").read_text())["lineage"]
    assert lineage["imported_from"]["file"] == "model_4.pt"
    child = rrf("train", *GAUSSIAN, "init_from=back", "max_iterations=1")
    assert child.code == 0, child.err


def test_a_model_of_another_task_is_refused_with_names_and_shapes(rrf):
    checkpoint = rrf("train", *GAUSSIAN).checkpoint
    rrf("export", checkpoint, "--rsl-rl", "model_4.pt")
    said = rrf("import", "model_4.pt", "--task", "InvertedPendulum-v5", "--out", "back")
    assert said.code == 2
    assert "actor.backbone.layers.0.weight is [64, 3], expected [64, 4]" in said.err
    assert not Path("back").exists()


OWN_TASK = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
from rrf.policies.control.configs import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.networks.configs import plain_mlp
from rrf.runners import OnPolicyRunnerCfg

small = plain_mlp([16, 16], "Tanh")
policy = ActorCriticPackCfg(
    actor_cfg=StateIndStdActorCfg(backbone_cfg=small), critic_cfg=VNetworkCfg(backbone_cfg=small)
)
cfg = OnPolicyRunnerCfg(experiment_name="own", policy=policy)
gymnasium.register(
    id="Own-v0", entry_point=PendulumEnv, max_episode_steps=30, kwargs={"rrf_entry_point": cfg}
)
"""


def test_a_model_of_a_users_own_task_is_imported_with_the_config_registered(rrf, home):
    checkpoint = rrf("train", *GAUSSIAN).checkpoint
    rrf("export", checkpoint, "--rsl-rl", "model_4.pt")
    (home / "own_tasks.py").write_text(OWN_TASK)
    words = ("import", "model_4.pt", "--task", "Own-v0", "--out", "back", "--import", "own_tasks")
    config = yaml.safe_load((rrf(*words).checkpoint / "config.yaml").read_text())
    assert config["experiment_name"] == "own"
    assert config["env"]["type"] == "rrf.envs.gymnasium.configs:RegisteredEnvCfg"
    assert config["policy"]["actor_cfg"]["backbone_cfg"]["activations"][0] == [["Tanh", {}]]
    played = rrf("play", "back", "--import", "own_tasks", "--steps", "10")
    assert played.code == 0, played.err
    exported = rrf("export", "back", "--rsl-rl", "own.pt", "--import", "own_tasks")
    assert exported.code == 0, exported.err


def test_an_import_replaces_nothing(rrf, home):
    (home / "back").mkdir()
    (home / "back" / "thesis.txt").write_text("years of work")
    said = rrf("import", "model_4.pt", "--preset", "pendulum-ppo", "--out", "back")
    assert said.code == 2
    assert "back exists already; give a directory that is new or empty" in said.err
    assert (home / "back" / "thesis.txt").is_file()


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(rrf, monkeypatch, package):
    checkpoint = rrf("train", *GAUSSIAN).checkpoint
    monkeypatch.setitem(sys.modules, package, None)
    said = rrf("export", checkpoint, "--onnx", "policy.onnx")
    assert said.code == 2
    assert f"'{package}' is not installed; it comes with: uv pip install -e '" in said.err
    assert "[onnx]'" in said.err


def test_what_is_left_unsaid_is_asked_for(rrf):
    checkpoint = rrf("train", *TINY_PPO).checkpoint
    assert "error: no output is given; give --onnx policy.onnx" in rrf("export", checkpoint).err
    said = rrf("export", checkpoint, "--rsl-rl", "model.pt")
    assert "error: rsl_rl has no CategoricalActor" in said.err
    said = rrf("import", "model.pt", "--out", "back", "--preset", "pendulum-ppo")
    assert "error: [Errno 2] No such file or directory: 'model.pt'" in said.err
    Path("model.pt").write_bytes(b"")
    said = rrf("import", "model.pt", "--out", "back", "--preset", "pendulum-ppo")
    assert "error: model.pt is not a torch checkpoint, or the file is truncated" in said.err


def test_a_student_goes_to_rsl_rl_and_comes_back(rrf, tmp_path):
    teacher = corridor_teacher(tmp_path / "teacher", backbone_cfg=plain_mlp([4], "ELU"))
    trained = run_cfg("distillation", teacher).build(tmp_path / "run").save()
    written = rrf("export", trained, "--rsl-rl", tmp_path / "model_4.pt")
    assert "student: hidden_dims=[16], activation=elu, obs_normalization=True, rnn_type=gru" in (
        written.out
    )
    assert "1 columns of policy" in written.out
    refused = rrf("import", tmp_path / "model_4.pt", "--out", tmp_path / "a", "--task", "X-v0")
    assert "holds a student and its teacher; name a preset that trains a student" in refused.err
    words = ("--preset", "pendulum-hidden-distill", "policy.actor_cfg.hidden={policy: [1, 2]}")
    read = rrf("import", tmp_path / "model_4.pt", "--out", tmp_path / "b", *words)
    assert "student: hidden_dims=[16]" in read.out, read.err
    assert "3 steps" in rrf("play", tmp_path / "b", "--steps", "3").out
