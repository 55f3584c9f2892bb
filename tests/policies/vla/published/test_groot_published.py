"""Published checkpoints of GR00T: names, sizes, strict loading."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rrf.data.dataset.transforms import Normalize
from rrf.data.schema import ACTION, STATE
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.qwen.configs import Qwen3VLCfg
from rrf.policies.vla.heads.groot import GrootHead
from rrf.policies.vla.heads.groot_configs import GrootHeadCfg, n17_head
from rrf.policies.vla.published import groot_settings
from rrf.policies.vla.published.formats import FORMATS
from rrf.policies.vla.published.groot import (
    load_head,
    load_policy,
    published_weights,
    stats_of_n15,
)
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from tests.golden_files import GOLDEN
from tests.policies.vla.groot_golden import Case
from tests.policies.vla.test_vlm import stats


class Wide:
    """Stands for a backbone: a head only asks for its width."""

    width = 2048


def real_size(cfg, chunk_length):
    with torch.device("meta"):
        return GrootHead(cfg, Wide(), chunk_length, cfg.max_action_dim, cfg.max_state_dim)


def num_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_head_of_n15_has_the_published_size_and_names():
    head = real_size(GrootHeadCfg(), 16)
    assert num_parameters(head) == 1_068_806_144  # the original's 1,069 M
    assert num_parameters(head.model) == 550_386_688  # 550 M
    expected = {}
    for entry in json.loads((GOLDEN / "groot_n15_keys.json").read_text()):
        for block in entry.get("blocks", [None]):
            expected[entry["name"].format(block)] = tuple(entry["shape"])
    assert {name: tuple(v.shape) for name, v in head.state_dict().items()} == expected


def test_the_head_of_n17_has_the_published_size_and_names():
    head = real_size(n17_head(), 40)
    assert round(num_parameters(head) / 1e5) == 16_205  # the original's 1,620.5 M
    names = set(Case("n17").weights)
    per_block = {name.partition("model.transformer_blocks.0.")[2] for name in names} - {""}
    per_vl = {name.partition("vl_self_attention.transformer_blocks.0.")[2] for name in names} - {""}
    names |= {
        f"model.transformer_blocks.{block}.{name}" for block in range(32) for name in per_block
    }
    names |= {
        f"vl_self_attention.transformer_blocks.{b}.{name}" for b in range(4) for name in per_vl
    }
    assert set(head.state_dict()) == names
    shapes = {name: list(value.shape) for name, value in head.state_dict().items()}
    assert shapes["model.transformer_blocks.0.attn1.to_k.weight"] == [1536, 2048]
    assert shapes["model.transformer_blocks.1.attn1.to_k.weight"] == [1536, 1536]
    assert shapes["state_encoder.layer1.W"] == [32, 132, 1024]
    assert shapes["action_decoder.layer2.W"] == [32, 1024, 132]


def tiny_policy(case):
    """A policy of the sizes of the golden N1.7."""
    text, vision = (case.backbone_settings[f"{kind}_config"] for kind in ("text", "vision"))
    image_size = (4 * vision["patch_size"], 4 * vision["patch_size"])
    backbone = Qwen3VLCfg(
        image=ImageRuleCfg(size=image_size),
        hidden_size=text["hidden_size"],
        num_layers=case.settings["select_layer"],
        num_heads=text["num_attention_heads"],
        num_kv_heads=text["num_key_value_heads"],
        head_dim=text["head_dim"],
        intermediate_size=text["intermediate_size"],
        vocab_size=text["vocab_size"],
        mrope_section=text["rope_scaling"]["mrope_section"],
        vision_depth=vision["depth"],
        vision_width=vision["hidden_size"],
        vision_heads=vision["num_heads"],
        vision_intermediate=vision["intermediate_size"],
        patch_size=vision["patch_size"],
        num_position_embeddings=vision["num_position_embeddings"],
        deepstack=vision["deepstack_visual_indexes"],
        final_norm=False,
        system_prompt=None,
    )
    _, chunk_length, action_dim = case.inputs["action"].shape
    state_dim = case.inputs["state"].shape[2]
    new = case.cfg.num_embodiments - 1
    cfg = VLMPolicyCfg(
        cameras=["front"],
        image_size=image_size,
        state_dim=state_dim,
        action_dim=action_dim,
        chunk_length=chunk_length,
        backbone=backbone,
        head=case.cfg.replace(embodiments={"new_embodiment": new}),
    )
    return cfg.build({STATE: stats(state_dim), ACTION: stats(action_dim)})


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The golden N1.7 as a published checkpoint, whose language model has no more layers."""
    with np.load(GOLDEN / "groot_n17.npz", allow_pickle=False) as data:
        weights = {
            key.removeprefix("weights/"): torch.from_numpy(data[key])
            for key in data.files
            if key.startswith("weights/")
        }
    folder = tmp_path_factory.mktemp("published")
    save_file(weights, folder / "model.safetensors")
    return folder, weights


