"""The Eagle backbone, tiny and random, beside the code that NVIDIA published."""

import numpy as np
import pytest
import torch

from rrf.networks.vlm.backbone import View
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.eagle import backbone as eagle
from rrf.networks.vlm.eagle.backbone import joined_patches
from rrf.networks.vlm.eagle.configs import EagleCfg
from rrf.networks.vlm.images import fitted, normalized
from tests.closeness import assert_close
from tests.golden_files import cases, golden

WORDS = TokenizerCfg(words=["open", "the", "door", "image", "1", "2"])


def tiny(**changes):
    sizes = {"hidden_size": 32, "num_layers": 3, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
    sizes |= {"intermediate_size": 48, "vocab_size": 40, "vision_depth": 2, "vision_width": 16}
    sizes |= {"vision_heads": 2, "vision_intermediate": 24, "patch_size": 8}
    sizes |= {"image": ImageRuleCfg(size=(32, 32)), "tokenizer": WORDS}
    torch.manual_seed(0)
    return EagleCfg(**(sizes | changes)).build().eval()


def view(shown=((True, True), (True, False))):
    rng = np.random.default_rng(0)
    images = [torch.from_numpy(rng.integers(0, 256, (2, 40, 40, 3), np.uint8)) for _ in range(2)]
    return View(tuple(images), torch.tensor(shown), ["open the door", "open"])


def test_four_neighbouring_patches_are_one_token():
    # 4 x 4 patches, numbered along the rows
    found = joined_patches(torch.arange(16.0).view(1, 16, 1))
    assert found[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


@pytest.mark.parametrize("case", cases("eagle.npz", ".*"))
def test_features_equal_those_of_the_published_code(case, monkeypatch):
    sizes, arrays = golden("eagle.npz", case)
    size = sizes.pop("image_size")
    backbone, seen = tiny(**sizes, image=ImageRuleCfg(size=(size, size))), view()
    start = "weights/"
    weights = {n.removeprefix(start): v for n, v in arrays.items() if n.startswith(start)}
    backbone.load_state_dict({str(backbone.published_name(n)): v for n, v in weights.items()})
    rule, places = backbone.cfg.image, ((0, 0), (0, 1), (1, 0))
    pixels = [normalized(fitted(seen.images[c][b : b + 1], rule), rule)[0] for b, c in places]
    # A grey level that lies half-way is rounded up or down; features are those of the same pixels.
    level = 1 / 255 / torch.tensor(rule.std)[:, None, None]
    apart = (torch.stack(pixels) - arrays["pixels"]).abs() / level
    assert apart.max() < 1.01
    assert (apart > 0.01).float().mean() < 0.01
    given = torch.zeros(2, 2, 3, *rule.size)
    for (b, c), image in zip(places, arrays["pixels"], strict=True):
        given[c, b] = image
    images = iter(given)
    monkeypatch.setattr(eagle, "normalized", lambda images_b3hw, rule: next(images))
    with torch.no_grad():
        features = backbone(seen)
    for b, (prompt, count) in enumerate(zip(seen.prompts, (2, 1), strict=True)):
        assert backbone.row(prompt, count) == arrays[f"ids_{b}"].tolist()
        expected = arrays[f"features_{b}"]
        assert_close(features.tokens[b, -len(expected) :], expected)


def test_masks_say_what_is_a_token_and_what_an_image():
    backbone = tiny()
    found = backbone(view())
    assert found.is_image.sum(1).tolist() == [8, 4]  # 4 tokens of 2 and 1 images
    assert found.tokens.shape == (*found.is_token.shape, 32)
    rows = [len(backbone.row("open the door", 2)), len(backbone.row("open", 1))]
    assert found.is_token.sum(1).tolist() == rows


def test_a_row_does_not_depend_on_padding_or_on_hidden_images():
    backbone = tiny()
    both = backbone(view())
    alone = View(
        tuple(image[1:] for image in view().images), torch.tensor([[True, False]]), ["open"]
    )
    alone.images[1][:] = 0  # not shown
    one = backbone(alone)
    assert torch.allclose(both.tokens[1][both.is_token[1]], one.tokens[0], atol=1e-6)


def test_without_images_there_are_only_words():
    assert not tiny()(view(((False, False), (False, False)))).is_image.any()


def test_published_names_leave_out_what_is_not_used():
    backbone = tiny()
    own = set(backbone.state_dict())
    name = "language_model.model.layers.2.mlp.up_proj.weight"
    assert backbone.published_name(name) in own
    assert backbone.published_name("mlp1.1.weight") in own
    assert backbone.published_name(name.replace("layers.2", "layers.3")) is None
    assert backbone.published_name("language_model.lm_head.weight") is None


def test_images_must_be_squares_of_whole_tokens():
    with pytest.raises(ValueError, match="a multiple of 16"):
        tiny(image=ImageRuleCfg(size=(32, 40)))
