"""pi0 and pi0.5 in the layouts of openpi and lerobot."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.dataset.transforms import Normalize
from rrf.data.schema import ACTION, STATE, Observation
from rrf.networks.vlm.configs import LoRACfg, TokenizerCfg
from rrf.policies.vla.published import pi_checkpoints, pi_norm_stats
from rrf.policies.vla.published.formats import FORMATS
from rrf.presets.pi import pi0, pi05
from tests.policies.vla.pi_golden import golden_pi, norm_stats, sizes, tiny

BOTH = pytest.mark.parametrize("version", ["pi0", "pi05"])
SIZES = sizes()  # alike in both versions
PIXELS, DIMS = SIZES["vis"]["image_size"], SIZES["action_dim"]
ROBOT = {"cameras": ["front"], "image_size": (PIXELS, PIXELS), "state_dim": 4, "action_dim": 3}
MODES = {"pi0": "mean_std", "pi05": "quantile"}


def stats(dims, seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, 0, dims)
    high = low + rng.uniform(0.5, 3, dims)
    low[0] = high[0] = 0.7  # a dimension that never changes
    found = {"min": low - 1, "max": high + 1, "q01": low, "q99": high, "mean": (low + high) / 2}
    found |= {"std": (high - low) / 4}
    return {name: values.tolist() for name, values in found.items()}


STATS = {STATE: stats(4, 0), ACTION: stats(3, 1)}


PROMPTS = {"pi0": "{instruction}\n", "pi05": "Task: {instruction}, State: {state};\nAction: "}


def robot_cfg(version):
    mode = MODES[version]
    cfg = tiny(
        version,
        state_normalization=mode,
        action_normalization=mode,
        prompt=PROMPTS[version],
        **ROBOT,
    )
    # words for the bins 0 to 255, as far as there are tokens beside padding, begin, end and unknown
    words = TokenizerCfg(words=[str(number) for number in range(min(256, SIZES["vocab"] - 4))])
    return cfg.replace(backbone=cfg.backbone.replace(tokenizer=words))


def built(version):
    policy = robot_cfg(version).build(STATS)
    policy.load_state_dict(pi_checkpoints.renamed(golden_pi(version).weights))
    return policy


def actions(policy):
    rng = np.random.default_rng(0)
    images = {"front": rng.integers(0, 256, (2, PIXELS, PIXELS, 3), dtype=np.uint8)}
    state = rng.uniform(-1, 1, (2, 4)).astype(np.float32)
    observation = Observation(images, state, ["open", "close the door"])
    return policy.sample(observation, torch.Generator().manual_seed(0)).actions


@BOTH
@pytest.mark.parametrize("layout", ["openpi", "lerobot"])
def test_a_written_policy_acts_the_same_when_read_again(version, layout, tmp_path):
    policy = built(version)
    folder = pi_checkpoints.write(policy, STATS, tmp_path / "out", layout)
    again = robot_cfg(version).build(pi_norm_stats.read(folder, 4, 3))
    pi_checkpoints.fill(again, folder)
    assert np.abs(actions(again) - actions(policy)).max() < 1e-5
    written = load_file(folder / "model.safetensors")
    start = "model." if layout == "lerobot" else ""
    assert sorted(written) == sorted(start + name for name in golden_pi(version).weights)


def test_what_lerobot_reads_beside_the_weights_is_there(tmp_path):
    folder = pi_checkpoints.write(built("pi05"), STATS, tmp_path, "lerobot")
    config = json.loads((folder / "config.json").read_text())
    assert config["type"] == "pi05"
    assert config["normalization_mapping"]["ACTION"] == "QUANTILES"
    assert config["input_features"][STATE] == {"type": "STATE", "shape": [4]}
    steps = json.loads((folder / "policy_preprocessor.json").read_text())["steps"]
    names = [step["registry_name"] for step in steps]
    assert names.index("normalizer_processor") == 3
    assert (folder / steps[3]["state_file"]).is_file()


@BOTH
def test_real_sizes_have_the_published_names_and_shapes(version):
    cfg = {"pi0": pi0, "pi05": pi05}[version]()
    cfg = cfg.replace(
        cameras=["a"],
        image_size=(224, 224),
        state_dim=8,
        action_dim=7,
        backbone=cfg.backbone.replace(tokenizer=TokenizerCfg()),
    )
    with torch.device("meta"):
        policy = cfg.build(norm_stats(8, 7))
    expected = published_shapes(version)
    assert expected == {
        pi_checkpoints.published_name(name): list(tensor.shape)
        for name, tensor in policy.state_dict().items()
    }
    unused = 257152 * 1024
    total = sum(int(np.prod(shape)) for shape in expected.values()) + unused
    assert round(total / 1e9, 2) == {"pi0": 3.50, "pi05": 3.62}[version]


def published_shapes(version):
    """SigLIP so400m/14, Gemma 2B and the expert of 300 M, as openpi writes them."""
    tower = "paligemma_with_expert.paligemma.model.vision_tower.vision_model."
    shapes = {
        f"{tower}embeddings.patch_embedding.weight": [1152, 3, 14, 14],
        f"{tower}embeddings.patch_embedding.bias": [1152],
        f"{tower}embeddings.position_embedding.weight": [256, 1152],
    }
    for layer in range(27):
        start = f"{tower}encoder.layers.{layer}."
        linears = {f"self_attn.{name}_proj": (1152, 1152) for name in ("q", "k", "v", "out")}
        linears |= {"mlp.fc1": (4304, 1152), "mlp.fc2": (1152, 4304)}
        for name, (rows, columns) in linears.items():
            shapes |= {f"{start}{name}.weight": [rows, columns], f"{start}{name}.bias": [rows]}
        for name in ("layer_norm1", "layer_norm2"):
            shapes |= {f"{start}{name}.weight": [1152], f"{start}{name}.bias": [1152]}
    paligemma = "paligemma_with_expert.paligemma.model."
    shapes |= {f"{tower}post_layernorm.weight": [1152], f"{tower}post_layernorm.bias": [1152]}
    shapes |= {
        f"{paligemma}multi_modal_projector.linear.weight": [2048, 1152],
        f"{paligemma}multi_modal_projector.linear.bias": [2048],
        f"{paligemma}language_model.embed_tokens.weight": [257152, 2048],
    }
    shapes |= gemma_shapes(f"{paligemma}language_model.", 2048, 16384, False)
    expert = "paligemma_with_expert.gemma_expert.model."
    shapes |= gemma_shapes(expert, 1024, 4096, version == "pi05")
    linears = {"action_in_proj": (1024, 32), "action_out_proj": (32, 1024)}
    if version == "pi05":
        linears |= {"time_mlp_in": (1024, 1024), "time_mlp_out": (1024, 1024)}
    else:
        linears |= {"state_proj": (1024, 32), "action_time_mlp_in": (1024, 2048)}
        linears |= {"action_time_mlp_out": (1024, 1024)}
    for name, (rows, columns) in linears.items():
        shapes |= {f"{name}.weight": [rows, columns], f"{name}.bias": [rows]}
    return shapes


def gemma_shapes(start, width, mlp_dim, is_adaptive):
    shapes = {}
    kinds = ("input_layernorm", "post_attention_layernorm")
    norms = ["norm", *(f"layers.{layer}.{kind}" for layer in range(18) for kind in kinds)]
    for layer in range(18):
        linears = {"q": (2048, width), "k": (256, width), "v": (256, width), "o": (width, 2048)}
        for name, shape in linears.items():
            shapes[f"{start}layers.{layer}.self_attn.{name}_proj.weight"] = list(shape)
        mlp = {"gate": (mlp_dim, width), "up": (mlp_dim, width), "down": (width, mlp_dim)}
        for name, shape in mlp.items():
            shapes[f"{start}layers.{layer}.mlp.{name}_proj.weight"] = list(shape)
    for name in norms:
        if is_adaptive:
            shapes[f"{start}{name}.dense.weight"] = [3 * width, width]
            shapes[f"{start}{name}.dense.bias"] = [3 * width]
        else:
            shapes[f"{start}{name}.weight"] = [width]
    return shapes


def test_missing_and_unexpected_weights_are_listed(tmp_path):
    weights = dict(golden_pi("pi0").weights)
    del weights["action_in_proj.bias"], weights[pi_checkpoints.TIED]
    weights["surprise.weight"] = torch.zeros(1)
    weights["state_proj.bias"] = torch.zeros(7)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"missing action_in_proj\.bias") as caught:
        pi_checkpoints.fill(built("pi0"), tmp_path)
    assert "unexpected surprise.weight" in str(caught.value)
    assert f"state_proj.bias is [7], expected [{SIZES['exp']['width']}]" in str(caught.value)


def test_either_name_of_the_embedding_table_is_enough(tmp_path):
    weights = dict(golden_pi("pi0").weights)
    embedding = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
    table = weights.pop(embedding)
    del weights[pi_checkpoints.UNUSED]
    save_file({f"model.{name}": tensor for name, tensor in weights.items()}, tmp_path / "w")
    (tmp_path / "w").rename(tmp_path / "model.safetensors")
    policy = robot_cfg("pi0").build(STATS)
    pi_checkpoints.fill(policy, tmp_path)
    assert torch.equal(policy.backbone.embedding.weight, table)
    # lerobot 0.6 trains the table but not the output layer, and acts by the table
    both = pi_checkpoints.renamed({**weights, embedding: table + 1})
    assert torch.equal(both["backbone.embedding.weight"], table + 1)


@pytest.mark.parametrize("layout", ["openpi", "lerobot"])
def test_the_backbone_alone_and_adapters_start_from_a_published_checkpoint(layout, tmp_path):
    policy = built("pi0")
    folder = pi_checkpoints.write(policy, STATS, tmp_path / "out", layout)
    cfg = robot_cfg("pi0")
    backbone = cfg.backbone.replace(weights=str(folder), tuning=LoRACfg(rank=2))
    adapted = cfg.replace(backbone=backbone).build(STATS)
    table = policy.backbone.embedding.weight
    assert torch.equal(adapted.backbone.embedding.weight, table)
    pi_checkpoints.fill(adapted, folder)
    assert np.abs(actions(adapted) - actions(policy)).max() < 1e-5
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    again = robot_cfg("pi0").build(STATS)
    pi_checkpoints.fill(again, pi_checkpoints.write(adapted, STATS, tmp_path / "merged", layout))
    assert np.abs(actions(again) - actions(policy)).max() > 1e-3
    assert np.abs(actions(again) - actions(adapted)).max() < 1e-5


def test_paligemma_itself_has_names_of_two_generations():
    backbone = robot_cfg("pi0").backbone.build()
    wanted = "language.layers.0.mlp.up_proj.weight"
    for start in ("language_model.model.", "model.language_model."):
        assert backbone.published_name(f"{start}layers.0.mlp.up_proj.weight") == wanted
    assert backbone.published_name("surprise.weight") == "surprise.weight"


def test_only_safetensors_are_read(tmp_path):
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="no safetensors files"):
        pi_checkpoints.fill(built("pi0"), tmp_path)


def test_openpi_divides_by_the_spread_and_a_little_more(tmp_path):
    # openpi: (x - mean) / (std + 1e-6), and (x - q01) / (q99 - q01 + 1e-6) * 2 - 1
    given = {"mean": [1.0, 0, 9], "std": [0.0, 2, 9], "q01": [3.0, 0, 9], "q99": [3.0, 4, 9]}
    file = tmp_path / "assets" / "libero" / "norm_stats.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"norm_stats": {"state": given, "actions": given}}))
    read = pi_norm_stats.read(tmp_path, 2, 2)
    x = np.array([1.0 + 3e-6, 5.0])
    assert Normalize(read[STATE], mode="mean_std").apply(x) == pytest.approx([3.0, 2.49999875])
    x = np.array([3.0 + 1e-6, 1.0])
    assert Normalize(read[ACTION], mode="quantile").apply(x) == pytest.approx([1.0, -0.500000125])
    with pytest.raises(ValueError, match=r"has 3 dimensions .* the robot has 4"):
        pi_norm_stats.read(tmp_path, 4, 2)


def test_a_folder_without_statistics_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"found: none"):
        pi_norm_stats.read(tmp_path, 2, 2)


def test_openpi_has_one_normalisation_per_model(tmp_path):
    policy = tiny("pi05", **ROBOT).build(STATS)
    with pytest.raises(ValueError, match=r"state_normalization is mean_std.*pi05 has quantile"):
        pi_checkpoints.write(policy, STATS, tmp_path / "out", "openpi")


@pytest.mark.parametrize("layout", ["openpi", "lerobot"])
def test_the_state_in_the_prompt_is_not_padded_in_either_layout(layout, tmp_path):
    state = {"state": np.zeros((1, 4), np.float32), "instruction": ["go"]}
    observation = Observation({"front": np.zeros((1, PIXELS, PIXELS, 3), np.uint8)}, **state)
    prompt = built("pi05").context(observation).view.prompts[0]
    assert len(prompt.split("State: ")[1].split(";")[0].split()) == 4
    padded = robot_cfg("pi05").replace(prompt_state_dims=DIMS).build(STATS)
    with pytest.raises(
        ValueError, match=rf"prompt_state_dims is {DIMS}, .* no padding of the state"
    ):
        pi_checkpoints.write(padded, STATS, tmp_path / "out", layout)


@BOTH
def test_what_openpis_config_says_is_honoured_harmless_or_refused(version, tmp_path):
    # what openpi's converter from JAX writes, and the fields of its model's config
    config = {"action_dim": 24, "action_horizon": 5, "max_token_len": 99, "precision": "bfloat16"}
    config |= {"paligemma_variant": "gemma_300m", "action_expert_variant": "gemma_2b"}
    config |= {"pi05": version == "pi05", "discrete_state_input": version == "pi05"}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    save_file(golden_pi(version).weights, tmp_path / "model.safetensors")
    cfg = FORMATS["openpi"].fitted(
        tmp_path, robot_cfg(version).replace(prompt="{instruction}"), None
    )
    assert (cfg.chunk_length, cfg.head.max_dims, cfg.backbone.max_tokens) == (5, 24, 99)
    assert (cfg.backbone.gemma.width, cfg.head.width, cfg.head.mlp_dim) == (1024, 2048, 16384)
    assert (cfg.prompt, cfg.backbone.instructions) == (PROMPTS[version], "openpi")
    assert cfg.head.version == version
    for change, message in (
        ({"paligemma_variant": "gemma_2b_lora"}, "has paligemma_variant gemma_2b_lora, .* merge"),
        ({"discrete_state_input": version == "pi0"}, "has discrete_state_input"),
        ({"knows": 1}, "has the setting knows, which is not known here"),
    ):
        file.write_text(json.dumps({**config, **change}))
        with pytest.raises(ValueError, match=message):
            FORMATS["openpi"].fitted(tmp_path, robot_cfg(version), None)


def test_openpis_statistics_are_those_of_relative_actions_if_these_are_given(tmp_path):
    cfg = robot_cfg("pi0").replace(relative_actions=[(0, 1)])
    folder = pi_checkpoints.write(built("pi0"), STATS, tmp_path / "a", "openpi")
    read = FORMATS["openpi"].norm_stats(folder, cfg, None)
    assert read[PREDICTED]["mean"] == pytest.approx(STATS[ACTION]["mean"])
    # an estimate of the actions' own, for reports: the mean is that of the sum
    expected = STATS[ACTION]["mean"][0] + STATS[STATE]["mean"][1]
    assert read[ACTION]["mean"][0] == pytest.approx(expected)
    assert read[ACTION]["mean"][1:] == pytest.approx(STATS[ACTION]["mean"][1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta_actions": [(0, 0)]}, "has delta_actions .*, for which the layout of lerobot"),
        ({"action_modes": {2: "none"}}, r"has action_modes .*policy\.action_modes={}"),
        ({"relative_actions": [(0, 1)]}, "action dimension 0 is relative to state dimension 1"),
        ({"prompt": "{instruction}"}, "prompt is '{instruction}', but programs"),
    ],
)
def test_what_lerobots_layout_has_no_place_for_is_not_written(change, message, tmp_path):
    stats = {**STATS, PREDICTED: STATS[ACTION]}
    policy = robot_cfg("pi0").replace(**change).build(stats)
    with pytest.raises(ValueError, match=message):
        pi_checkpoints.write(policy, stats, tmp_path / "a", "lerobot")


def test_openpi_has_its_own_encoding_of_time(tmp_path):
    cfg = robot_cfg("pi0")
    policy = cfg.replace(head=cfg.head.replace(max_period=2.0)).build(STATS)
    with pytest.raises(ValueError, match=r"policy\.head\.max_period is 2\.0, but openpi's is"):
        pi_checkpoints.write(policy, STATS, tmp_path / "a", "openpi")
    folder = pi_checkpoints.write(policy, STATS, tmp_path / "b", "lerobot")
    with pytest.raises(ValueError, match=r"set policy\.head\.max_period=2\.0"):
        FORMATS["lerobot"].fill(robot_cfg("pi0").build(STATS), folder)


@pytest.mark.parametrize("layout", ["openpi", "lerobot"])
def test_a_training_does_not_start_from_weights_of_an_unknown_setting(layout, tmp_path):
    policy = built("pi0")
    folder = pi_checkpoints.write(policy, STATS, tmp_path / "a", layout)
    FORMATS[layout].fill(policy, folder)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "magic": True}))
    with pytest.raises(ValueError, match="has the setting magic, which is not known here"):
        FORMATS[layout].fill(policy, folder)