def test_a_published_policy_is_loaded_whole_and_written_back(published):
    folder, weights = published
    case = Case("n17")
    policy = tiny_policy(case)
    load_policy(policy, folder)
    given = case.head.given(case.context())
    share = torch.linspace(0.3, 0.6, len(case.inputs["noise"]))
    wanted, _ = case.head.velocity(given, case.inputs["noise"], share)
    found, _ = policy.head.eval().velocity(
        policy.head.given(case.context()), case.inputs["noise"], share
    )
    assert torch.equal(found, wanted)
    written = published_weights(policy)
    unused = {"backbone.model.lm_head.weight", "backbone.model.model.language_model.norm.weight"}
    assert set(written) == set(weights) - unused
    assert all(torch.equal(written[name], weights[name]) for name in written)


def test_loading_is_strict(published, tmp_path):
    _, weights = published
    case = Case("n17")

    def refused(changed, message):
        save_file(changed, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            load_policy(tiny_policy(case), tmp_path)

    missing = {n: v for n, v in weights.items() if n != "action_head.vlln.bias"}
    refused(missing, "do not fit GR00T's head.*: vlln.bias is missing")
    refused(weights | {"action_head.mask_token": torch.zeros(1)}, "mask_token is unexpected")
    refused(weights | {"backbone.eagle_model.x": torch.zeros(1)}, "another family or version")
    refused(
        {n: v for n, v in weights.items() if "visual.pos_embed" not in n},
        "do not fit the Qwen3VLCfg: model.visual.pos_embed.weight is missing",
    )
    wrong = weights | {"action_head.vlln.bias": torch.zeros(3)}
    width = case.settings["backbone_embedding_dim"]
    refused(wrong, rf"vlln.bias is \[3\], expected \[{width}\]")


def test_a_head_with_parts_of_its_own_and_other_heads_are_refused(published):
    folder, _ = published
    case = Case("n17")
    cfg = case.cfg.replace(noise_method="reinflow")
    with pytest.raises(ValueError, match="std network"):
        load_head(GrootHead(cfg, case.backbone, *case.widths), folder)
    regression = VLMPolicyCfg(cameras=["a"], image_size=(64, 64), state_dim=2, action_dim=2)
    with pytest.raises(ValueError, match="has a RegressionHead"):
        load_policy(regression.build({STATE: stats(2), ACTION: stats(2)}), folder)


def test_an_import_of_n15_sees_the_middle_of_images(tmp_path):
    cfg = resolve("groot-n15-sft").policy
    plain = cfg.replace(backbone=cfg.backbone.replace(image=ImageRuleCfg(size=(224, 224))))
    tensors = {"action_head.x": torch.zeros(1), "backbone.eagle_model.x": torch.zeros(1)}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"action_horizon": 16}')
    image = FORMATS["groot"].fitted(tmp_path, plain, None).backbone.image
    assert (image.fit, image.keeps, image.cut, image.size) == (
        "stretch",
        0.95,
        "before",
        (224, 224),
    )
    ours = {"rrf": {"image": plain.backbone.image.to_dict()}}
    (tmp_path / "config.json").write_text(json.dumps(ours))
    assert FORMATS["groot"].fitted(tmp_path, plain, None) == plain


def test_what_never_moved_is_nothing_as_state_and_stays_as_action_in_n15():
    known = {"min": [0.3, -1.0], "max": [0.3, 3.0]}
    stats = stats_of_n15({STATE: known, ACTION: known})
    state = Normalize(stats[STATE], "min_max").apply(np.array([[5.0, 3.0]]))
    assert np.allclose(state, [[0.0, 1.0]], atol=1e-7)
    action = Normalize(stats[ACTION], "min_max").invert(np.array([[0.5, 0.5]]))
    assert np.allclose(action, [[0.3, 2.0]], atol=1e-4)


@pytest.mark.parametrize(
    ("preset", "chunk_length", "slot"), [("groot-n15-sft", 16, 31), ("groot-n17-sft", 40, 10)]
)
def test_the_published_presets_have_the_published_heads(preset, chunk_length, slot):
    policy = resolve(preset).policy
    assert (policy.chunk_length, policy.backbone.width) == (chunk_length, 2048)
    assert policy.head.embodiment_slot(policy.embodiment) == slot


def test_the_laptop_preset_is_small_enough():
    policy = resolve("groot-laptop").policy.replace(
        cameras=["corner2"], image_size=(64, 64), state_dim=4, action_dim=4
    )
    built = policy.build({STATE: stats(4), ACTION: stats(4)})
    assert num_parameters(built) < 10e6


