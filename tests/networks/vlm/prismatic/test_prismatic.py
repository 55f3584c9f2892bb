"""OpenVLA's backbone against the original, and rows that must not influence each other."""

import functools

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
from tests.golden_files import GOLDEN, close, golden

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
    """The weights of the golden file in our backbone, and the file's inputs and outputs."""
    size = {"width": 18, "depth": 3, "num_heads": 2}
    cfg = PrismaticCfg(
        image=ImageRuleCfg(size=(42, 42), fit="stretch"),
        featurizer=TowerCfg(
            **size, mlp_features=72, class_token=True, num_registers=4, layer_scale=1e-5
        ),
        fused_featurizer=TowerCfg(**size, mlp_features=67, attention_pool=True),
        language=LlamaCfg(
            width=40, mlp_features=56, depth=2, num_heads=4, num_key_value_heads=4, max_tokens=512
        ),
    )
    backbone = PrismaticBackbone(cfg).eval()
    with np.load(GOLDEN / "openvla.npz", allow_pickle=False) as data:
        weights = {
            backbone.published_name(key.removeprefix("weights/")): torch.from_numpy(
                data[key].astype(np.float32)
            )
            for key in data.files
            if key.startswith("weights/")
        }
        arrays = {
            key: torch.from_numpy(data[key])
            for key in data.files
            if key.startswith(("inputs/", "outputs/"))
        }
    backbone.load_state_dict(weights)
    return backbone, arrays


def joined(original):
    backbone, arrays = original
    pixels = arrays["inputs/pixel_values"].float()
    shown = torch.ones(len(pixels), 1, dtype=torch.bool)
    ids, is_id = arrays["inputs/input_ids"], arrays["inputs/attention_mask"].bool()
    return backbone.joined([pixels], shown, ids, is_id)


@torch.no_grad()
def test_features_and_logits_are_those_of_openvla(original):
    backbone, arrays = original
    vision = backbone.vision_backbone(arrays["inputs/pixel_values"].float())
    close(vision, arrays["outputs/vision_features"], 1e-5)
    close(backbone.projector(vision), arrays["outputs/projector_features"], 1e-5)
    tokens = joined(original)
    hidden = backbone.hidden(tokens)
    is_token = tokens.is_token
    close(hidden[is_token], arrays["outputs/last_hidden_state"][is_token], 1e-5)
    logits = backbone.language_model.lm_head(hidden)
    close(
        logits[..., 31744:32000][is_token], arrays["outputs/logits_action_tokens"][is_token], 1e-5
    )


@torch.no_grad()
def test_the_loss_is_that_of_openvla(original):
    backbone, arrays = original
    logits = backbone.language_model.lm_head(backbone.hidden(joined(original)))
    labels = torch.cat(
        [arrays["inputs/labels"][:, :1], torch.full((2, 9), -100), arrays["inputs/labels"][:, 1:]],
        dim=1,
    )
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    close(loss, arrays["outputs/loss"], 1e-5)


@pytest.mark.parametrize(("row", "ids"), [(0, [1, 450, 2, 99, 29871]), (1, [1, 450, 7, 8, 29871])])
def test_greedy_tokens_with_a_cache_are_those_of_openvla(original, monkeypatch, row, ids):
    backbone, arrays = original
    pixels, words = arrays["inputs/pixel_values"][[row]].float(), torch.tensor([ids])
    tokens = backbone.joined([pixels], torch.ones(1, 1, dtype=torch.bool), words, words > 0)
    monkeypatch.setattr(backbone, "_view", lambda view: tokens)
    found = backbone.answer(view([""]), 7, lambda logits, place: logits.argmax(-1))
    assert found.tolist() == arrays["outputs/greedy_tokens"][[row]].tolist()


@torch.no_grad()
def test_a_row_does_not_depend_on_the_length_of_other_prompts(tiny):
    both = view(["open", "open the the the door"])
    slots = torch.randn(2, 3, 24)
    answer = torch.tensor([[7, 8, 9], [9, 8, 7]])
    for number in (0, 1):
        alone, mine = row(both, number), slice(number, number + 1)
        features, single = tiny(both), tiny(alone)
        is_token = features.is_token[number]
        close(features.tokens[number, is_token], single.tokens[0, single.is_token[0]], 1e-5)
        assert features.is_image[number].sum() == 8
        close(tiny.fill_slots(both, slots)[mine], tiny.fill_slots(alone, slots[mine]), 1e-5)
        logits = tiny.language_logits(both, answer)[mine]
        close(logits, tiny.language_logits(alone, answer[mine]), 1e-5)


@torch.no_grad()
def test_no_token_sees_a_camera_that_is_not_shown(tiny):
    seen, other = view(["open"], seed=1), view(["open"], seed=2)
    hidden = torch.tensor([[True, False]])
    one = View((seen.images[0], seen.images[1]), hidden, seen.prompts)
    two = View((seen.images[0], other.images[1]), hidden, seen.prompts)
    slots = torch.zeros(1, 2, 24)
    close(tiny.fill_slots(one, slots), tiny.fill_slots(two, slots), 0)
    single = View((seen.images[0],), hidden[:, :1], seen.prompts)
    close(tiny.fill_slots(one, slots), tiny.fill_slots(single, slots), 1e-5)


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
    close(own.fill_slots(given, slots)[:, :-1], tiny.fill_slots(given, slots)[:, 1:], 0)
    state = torch.ones(1, 1, 24)
    assert (tiny.fill_slots(given, slots, state) - own.fill_slots(given, slots)).abs().max() > 1e-3


def test_a_film_block_is_that_of_openvla_oft():
    _, arrays = golden("openvla_oft_heads.npz", "film_vit_block")
    norm = functools.partial(torch.nn.LayerNorm, eps=1e-5)  # timm 0.9.16 made the file
    plain = Block(24, 3, mlp_ratio=4, qkv_bias=True, init_values=0.5, norm_layer=norm)
    block = FiLMBlock(plain, 24, 16).eval()
    prefix = "weights."
    block.load_state_dict(
        {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    )
    with torch.no_grad():
        found = block(arrays["x"], arrays["average_language_embedding"])
    close(found, arrays["out"], 2e-6)


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
    close(gradients[0], gradients[1], 1e-7)


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
