"""Camera images are brought to the size that a vision tower sees."""

import numpy as np
import pytest
import torch
from PIL import Image

from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.eagle.configs import N15_IMAGE
from rrf.networks.vlm.images import fitted, normalized
from rrf.networks.vlm.prismatic.configs import OPENVLA_IMAGE
from tests.golden_files import GOLDEN


def image(height, width):
    noise = np.random.default_rng(0).integers(0, 256, (1, height, width, 3), dtype=np.uint8)
    return torch.from_numpy(noise)


def test_resizing_is_that_of_pillow():
    small = fitted(image(60, 80), ImageRuleCfg(size=(30, 40), fit="stretch"))
    wanted = Image.fromarray(image(60, 80)[0].numpy()).resize((40, 30), Image.Resampling.BILINEAR)
    difference = small[0].permute(1, 2, 0).int() - torch.from_numpy(np.array(wanted)).int()
    assert difference.abs().max() <= 1


def test_padding_keeps_the_ratio_and_adds_black_bars():
    white = torch.full((1, 30, 60, 3), 255, dtype=torch.uint8)
    padded = fitted(white, ImageRuleCfg(size=(40, 40), fit="pad"))
    assert padded.shape == (1, 3, 40, 40)
    rows = padded[0, 0].float().mean(1)
    assert rows[:10].max() == 0
    assert rows[10:30].min() == 255
    assert rows[30:].max() == 0


def test_cropping_cuts_the_longer_side_on_both_ends():
    stripes = torch.zeros(1, 20, 60, 3, dtype=torch.uint8)
    stripes[:, :, 20:40] = 200
    assert (fitted(stripes, ImageRuleCfg(size=(20, 20), fit="crop")) == 200).all()


def test_stretching_uses_the_whole_image():
    halves = torch.zeros(1, 20, 60, 3, dtype=torch.uint8)
    halves[:, :, 30:] = 100
    stretched = fitted(halves, ImageRuleCfg(size=(20, 20), fit="stretch"))[0, 0]
    assert stretched[:, :9].max() == 0
    assert stretched[:, 11:].min() == 100


def test_an_image_of_the_right_size_is_not_touched():
    same = image(16, 16)
    assert torch.equal(fitted(same, ImageRuleCfg(size=(16, 16))), same.permute(0, 3, 1, 2))


def test_channels_are_normalised_one_by_one():
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    rule = ImageRuleCfg(mean=(0.0, 0.2, 0.5), std=(1.0, 0.1, 0.25))
    assert normalized(pixels, rule).flatten().tolist() == pytest.approx([0.0, 0.0, 2.0], abs=1e-6)


@pytest.mark.parametrize(
    "wrong", [torch.zeros(1, 8, 8, 3), torch.zeros(8, 8, 3, dtype=torch.uint8)]
)
def test_other_images_are_refused(wrong):
    with pytest.raises(ValueError, match=r"expected uint8\[B, H, W, 3\]"):
        fitted(wrong, ImageRuleCfg(size=(4, 4)))


OPENVLA = np.load(GOLDEN / "openvla_images.npz")


@pytest.mark.parametrize("case", sorted({name.partition("/")[0] for name in OPENVLA}))
def test_images_of_openvla_are_those_of_tensorflow(case):
    picture, resized, cropped, whole = (
        torch.from_numpy(OPENVLA[f"{case}/{step}"])
        for step in ("image", "resized", "cropped", "whole")
    )
    size = (resized.shape[0], resized.shape[1])
    rule = OPENVLA_IMAGE.replace(size=size)

    def levels_off(image, used, wanted):
        made = fitted(image[None], used)[0].permute(1, 2, 0)
        return (made.int() - wanted.int()).abs().float()

    for image, used, wanted in (
        (picture, rule.replace(keeps=1.0), resized),
        (resized, rule, cropped),
        (picture, rule, cropped),
    ):
        off = levels_off(image, used, wanted)
        assert off.max() <= 1
        assert off.mean() < 1e-3
    before = levels_off(picture, ImageRuleCfg(size=size, fit="stretch"), cropped).mean()
    assert before > 5  # what it was
    # TensorFlow reads JPEGs less exactly than Pillow
    assert levels_off(picture, rule.replace(jpeg_quality=95), whole).mean() < 2
    assert levels_off(picture, rule, whole).mean() > 2


def test_a_centre_of_whole_pixels_and_the_shorter_side():
    ramp = torch.arange(40, dtype=torch.uint8).expand(1, 20, 40)[..., None].repeat(1, 1, 1, 3) * 5
    rule = ImageRuleCfg(size=(20, 40), fit="stretch", keeps=0.5, cut="pixels")
    kept = fitted(ramp, rule)[0, 0]
    assert (kept[0, 0], kept[0, -1]) == (50, 145)  # pixels 10 to 29
    wide = fitted(ramp, ImageRuleCfg(size=(10, 16), fit="shortest", filter="area"))
    assert wide.shape == (1, 3, 10, 16)  # 10 x 20 before it was stretched


@pytest.mark.parametrize("size", [(60, 80), (51, 33)])
def test_images_of_groot_n15_are_those_of_torchvision(size):
    from torchvision.transforms import v2

    given = image(*size)
    theirs = v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.CenterCrop([int(side * 0.95) for side in size]),
            v2.Resize((28, 28), antialias=True),
        ]
    )(given.permute(0, 3, 1, 2))
    ours = fitted(given, N15_IMAGE.replace(size=(28, 28)))
    assert (ours.float() - theirs * 255).abs().max() <= 0.51


def test_wrong_rules_are_refused():
    with pytest.raises(ValueError, match="keeps is 0"):
        ImageRuleCfg(keeps=0)
    with pytest.raises(ValueError, match="jpeg_quality is 100, allowed: 1 to 95"):
        ImageRuleCfg(jpeg_quality=100)