TRANSFORMER = {"num_layers": 5, "num_attention_heads": 6, "attention_head_dim": 7, "dropout": 0.1}
N15_CONFIG = {  # the fields of the published one, with other values where they are honoured
    "action_dim": 32,
    "action_horizon": 9,
    "architectures": ["GR00T_N1_5"],
    "attn_implementation": None,
    "compute_dtype": "bfloat16",
    "hidden_size": 2048,
    "model_dtype": "float32",
    "model_type": "gr00t_n1_5",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.3",
    "action_head_cfg": {
        "action_dim": 32,
        "action_horizon": 9,
        "add_pos_embed": True,
        "backbone_embedding_dim": 2048,
        "diffusion_model_cfg": {
            **TRANSFORMER,
            "cross_attention_dim": 2048,
            "final_dropout": True,
            "interleave_self_attention": True,
            "norm_type": "ada_norm",
            "output_dim": 1024,
            "positional_embeddings": None,
        },
        "hidden_size": 1024,
        "input_embedding_dim": 1536,
        "max_action_dim": 33,
        "max_state_dim": 65,
        "model_dtype": "float32",
        "noise_beta_alpha": 1.5,
        "noise_beta_beta": 1.0,
        "noise_s": 0.998,
        "num_inference_timesteps": 8,
        "num_target_vision_tokens": 16,
        "num_timestep_buckets": 500,
        "tune_diffusion_model": True,
        "tune_projector": True,
        "use_vlln": True,
        "vl_self_attention_cfg": {
            "attention_head_dim": 64,
            "dropout": 0.3,
            "final_dropout": True,
            "num_attention_heads": 16,
            "num_layers": 3,
            "positional_embeddings": None,
        },
    },
    "backbone_cfg": {
        "eagle_path": "NVEagle/eagle",
        "load_bf16": False,
        "project_to_dim": None,
        "reproject_vision": False,
        "select_layer": 11,
        "tune_llm": False,
        "tune_visual": True,
        "use_flash_attention": True,
    },
}


def fitted_to(config, folder, preset="groot-n15-sft"):
    (folder / "config.json").write_text(json.dumps(config))
    return groot_settings.fitted(folder, resolve(preset, []).policy)


def test_what_the_config_of_n15_says_is_honoured(tmp_path):
    cfg = fitted_to(N15_CONFIG, tmp_path)
    assert (cfg.chunk_length, cfg.backbone.num_layers) == (9, 11)
    head = cfg.head
    assert (head.num_denoise_steps, head.num_time_buckets, head.num_future_tokens) == (8, 500, 16)
    assert (head.max_state_dim, head.max_action_dim, head.noise_scale) == (65, 33, 0.998)
    assert (head.dit.num_layers, head.dit.num_heads, head.dit.head_width) == (5, 6, 7)
    assert (head.vl_layers, head.vl_heads, head.vl_dropout) == (3, 16, 0.3)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (None, {"magic": 1}, "has the setting magic, which is not known here"),
        ("backbone_cfg", {"reproject_vision": True}, "backbone_cfg has reproject_vision True"),
        ("backbone_cfg", {"project_to_dim": 1536}, "has project_to_dim 1536"),
        ("action_head_cfg", {"add_pos_embed": False}, "action_head_cfg has add_pos_embed False"),
        ("action_head_cfg", {"diffusion_model_cfg": {"norm_type": "layer_norm"}}, "has norm_type"),
        (None, {"state_history_length": 4}, "has state_history_length 4"),
    ],
)
def test_what_the_config_says_otherwise_is_refused_by_name(part, change, message, tmp_path):
    config = json.loads(json.dumps(N15_CONFIG))
    (config[part] if part else config).update(change)
    with pytest.raises(ValueError, match=message):
        fitted_to(config, tmp_path)


def test_the_config_of_n17_is_flat(tmp_path):
    n17 = {"model_type": "Gr00tN1d7", "action_horizon": 16, "num_inference_timesteps": 6}
    n17 |= {"select_layer": 14, "state_dropout_prob": 0.1, "use_alternate_vl_dit": True}
    n17 |= {"diffusion_model_cfg": TRANSFORMER, "formalize_language": True}
    cfg = fitted_to(n17, tmp_path, "groot-n17-sft")
    assert (cfg.chunk_length, cfg.head.num_denoise_steps, cfg.backbone.num_layers) == (16, 6, 14)
    assert (cfg.head.dit.num_layers, cfg.head.state_dropout) == (5, 0.1)


def test_every_field_of_n17_that_the_installed_lerobot_knows_is_in_a_list():
    from lerobot.policies.groot.groot_n1_7 import GR00T_N1_7_DEFAULTS

    known, common = groot_settings._SETTINGS.knows, groot_settings._common()
    assert len(GR00T_N1_7_DEFAULTS) > 30
    assert [n for n in GR00T_N1_7_DEFAULTS if not known(n) and n not in common] == []
