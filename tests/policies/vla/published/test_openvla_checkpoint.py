"""Checkpoints in the layout of OpenVLA and OpenVLA-OFT: read, written, refused."""

import dataclasses
import json
import os
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rrf.data.schema import ACTION, STATE
from rrf.networks.vlm.prismatic.configs import OPENVLA_IMAGE, PrismaticCfg
from rrf.networks.vlm.prismatic.names import own_name, published_name
from rrf.policies.vla.published import openvla
from tests.policies.vla.heads.test_openvla_heads import (
    DIFFUSION,
    REGRESSION,
    TOKENS,
    observation,
    policy_cfg,
)

MASK = [True, True, False]
STATS = {
    ACTION: {"q01": [-1.0, 0.0, -1.0], "q99": [3.0, 0.5, 1.0], "mask": MASK},
    STATE: {"q01": [-1.0] * 4, "q99": [1.0] * 4},
}


def written(folder, head=TOKENS, **changes):
    torch.manual_seed(0)
    policy = policy_cfg(head, **changes).build(STATS)
    openvla.write(policy, folder, "lab", STATS)
    return policy


@pytest.mark.parametrize("head", [TOKENS, REGRESSION, DIFFUSION], ids=lambda h: type(h).__name__)
def test_a_written_checkpoint_acts_as_before(tmp_path, head):
    policy = written(tmp_path, head)
    again = openvla.read(tmp_path, "lab", policy.cfg.replace(state_dim=0, action_dim=0))
    assert (again.cfg.state_dim, again.cfg.action_dim) == (4, 3)
    seen = observation()
    found, expected = (each.sample(seen, greedy=True).actions for each in (again, policy))
    assert np.array_equal(found, expected)
    weights = load_file(tmp_path / "model.safetensors")
    assert "vision_backbone.featurizer.blocks.0.ls1.scale_factor" in weights
    assert "language_model.lm_head.weight" in weights


def test_film_and_its_unmerged_adapters_are_read(tmp_path):
    policy = written(tmp_path, REGRESSION, film=True)
    file = tmp_path / "vision_backbone--0_checkpoint.pt"
    tensors = torch.load(file, weights_only=True)
    name = "vision_backbone.featurizer.blocks.0.block.attn.qkv"
    weight = tensors.pop(f"{name}.weight")
    down, up = torch.randn(32, 16), torch.randn(48, 32)  # rank 32: the product counts 16 / 32
    tensors |= {
        f"{name}.base_layer.weight": weight,
        f"{name}.lora_A.default.weight": down,
        f"{name}.lora_B.default.weight": up,
        f"{name}.base_layer.bias": tensors.pop(f"{name}.bias"),
    }
    patches = "vision_backbone.fused_featurizer.patch_embed.proj"
    plain = tensors.pop(f"{patches}.weight")
    tensors |= {
        f"{patches}.base_layer.weight": plain,
        f"{patches}.lora_A.default.weight": torch.ones(8, 3, 8, 8),
        f"{patches}.lora_B.default.weight": torch.ones(16, 8, 1, 1),
    }
    torch.save({f"module.{key}": value for key, value in tensors.items()}, file)
    again = openvla.read(tmp_path, "lab", policy.cfg).state_dict()
    changed = "backbone.vision_backbone.featurizer.blocks.0.block.attn.qkv.weight"
    assert torch.allclose(again[changed], weight + 0.5 * up @ down, atol=1e-6)
    second = f"backbone.{patches}.weight"
    assert torch.allclose(again[second], plain + 8.0, atol=1e-5)  # rank 8: the sum of 8 ones
    for key, value in policy.state_dict().items():
        assert key in (changed, second) or torch.equal(again[key], value)


def test_masked_dimensions_are_not_normalised(tmp_path):
    policy = openvla.read(tmp_path, "lab", written(tmp_path).cfg)
    # 0.5 (x + 1) (q99 - q01) + q01; the third as it is
    physical = policy.normalize_action.invert(np.array([[0.5, -1.0, 0.5]]))
    assert np.allclose(physical, [[2.0, 0.0, 0.5]])


def test_an_unknown_dataset_is_refused_with_those_it_knows(tmp_path):
    cfg = written(tmp_path).cfg
    with pytest.raises(ValueError, match="no statistics of dataset 'bridge'; known: lab"):
        openvla.read(tmp_path, "bridge", cfg)


def test_a_checkpoint_without_a_state_needs_no_statistics_of_it():
    config = {"norm_stats": {"lab": {"action": STATS[ACTION]}}}
    assert openvla.norm_stats_of(config, "lab", state_dim=2)[STATE]["q99"] == [1.0, 1.0]


def test_missing_and_unexpected_tensors_are_listed(tmp_path):
    cfg = written(tmp_path).cfg
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    weights["projector.fc9.bias"] = weights.pop("projector.fc1.bias")
    save_file(weights, file)
    with pytest.raises(
        ValueError, match=r"projector.fc1.bias is missing; backbone.projector.fc9.bias is unexpect"
    ):
        openvla.read(tmp_path, "lab", cfg)


