"""ONNX files: the same actions in onnxruntime, mjlab's metadata, nothing written if they differ."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from rrf.envs.control_env import Interface
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import (
    CategoricalActorCfg,
    LipsNetActorCfg,
    MemoryCfg,
    StateIndStdActorCfg,
)
from rrf.policies.control.off_policy_configs import (
    GRUEncoderCfg,
    SACActorCfg,
    TransformerEncoderCfg,
)
from rrf.runners.checkpoints import onnx_export
from rrf.runners.checkpoints.onnx_export import as_text, export
from tests.closeness import assert_close
from tests.golden_files import GOLDEN, golden
from tests.runners.checkpoints.test_rsl_rl_checkpoint import CHECKPOINT, imported

INTERFACE = Interface({"policy": 4}, num_actions=2)
CHOICES = Interface({"policy": 4}, num_actions=1, num_choices=3)
SMALL = plain_mlp([8], "ELU")


def made(cfg, interface=INTERFACE):
    """An actor with random weights that has seen observations far from zero."""
    torch.manual_seed(1)
    actor = cfg.replace(backbone_cfg=SMALL).build(interface)
    if actor.normalizer is not None:
        actor.normalizer.update(5 + 3 * torch.randn(100, actor.width))
    return actor


def shapes(values) -> dict:
    return {value.name: value.shape for value in values}


@pytest.mark.parametrize("any_batch", [False, True])
@pytest.mark.parametrize(
    ("cfg", "memories"),
    [
        (StateIndStdActorCfg(), {}),
        (StateIndStdActorCfg(obs_normalization=False), {}),
        (LipsNetActorCfg(), {}),
        (SACActorCfg(obs_normalization=True, action_limit=2.0), {}),
        (StateIndStdActorCfg(memory=MemoryCfg(hidden_size=5, num_layers=2)), {"h": [2, 5]}),
        (
            StateIndStdActorCfg(memory=MemoryCfg(kind="lstm", hidden_size=5)),
            {"h": [1, 5], "c": [1, 5]},
        ),
        (SACActorCfg(encoder=GRUEncoderCfg(hidden_size=6)), {"h": [1, 6]}),
        (
            SACActorCfg(encoder=TransformerEncoderCfg(width=8, num_heads=2, context=3)),
            {"history": [3, 5]},
        ),
    ],
    ids=["gaussian", "raw", "lipsnet", "sac", "gru", "lstm", "sac-seq", "sac-trans"],
)
def test_every_kind_of_policy_acts_the_same_in_onnxruntime(cfg, memories, any_batch, tmp_path):
    actor = made(cfg)
    assert export(actor, tmp_path / "policy.onnx", any_batch=any_batch) <= 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    num = "N" if any_batch else 1
    expected = {f"{name}_in": [layers, num, w] for name, (layers, w) in memories.items()}
    assert shapes(session.get_inputs()) == {"obs": [num, 4]} | expected
    expected = {f"{name}_out": [layers, num, w] for name, (layers, w) in memories.items()}
    assert list(shapes(session.get_outputs())) == ["actions", *expected]
    (opset,) = onnx.load(tmp_path / "policy.onnx").opset_import
    assert opset.version == 18


def test_a_choice_comes_out_as_its_index(tmp_path):
    actor = made(CategoricalActorCfg(), CHOICES)
    export(actor, tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    (action,) = session.run(None, {"obs": np.zeros((1, 4), np.float32)})
    assert action.shape == (1, 1)
    assert action.item() in (0.0, 1.0, 2.0)


def test_the_file_acts_as_the_one_rsl_rl_exported(tmp_path):
    export(imported(CHECKPOINT).actor, tmp_path / "policy.onnx")
    _, expected = golden("rsl_rl_policy_expected.npz", "policy")
    ours = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    theirs = onnxruntime.InferenceSession(GOLDEN / "rsl_rl_policy.onnx")
    assert shapes(ours.get_inputs()) == shapes(theirs.get_inputs())
    assert shapes(ours.get_outputs()) == shapes(theirs.get_outputs())
    rows = zip(expected["observations"].numpy(), expected["actions"].numpy(), strict=True)
    for obs, actions in rows:
        for session in (ours, theirs):
            (found_actions,) = session.run(None, {"obs": obs[None]})
            assert_close(found_actions[0], actions)


def test_metadata_are_written_as_mjlab_writes_them(tmp_path):
    metadata = {
        "run_path": "local",
        "joint_names": ["FR_hip", "FR_thigh"],
        "joint_stiffness": [35.0, 12.34567],
        "observation_terms_clip": [[float("-inf"), float("inf")], [-1.0, 1.0]],
        "observation_terms_history_length": [0, 3],
        "observation_terms_flatten_history_dim": [True, False],
        "action_scale": 0.5,
    }
    export(made(StateIndStdActorCfg()), tmp_path / "policy.onnx", metadata)
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    found = session.get_modelmeta().custom_metadata_map
    assert found == {
        "run_path": "local",
        "joint_names": "FR_hip,FR_thigh",
        "joint_stiffness": "35.000,12.346",
        "observation_terms_clip": "-inf;inf,-1.000;1.000",
        "observation_terms_history_length": "0.000,3.000",
        "observation_terms_flatten_history_dim": "1.000,0.000",
        "action_scale": "0.5",
    }
    from mjlab.rl.exporter_utils import list_to_csv_str

    for value in metadata.values():
        if isinstance(value, list):
            assert as_text(value) == list_to_csv_str(value)


def test_a_policy_of_nan_is_not_written(tmp_path):
    actor = made(StateIndStdActorCfg())
    with torch.no_grad():
        next(actor.backbone.parameters()).fill_(torch.nan)
    with pytest.raises(ValueError, match=r"the actions are not finite numbers; .* was not written"):
        export(actor, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_that_computes_something_else_is_not_written(tmp_path, monkeypatch):
    actor = made(StateIndStdActorCfg())

    def write_then_change(exported, path: Path, any_batch: bool):
        written(exported, path, any_batch)
        with torch.no_grad():
            actor.backbone.layers[0].weight[0, 0] += 0.01

    written = onnx_export._write
    monkeypatch.setattr(onnx_export, "_write", write_then_change)
    with pytest.raises(ValueError, match=r"onnxruntime's actions differ .* was not written"):
        export(actor, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())
