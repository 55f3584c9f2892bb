"""Qwen2-VL and Qwen3-VL as backbones: the same as transformers' own processors and models."""

import numpy as np
import pytest
import torch

from rrf.networks.vlm.backbone import View
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.qwen.configs import Qwen2VLCfg
from tests.networks.vlm.qwen.tiny_qwen import PROMPTS, tiny2, tiny3, write_tokenizer

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}"
    "{{ m['content'] }}{% else %}{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


BOTH = pytest.mark.parametrize("tiny", [tiny2, tiny3])


def view(cfg, num_images=2):
    rng = np.random.default_rng(0)
    shape = (len(PROMPTS), *cfg.image.size, 3)
    images = [torch.from_numpy(rng.integers(0, 256, shape, np.uint8)) for _ in range(num_images)]
    is_shown = torch.ones(len(PROMPTS), num_images, dtype=torch.bool)
    is_shown[1, 0] = False
    return View(tuple(images), is_shown, list(PROMPTS))


def original(backbone, batch):
    """What transformers makes of the same images and prompts, with its own processor."""
    import transformers

    cfg = backbone.cfg
    fast = transformers.Qwen2TokenizerFast(
        tokenizer_file=f"{cfg.tokenizer.files}/tokenizer.json",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )
    pictures = transformers.Qwen2VLImageProcessorFast(
        patch_size=cfg.patch_size,
        min_pixels=1,
        max_pixels=10**6,
        image_mean=list(cfg.image.mean),
        image_std=list(cfg.image.std),
    )
    is_second = isinstance(cfg, Qwen2VLCfg)
    kind = transformers.Qwen2VLProcessor if is_second else transformers.Qwen3VLProcessor
    movies = transformers.Qwen2VLVideoProcessor if is_second else transformers.Qwen3VLVideoProcessor
    for name in ("image", "video"):
        setattr(fast, f"{name}_token", f"<|{name}_pad|>")
        setattr(fast, f"{name}_token_id", fast.convert_tokens_to_ids(f"<|{name}_pad|>"))
    for name in ("vision_start", "vision_end"):
        setattr(fast, f"{name}_token", f"<|{name}|>")
        setattr(fast, f"{name}_token_id", fast.convert_tokens_to_ids(f"<|{name}|>"))
    processor = kind(
        image_processor=pictures,
        tokenizer=fast,
        video_processor=movies(patch_size=cfg.patch_size),
        chat_template=CHAT,
    )
    texts, images = [], []
    for row, prompt in enumerate(batch.prompts):
        shown = [
            image[row]
            for image, is_shown in zip(batch.images, batch.is_shown[row], strict=True)
            if is_shown
        ]
        images += [image.permute(2, 0, 1) for image in shown]
        content = [{"type": "image"}] * len(shown) + [{"type": "text", "text": prompt}]
        system = [{"role": "system", "content": cfg.system_prompt}] if cfg.system_prompt else []
        turns = [*system, {"role": "user", "content": content}]
        texts.append(processor.apply_chat_template(turns, tokenize=False))
    inputs = processor(text=texts, images=images, return_tensors="pt", padding=True)
    return inputs, backbone.model(**inputs, use_cache=False).last_hidden_state


@BOTH
def test_tokens_and_features_are_those_of_transformers(tiny, files):
    torch.manual_seed(0)
    backbone = tiny(files).build().eval()
    batch = view(backbone.cfg)
    with torch.no_grad():
        inputs, wanted = original(backbone, batch)
        features = backbone(batch)
    assert torch.equal(features.is_token, inputs["attention_mask"].bool())
    per_image = int(inputs["image_grid_thw"][0].prod()) // 4
    assert features.is_image.sum(1).tolist() == [2 * per_image, per_image]
    mask = features.is_token
    assert (features.tokens[mask] - wanted[mask]).abs().max() < 2e-6
    assert wanted[mask].abs().mean() > 0.1


@BOTH
def test_padding_and_hidden_cameras_change_nothing(tiny, files):
    torch.manual_seed(0)
    backbone = tiny(files).build().eval()
    batch = view(backbone.cfg)
    with torch.no_grad():
        both = backbone(batch)
        alone = backbone(
            View(tuple(i[1:] for i in batch.images[1:]), batch.is_shown[1:, 1:], PROMPTS[1:])
        )
    length = int(both.is_token[1].sum())
    assert (both.tokens[1, -length:] - alone.tokens[0, -length:]).abs().max() < 2e-6


@BOTH
def test_a_prompt_without_any_image_is_read(tiny, files):
    backbone = tiny(files).build().eval()
    batch = view(backbone.cfg)
    batch.is_shown[:] = False
    assert not backbone(batch).is_image.any()


@BOTH
def test_upper_layers_and_the_output_layer_are_left_out(tiny, files):
    backbone = tiny(files, num_layers=2).build()
    assert len(backbone.model.language_model.layers) == 2
    assert backbone.published_name("lm_head.weight") is None
    assert backbone.published_name("model.language_model.layers.2.mlp.up_proj.weight") is None
    name = "model.language_model.layers.1.mlp.up_proj.weight"
    assert backbone.published_name(name) == name
    assert name in backbone.state_dict()


def test_the_hub_names_of_qwen2_are_understood(files):
    backbone = tiny2(files).build()
    renamed = backbone.published_name
    assert renamed("visual.blocks.0.attn.qkv.weight") == "model.visual.blocks.0.attn.qkv.weight"
    assert renamed("model.embed_tokens.weight") == "model.language_model.embed_tokens.weight"
    assert renamed("model.layers.2.mlp.up_proj.weight") in backbone.state_dict()


@BOTH
def test_features_before_the_final_norm(tiny, files):
    torch.manual_seed(0)
    normed = tiny(files).build().eval()
    raw = tiny(files, final_norm=False).build().eval()
    weights = normed.state_dict()
    norm = weights.pop("model.language_model.norm.weight")
    raw.load_state_dict(weights)
    batch = view(normed.cfg)
    with torch.no_grad():
        before, after = raw(batch).tokens, normed(batch).tokens
    scale = torch.rsqrt(before.square().mean(-1, keepdim=True) + 1e-6)
    assert (before * scale * norm - after).abs().max() < 1e-5
    assert raw.published_name("model.language_model.norm.weight") is None


@BOTH
def test_gradient_checkpointing_gives_the_same_gradient(tiny, files):
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        backbone = tiny(files, gradient_checkpointing=checkpointing).build().train()
        backbone(view(backbone.cfg)).tokens.square().mean().backward()
        weight = backbone.model.visual.blocks[0].attn.qkv.weight
        gradients.append(weight.grad)
    assert gradients[0].abs().max() > 0
    assert torch.allclose(gradients[0], gradients[1], atol=1e-7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": ImageRuleCfg(size=(60, 56))}, "allowed: multiples of 28"),
        ({"mrope_section": [1, 2, 3]}, "three numbers whose sum is 8"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(files, changes, message):
    with pytest.raises(ValueError, match=message):
        tiny2(files).replace(**changes)
    with pytest.raises(ValueError, match="deepstack is"):
        tiny3(files, deepstack=[7])


def test_a_tokenizer_that_is_too_large_is_refused(files):
    with pytest.raises(ValueError, match="but vocab_size is 100"):
        tiny2(files, vocab_size=100).build()
