"""OpenVLA's backbone against the original, and rows that must not influence each other."""

import functools
import json

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import Block

from rrf.networks.vlm.backbone import View
from rrf.networks.vlm.build import build_backbone
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.prismatic.backbone import PrismaticBackbone
from rrf.networks.vlm.prismatic.configs import LlamaCfg, PrismaticCfg, TowerCfg
from rrf.networks.vlm.prismatic.vision import FiLMBlock
from tests.closeness import assert_close
from tests.golden_files import GOLDEN, golden

DEEP = 32
"""Ulps behind both vision towers, projector and language model; 12 on one of seven processors."""
TINY = PrismaticCfg(
    image=ImageRuleCfg(size=(16, 16), fit="stretch"),
    featurizer=TowerCfg(
        width=16, depth=2, num_heads=2, mlp_features=32, patch_size=8, class_token=True,
        num_registers=2, layer_scale=1.0,
    ),
    fused_featurizer=TowerCfg(
        width=16, depth=2, num_heads=2, mlp_features=32, patch_size=8, attention_pool=True
    ),
    language=LlamaCfg(
        vocabulary_size=48, width=24, mlp_features=32, depth=2, num_heads=2, num_key_value_heads=2
    ),
    tokenizer=TokenizerCfg(words=["open", "the", "door"]),
    prompt_suffix_ids=[5],
    slot_suffix_ids=[4],
)  # fmt: skip


def view(prompts, num_cameras=2, seed=0):
    rng = np.random.default_rng(seed)
    shape = (len(prompts), 16, 16, 3)
    images = tuple(
        torch.from_numpy(rng.integers(0, 256, shape, np.uint8)) for _ in range(num_cameras)
    )
    return View(images, torch.ones(len(prompts), num_cameras, dtype=torch.bool), prompts)


def row(of, number):
    images = tuple(image[number : number + 1] for image in of.images)
    return View(images, of.is_shown[number : number + 1], of.prompts[number : number + 1])


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(0)
    return TINY.build().eval()


@pytest.fixture(scope="module")
def original():
    """The weights of the golden file in our backbone, its inputs and outputs, and its settings."""
    with np.load(GOLDEN / "openvla.npz", allow_pickle=False) as data:
        sizes = json.loads(str(data["config_json"]))["weights"]
        weights = {
            key.removeprefix("weights/"): torch.from_numpy(data[key].astype(np.float32))
            for key in data.files
            if key.startswith("weights/")
        }
        arrays = {
            key: torch.from_numpy(data[key])
            for key in data.files
            if key.startswith(("inputs/", "outputs/"))
        }
    backbone = PrismaticBackbone(original_cfg(sizes, weights)).eval()
    backbone.load_state_dict({backbone.published_name(key): w for key, w in weights.items()})
    return backbone, arrays, sizes


def original_cfg(sizes: dict, weights: dict[str, torch.Tensor]) -> PrismaticCfg:
    """The sizes of a golden file, where it does not name them from the shapes of its weights."""
    text = sizes["text"]

    def tower(name: str, **parts) -> TowerCfg:
        start = f"vision_backbone.{name}."
        return TowerCfg(
            width=sizes["embed_dim"],
            depth=sizes["depth"],
            num_heads=sizes["num_heads"],
            mlp_features=len(weights[f"{start}blocks.0.mlp.fc1.weight"]),
            patch_size=weights[f"{start}patch_embed.proj.weight"].shape[-1],
            **parts,
        )

    registers = weights["vision_backbone.featurizer.reg_token"].shape[1]
    return PrismaticCfg(
        image=ImageRuleCfg(size=(sizes["image"], sizes["image"]), fit="stretch"),
        featurizer=tower("featurizer", class_token=True, num_registers=registers, layer_scale=1e-5),
        fused_featurizer=tower("fused_featurizer", attention_pool=True),
        language=LlamaCfg(
            width=text["hidden_size"],
            mlp_features=text["intermediate_size"],
            depth=text["num_hidden_layers"],
            num_heads=text["num_attention_heads"],
            num_key_value_heads=text["num_key_value_heads"],
            max_tokens=text["max_position_embeddings"],
            vocabulary_size=text["vocab_size"],
        ),
        prompt_suffix_ids=[],
        slot_suffix_ids=[],
    )


