"""Backbones with pretrained weights: read strictly, trained in part, saved in part."""

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rrf.networks.vlm.backbone import View
from rrf.networks.vlm.build import (
    base_assets,
    build_backbone,
    has_adapters,
    merge_adapters,
    merged_weights,
    without_adapters,
)
from rrf.networks.vlm.configs import LoRACfg
from rrf.networks.vlm.weights import weight_files, weights_digest
from tests.networks.vlm.qwen.tiny_qwen import PROMPTS, tiny2, tiny3, write_tokenizer


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A published Qwen2-VL, written by transformers itself in the layout of the hub."""
    from transformers import Qwen2VLForConditionalGeneration

    folder = write_tokenizer(tmp_path_factory.mktemp("published"))
    torch.manual_seed(3)
    built = tiny2(folder).build().model
    built.config.tie_word_embeddings = built.config.text_config.tie_word_embeddings = True
    whole = Qwen2VLForConditionalGeneration(built.config)
    whole.save_pretrained(folder, max_shard_size="200kB")
    return folder


def view(cfg):
    shape = (2, *cfg.image.size, 3)
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, np.uint8))
    return View((image,), torch.ones(2, 1, dtype=torch.bool), list(PROMPTS))


def test_published_weights_are_read_from_all_shards(published):
    from transformers import Qwen2VLForConditionalGeneration

    assert len(weight_files(published)) > 2
    backbone = build_backbone(tiny2(published, weights=str(published)))
    whole = Qwen2VLForConditionalGeneration.from_pretrained(published)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(backbone.state_dict()[f"model.{name}"], value), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_theta": 1e5}, r"rope_theta 1000000\.0, but policy\.backbone\.rope_theta is 1000"),
        ({"mrope_section": [4, 2, 2]}, r"mrope_section \[2, 3, 3\], but .* is \[4, 2, 2\]"),
        ({"vision_heads": 4}, r"num_heads 2, but policy\.backbone\.vision_heads is 4; set"),
    ],
)
def test_weights_of_another_model_with_the_same_shapes_are_refused(published, changes, message):
    cfg = tiny2(published, weights=str(published), **changes)
    with pytest.raises(ValueError, match=message):
        build_backbone(cfg)


def test_only_the_kept_layers_are_read(published):
    cut = build_backbone(tiny2(published, weights=str(published), num_layers=2))
    whole = build_backbone(tiny2(published, weights=str(published)))
    assert len(cut.model.language_model.layers) == 2
    name = "model.language_model.layers.1.mlp.up_proj.weight"
    assert torch.equal(cut.state_dict()[name], whole.state_dict()[name])


def test_weights_of_another_architecture_are_refused_by_name(published):
    with pytest.raises(ValueError, match=r"up_proj.weight is \[96, 64\], expected \[128, 64\]"):
        build_backbone(tiny2(published, weights=str(published), intermediate_size=128))
    with pytest.raises(
        ValueError, match=r"layers.3.*is missing.*do not fit|do not fit.*is missing"
    ):
        build_backbone(tiny2(published, weights=str(published), num_layers=4))
    with pytest.raises(ValueError, match="do not fit the Qwen3VLCfg"):
        build_backbone(tiny3(published, weights=str(published)))


def test_a_half_downloaded_model_is_refused(published, tmp_path):
    for path in published.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = weight_files(tmp_path)[1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-10])
    with pytest.raises(ValueError, match="is not a complete safetensors file"):
        build_backbone(tiny2(published, weights=str(tmp_path)))
    shard.unlink()
    with pytest.raises(ValueError, match=rf"incomplete, it lacks {shard.name}"):
        build_backbone(tiny2(published, weights=str(tmp_path)))


def test_pickles_and_missing_directories_are_refused(published, tmp_path):
    with pytest.raises(ValueError, match="no pretrained weights at"):
        build_backbone(tiny2(published, weights=str(tmp_path / "nowhere")))
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    with pytest.raises(ValueError, match=r"pytorch_model.bin could run code when it is read"):
        build_backbone(tiny2(published, weights=str(tmp_path)))


def test_an_index_cannot_name_files_elsewhere(tmp_path):
    index = {"weight_map": {"a": "../model.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="is not a file beside it"):
        weight_files(tmp_path)


def test_a_frozen_backbone_is_not_trained_and_not_saved(published):
    cfg = tiny2(published, weights=str(published), tuning="frozen")
    backbone = build_backbone(cfg)
    assert not any(p.requires_grad for p in backbone.parameters())
    assert backbone.state_dict() == {}
    backbone.load_state_dict({})
    assert build_backbone(cfg.replace(weights=None)).state_dict() != {}


def test_adapters_train_beside_the_frozen_base_and_merge_into_it(published, tmp_path):
    cfg = tiny2(published, weights=str(published), tuning=LoRACfg(rank=2, alpha=4))
    torch.manual_seed(0)
    backbone = build_backbone(cfg)
    trained = {name for name, p in backbone.named_parameters() if p.requires_grad}
    assert trained
    assert all(".lora_" in name and "language_model" in name for name in trained)
    assert set(backbone.state_dict()) == trained
    before = backbone(view(cfg)).tokens.detach()
    with torch.no_grad():
        for name, p in backbone.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.1)
    after = backbone(view(cfg)).tokens.detach()
    assert (after - before).abs().max() > 1e-3
    with without_adapters(backbone):
        assert torch.equal(backbone(view(cfg)).tokens, before)
    assert torch.equal(backbone(view(cfg)).tokens, after)
    whole = build_backbone(cfg.replace(tuning="full", weights=None))
    whole.load_state_dict(merged_weights(backbone))
    assert (whole(view(cfg)).tokens - after).abs().max() < 1e-5


@pytest.fixture
def adapted(published):
    """Adapters of rank 4 on a bfloat16 base, so small that bfloat16 would round them away."""
    tuning = LoRACfg(rank=4, alpha=4)
    torch.manual_seed(0)
    backbone = build_backbone(tiny2(published, weights=str(published), dtype="bf16", tuning=tuning))
    for name, parameter in backbone.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=1e-4)
    return backbone


def test_adapters_on_a_bfloat16_base_are_float32_and_so_is_what_they_are_merged_into(adapted):
    kinds = {".lora_" in name: p.dtype for name, p in adapted.named_parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
    exact, seen = copy.deepcopy(adapted).float(), view(adapted.cfg)
    after = exact(seen).tokens
    with without_adapters(exact):
        effect = (after - exact(seen).tokens).abs().max()
    whole = build_backbone(adapted.cfg.replace(tuning="full", weights=None, dtype="fp32"))
    weights = merged_weights(adapted)
    whole.load_state_dict(weights)
    assert 0 < (whole(seen).tokens - after).abs().max() < 0.02 * effect
    rounded = {name: value.bfloat16() for name, value in weights.items()}
    whole.load_state_dict(rounded)
    assert (whole(seen).tokens - after).abs().max() > 0.3 * effect  # what a bfloat16 merge did


def test_a_merge_is_compared_with_the_adapters_before_it_replaces_them(adapted):
    exact, seen = copy.deepcopy(adapted).float(), view(adapted.cfg)
    with pytest.raises(ValueError, match=r"the adapters would be lost: they change outputs by"):
        merge_adapters(adapted, "bf16")
    assert has_adapters(adapted)
    merge = merge_adapters(adapted)
    assert not has_adapters(adapted)
    assert {p.dtype for p in adapted.parameters()} == {torch.float32}
    assert merge.change > 1e-5
    assert merge.deviation < 0.01
    assert (adapted(seen).tokens - exact(seen).tokens).abs().max() < 1e-5


def test_a_wrong_merge_is_noticed(adapted, monkeypatch):
    from peft.tuners.lora import Linear

    right = Linear.get_delta_weight
    monkeypatch.setattr(Linear, "get_delta_weight", lambda *given: -right(*given))
    with pytest.raises(ValueError, match="the adapters would be lost"):
        merged_weights(adapted)


def test_adapters_are_only_loaded_on_their_own_base(published, tmp_path):
    saved = tmp_path / "checkpoint"
    saved.mkdir()
    cfg = tiny2(published, weights=str(published), tuning=LoRACfg(rank=2))
    backbone = build_backbone(cfg)
    for name, text in backbone.assets().items():
        (saved / name).write_text(text)
    with pytest.raises(ValueError, match="nothing says which base"):
        build_backbone(cfg, saved)
    for name, text in base_assets(backbone).items():
        (saved / name).write_text(text)
    build_backbone(cfg, saved).load_state_dict(backbone.state_dict())
    other = tmp_path / "other"
    other.mkdir()
    for path in published.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    shard = weight_files(other)[0]
    save_file({name: value + 1 for name, value in load_file(shard).items()}, shard)
    assert weights_digest(other) != weights_digest(published)
    with pytest.raises(ValueError, match="was trained on other base weights than those at"):
        build_backbone(cfg.replace(weights=str(other)), saved)


def test_a_target_that_matches_nothing_is_refused(published):
    cfg = tiny2(published, tuning=LoRACfg(target="nothing"))
    with pytest.raises(ValueError, match="no adapter can be added with target 'nothing'"):
        build_backbone(cfg)


def test_bfloat16_weights_keep_positions_in_float32(published):
    cfg = tiny2(published, weights=str(published), dtype="bf16")
    backbone = build_backbone(cfg)
    assert {p.dtype for p in backbone.parameters()} == {torch.bfloat16}
    assert backbone.model.language_model.rotary_emb.inv_freq.dtype == torch.float32
    exact = build_backbone(cfg.replace(dtype="fp32"))
    difference = backbone(view(cfg)).tokens.float() - exact(view(cfg)).tokens
    assert difference.abs().mean() < 0.02
    assert torch.get_default_dtype() == torch.float32