def test_components_are_needed_and_a_second_one_is_refused(tmp_path):
    cfg = written(tmp_path, REGRESSION).cfg
    one = tmp_path / "action_head--0_checkpoint.pt"
    (tmp_path / "action_head--9_checkpoint.pt").write_bytes(one.read_bytes())
    with pytest.raises(ValueError, match="has 2 files action_head"):
        openvla.read(tmp_path, "lab", cfg)
    for file in tmp_path.glob("action_head--*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"head.model.layer_norm1.weight is missing"):
        openvla.read(tmp_path, "lab", cfg)


def test_a_component_that_could_run_code_is_refused(tmp_path):
    class Code:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    cfg = written(tmp_path, REGRESSION).cfg
    torch.save({"model.fc1.weight": Code()}, tmp_path / "action_head--0_checkpoint.pt")
    with pytest.raises(ValueError, match="holds more than tensors or is damaged"):
        openvla.read(tmp_path, "lab", cfg)
    assert not (tmp_path / "ran").exists()


def test_another_family_and_other_sizes_are_refused(tmp_path):
    cfg = written(tmp_path).cfg
    with pytest.raises(ValueError, match=r"has n_action_bins 20, but head.num_bins is 19"):
        openvla.read(tmp_path, "lab", cfg.replace(head=TOKENS.replace(num_bins=19)))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "qwen2_vl"}))
    with pytest.raises(ValueError, match="'qwen2_vl', expected 'openvla'"):
        openvla.read(tmp_path, "lab", cfg)


def published_names():
    """The tensors of openvla/openvla-7b, written down from their pattern."""
    names = []
    norms = [f"norm{n}.{kind}" for n in (1, 2) for kind in ("weight", "bias")]
    layers = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    block = norms + [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    scales = ["ls1.scale_factor", "ls2.scale_factor"]
    pool = [f"attn_pool.{n}" for n in ("q", "kv", "proj", "norm", "mlp.fc1", "mlp.fc2")]
    for tower, depth, extra in (("featurizer", 24, scales), ("fused_featurizer", 27, [])):
        start = f"vision_backbone.{tower}."
        single = ["pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"]
        single += ["norm.weight", "norm.bias"]
        if tower == "featurizer":
            single += ["cls_token", "reg_token"]
        else:
            single += ["attn_pool.latent", *(f"{n}.{k}" for n in pool for k in ("weight", "bias"))]
        names += [start + name for name in single]
        names += [f"{start}blocks.{i}.{name}" for i in range(depth) for name in block + extra]
    names += [f"projector.fc{n}.{kind}" for n in (1, 2, 3) for kind in ("weight", "bias")]
    attention = [f"self_attn.{n}_proj" for n in "qkvo"]
    mlp = [f"mlp.{n}_proj" for n in ("gate", "up", "down")]
    llama = [*attention, *mlp, "input_layernorm", "post_attention_layernorm"]
    prefix = "language_model.model."
    names += [f"{prefix}layers.{i}.{name}.weight" for i in range(32) for name in llama]
    rest = (f"{prefix}embed_tokens", f"{prefix}norm", "language_model.lm_head")
    return names + [f"{name}.weight" for name in rest]


def test_every_tensor_of_the_published_7b_model_has_a_place():
    with torch.device("meta"):
        backbone = PrismaticCfg().build()
    assert {own_name(name, film=False) for name in published_names()} == set(backbone.state_dict())
    assert {published_name(name) for name in backbone.state_dict()} == set(published_names())


def as_theirs(folder, **changes):
    """A folder as its makers write it, without what rrf notes about its own policies."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    del config["rrf"]
    file.write_text(json.dumps(config | changes))
    return folder


def test_an_import_prepares_images_and_instructions_as_the_original_does(tmp_path):
    policy = written(tmp_path, REGRESSION)
    cfg = openvla.fitted(tmp_path, policy.cfg)
    assert cfg == policy.cfg  # written by rrf, which notes how
    size = policy.cfg.backbone.image.size
    cfg = openvla.fitted(as_theirs(tmp_path, image_sizes=list(size)), policy.cfg)
    image = cfg.backbone.image
    assert (image.size, image.fit, image.filter, image.jpeg_quality) == (
        size, "stretch", "lanczos", 95,
    )  # fmt: skip
    assert image.keeps**2 == pytest.approx(0.9)
    assert cfg.clips_state
    again = openvla.read(tmp_path, "lab", cfg)
    seen = observation()
    prompts = again.context(dataclasses.replace(seen, instruction=["Pick UP the Cup"] * len(seen)))
    assert all("pick up the cup" in prompt for prompt in prompts.view.prompts)
    far = again.context(dataclasses.replace(seen, state=seen.state * 0 + 7.0))
    assert (far.state == 1).all()  # beyond q99


def test_statistics_of_a_fine_tuning_replace_those_of_its_base(tmp_path):
    cfg = written(tmp_path).cfg
    tuned = {"action": STATS[ACTION] | {"q99": [5.0, 0.5, 1.0]}, "num_trajectories": 3}
    (tmp_path / "dataset_statistics.json").write_text(json.dumps({"tuned": tuned}))
    assert openvla.read(tmp_path, "tuned", cfg).normalize_action.scale[0] == 3.0
    with pytest.raises(ValueError, match="no statistics of dataset 'lab'; known: tuned"):
        openvla.read(tmp_path, "lab", cfg)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_resize_strategy": "letterbox"}, "image_resize_strategy letterbox, which cannot"),
        ({"timm_override_act_layers": ["quick_gelu", None]}, "overrides activations"),
        ({"text_config": {"rope_theta": 5e5}}, r"text_config.rope_theta 500000.0, but .* 10000.0"),
        ({"proprio_in_prompt": True}, "the setting proprio_in_prompt, which is not known"),
    ],
)
def test_a_setting_that_would_change_actions_unnoticed_is_refused(tmp_path, changes, message):
    cfg = written(tmp_path).cfg
    with pytest.raises(ValueError, match=message):
        openvla.fitted(as_theirs(tmp_path, **changes), cfg)


def test_an_export_says_what_other_programs_do_otherwise(tmp_path):
    with pytest.warns(UserWarning, match=r"keep the middle 90 % .* trained with filter bilinear"):
        written(tmp_path / "plain")
    image = OPENVLA_IMAGE.replace(size=(16, 16))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written(tmp_path / "alike", TOKENS, image=image, instructions="lower")