def last_action_token(sizes: dict) -> int:
    """Where the tokens of actions end: the rest of the vocabulary only fills it up."""
    return sizes["text"]["vocab_size"] - sizes["pad_to_multiple_of"]


def joined(original):
    backbone, arrays, _ = original
    pixels = arrays["inputs/pixel_values"].float()
    shown = torch.ones(len(pixels), 1, dtype=torch.bool)
    ids, is_id = arrays["inputs/input_ids"], arrays["inputs/attention_mask"].bool()
    return backbone.joined([pixels], shown, ids, is_id)


@torch.no_grad()
def test_features_and_logits_are_those_of_openvla(original):
    backbone, arrays, sizes = original
    vision = backbone.vision_backbone(arrays["inputs/pixel_values"].float())
    assert_close(vision, arrays["outputs/vision_features"])
    assert_close(backbone.projector(vision), arrays["outputs/projector_features"])
    tokens = joined(original)
    hidden = backbone.hidden(tokens)
    is_token = tokens.is_token
    assert_close(hidden[is_token], arrays["outputs/last_hidden_state"][is_token], DEEP)
    logits = backbone.language_model.lm_head(hidden)
    last = last_action_token(sizes)
    found = logits[..., last - sizes["n_action_bins"] : last]
    assert_close(found[is_token], arrays["outputs/logits_action_tokens"][is_token], DEEP)


@torch.no_grad()
def test_the_loss_is_that_of_openvla(original):
    backbone, arrays, _ = original
    logits = backbone.language_model.lm_head(backbone.hidden(joined(original)))
    labels = arrays["inputs/labels"]
    patches = torch.full(arrays["outputs/vision_features"].shape[:2], -100)  # no loss of them
    labels = torch.cat([labels[:, :1], patches, labels[:, 1:]], dim=1)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    assert_close(loss, arrays["outputs/loss"], DEEP)


def test_greedy_tokens_with_a_cache_are_those_of_openvla(original, monkeypatch):
    backbone, arrays, _ = original
    for row, expected in enumerate(arrays["outputs/greedy_tokens"].tolist()):
        is_answer = arrays["inputs/labels"][row] != -100
        words = arrays["inputs/input_ids"][row : row + 1, : int(is_answer.nonzero()[0])]
        pixels = arrays["inputs/pixel_values"][[row]].float()
        tokens = backbone.joined([pixels], torch.ones(1, 1, dtype=torch.bool), words, words > 0)
        monkeypatch.setattr(backbone, "_view", lambda view, tokens=tokens: tokens)
        found = backbone.answer(view([""]), len(expected), lambda logits, _: logits.argmax(-1))
        assert found.tolist() == [expected]


@torch.no_grad()
def test_a_row_does_not_depend_on_the_length_of_other_prompts(tiny):
    both = view(["open", "open the the the door"])
    slots = torch.randn(2, 3, 24)
    answer = torch.tensor([[7, 8, 9], [9, 8, 7]])
    for number in (0, 1):
        alone, mine = row(both, number), slice(number, number + 1)
        features, single = tiny(both), tiny(alone)
        is_token = features.is_token[number]
        assert_close(features.tokens[number, is_token], single.tokens[0, single.is_token[0]])
        assert features.is_image[number].sum() == 8
        assert_close(tiny.fill_slots(both, slots)[mine], tiny.fill_slots(alone, slots[mine]))
        logits = tiny.language_logits(both, answer)[mine]
        assert_close(logits, tiny.language_logits(alone, answer[mine]))


@torch.no_grad()
def test_no_token_sees_a_camera_that_is_not_shown(tiny):
    seen, other = view(["open"], seed=1), view(["open"], seed=2)
    hidden = torch.tensor([[True, False]])
    one = View((seen.images[0], seen.images[1]), hidden, seen.prompts)
    two = View((seen.images[0], other.images[1]), hidden, seen.prompts)
    slots = torch.zeros(1, 2, 24)
    assert torch.equal(tiny.fill_slots(one, slots), tiny.fill_slots(two, slots))
    single = View((seen.images[0],), hidden[:, :1], seen.prompts)
    assert_close(tiny.fill_slots(one, slots), tiny.fill_slots(single, slots))


@torch.no_grad()
def test_generated_tokens_are_the_most_probable_given_those_before(tiny):
    given = view(["open", "open the door"])
    answer = tiny.answer(given, 4, lambda logits, place: logits.argmax(-1))
    assert torch.equal(tiny.language_logits(given, answer).argmax(-1), answer)


def test_generation_ends_when_every_row_has_stopped(tiny):
    plan = torch.tensor([[1, 9, 3, 4], [9, 2, 3, 4]])
    answer = tiny.answer(view(["open", "door"]), 4, lambda logits, place: plan[:, place], stop=9)
    assert answer.tolist() == [[1, 9], [9, 2]]


@torch.no_grad()
def test_slots_see_each_other_and_what_follows_them(tiny):
    given, slots = view(["open"]), torch.zeros(1, 3, 24)
    before = tiny.fill_slots(given, slots)
    slots[0, 2] = 1.0  # the last one changes the first one: attention goes both ways
    assert (tiny.fill_slots(given, slots) - before)[0, 0].abs().max() > 1e-3
    own = TINY.replace(slot_output="own").build().eval()
    own.load_state_dict(tiny.state_dict())
    assert torch.equal(own.fill_slots(given, slots)[:, :-1], tiny.fill_slots(given, slots)[:, 1:])
    state = torch.ones(1, 1, 24)
    assert (tiny.fill_slots(given, slots, state) - own.fill_slots(given, slots)).abs().max() > 1e-3


def test_a_film_block_is_that_of_openvla_oft():
    sizes, arrays = golden("openvla_oft_heads.npz", "film_vit_block")
    prefix = "weights."
    weights = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    width, num_heads = sizes["vis"], sizes["heads"]
    norm = functools.partial(torch.nn.LayerNorm, eps=1e-5)  # timm 0.9.16 made the file
    plain = Block(
        width,
        num_heads,
        mlp_ratio=len(weights["block.mlp.fc1.weight"]) / width,
        qkv_bias=True,
        init_values=sizes["init_values"],
        norm_layer=norm,
    )
    block = FiLMBlock(plain, width, sizes["llm"]).eval()
    block.load_state_dict(weights)
    with torch.no_grad():
        found = block(arrays["x"], arrays["average_language_embedding"])
    assert_close(found, arrays["out"])


@torch.no_grad()
def test_film_makes_the_patches_depend_on_the_prompt():
    torch.manual_seed(0)
    backbone = TINY.replace(film=True).build().eval()
    one, two = view(["open"]), view(["door"])
    patches = slice(1, 9)
    one, two = (backbone._view(each).embedding[:, patches] for each in (one, two))
    assert (one - two).abs().max() > 1e-4


def test_checkpointing_computes_the_same_gradients(tiny):
    given, gradients = view(["open", "the door"]), []
    for checkpoints in (False, True):
        backbone = TINY.replace(gradient_checkpointing=checkpoints).build().train()
        backbone.load_state_dict(tiny.state_dict())
        backbone(given).tokens.square().mean().backward()
        gradients.append(backbone.vision_backbone.featurizer.patch_embed.proj.weight.grad)
    assert_close(gradients[0], gradients[1])


def test_bf16_keeps_the_frequencies_of_positions_in_float32():
    backbone = build_backbone(TINY.replace(dtype="bf16"))
    assert {p.dtype for p in backbone.parameters()} == {torch.bfloat16}
    assert backbone.language_model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert backbone(view(["open"])).tokens.dtype == torch.bfloat16


def test_the_default_is_openvla_7b():
    with torch.device("meta"):
        backbone = PrismaticCfg().build()

    def millions(module):
        return round(sum(p.numel() for p in module.parameters()) / 1e6)

    vision = backbone.vision_backbone
    parts = (vision.featurizer, vision.fused_featurizer, backbone.projector)
    assert [millions(part) for part in parts] == [303, 428, 71]
    assert [millions(backbone.language_model), millions(backbone)] == [6739, 7541]


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"featurizer.patch_size is 8, allowed: a divisor"):
        TINY.replace(image=ImageRuleCfg(size=(20, 20)))
    with pytest.raises(ValueError, match=r"slot_suffix_ids hold 99, allowed: below"):
        TINY.replace(slot_suffix_ids=[99])
    words = [f"w{number}" for number in range(60)]
    with pytest.raises(ValueError, match=r"vocabulary_size is 48, allowed: at least 63"):
        TINY.replace(tokenizer=TokenizerCfg(words=words)).build()
