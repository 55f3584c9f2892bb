"""Brings camera images to the size that a vision tower sees.

Filters are matrices: an image is weighted over its rows, then over its columns. The weights are
those of TensorFlow's ScaleAndTranslate (lanczos3) and of OpenCV's INTER_AREA, which averages the
pixels that become one and, where an image grows, interpolates between whole pixels.

Legend: B images, H W height and width before, h w after, n m length of a side before and after.
"""

import functools
import io

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from rrf.networks.vlm.configs import ImageRuleCfg

_LOBES = 3.0  # of lanczos3, to each side


def fitted(images_bhw3: torch.Tensor, rule: ImageRuleCfg) -> torch.Tensor:
    """uint8 [B, H, W, 3] -> uint8 [B, 3, h, w]: resized, padded or cut as the rule says.

    openpi's PyTorch port has no antialiasing.

    Raises:
        ValueError: If the images are not uint8 [B, H, W, 3].
    """
    if images_bhw3.dtype != torch.uint8 or images_bhw3.ndim != 4 or images_bhw3.shape[-1] != 3:
        raise ValueError(
            f"images are {str(images_bhw3.dtype).removeprefix('torch.')}{list(images_bhw3.shape)}, "
            "expected uint8[B, H, W, 3]"
        )
    if rule.jpeg_quality is not None:
        images_bhw3 = _through_jpeg(images_bhw3, rule.jpeg_quality)
    images = images_bhw3.permute(0, 3, 1, 2)
    if rule.cut == "before":
        return _of_size(_cut_before(images, rule.keeps), rule)
    if rule.fit == "shortest":
        images = _centre(_of_shorter_side(images, rule), rule)
        return _resized(_of_shorter_side(images, rule), rule.size, "bicubic")
    return _centre(_of_size(images, rule), rule)


def _through_jpeg(images_bhw3: torch.Tensor, quality: int) -> torch.Tensor:
    """Colours have half the resolution. TensorFlow writes the same bytes and reads them with a
    faster, less exact transform."""
    passed = []
    for image in images_bhw3.cpu().numpy():
        with io.BytesIO() as file:
            Image.fromarray(image).save(file, "JPEG", quality=quality, subsampling="4:2:0")
            passed.append(np.array(Image.open(file)))
    return torch.from_numpy(np.stack(passed)).to(images_bhw3.device)


def _cut_before(images: torch.Tensor, keeps: float) -> torch.Tensor:
    """As torchvision's CenterCrop."""
    height, width = images.shape[2:]
    keep_height, keep_width = (max(1, int(side * keeps)) for side in (height, width))
    top, left = round((height - keep_height) / 2), round((width - keep_width) / 2)
    return images[:, :, top : top + keep_height, left : left + keep_width]


def _of_size(images: torch.Tensor, rule: ImageRuleCfg) -> torch.Tensor:
    height, width = rule.size
    have_height, have_width = images.shape[2:]
    if (have_height, have_width) == (height, width):
        return images
    if rule.fit == "crop":
        scale = min(have_height / height, have_width / width)
        keep_height, keep_width = round(height * scale), round(width * scale)
        top, left = (have_height - keep_height) // 2, (have_width - keep_width) // 2
        images = images[:, :, top : top + keep_height, left : left + keep_width]
    if rule.fit != "pad":
        return _resized(images, (height, width), rule.filter)
    scale = max(have_height / height, have_width / width)
    inner = (max(1, int(have_height / scale)), max(1, int(have_width / scale)))
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    margin = (left, width - inner[1] - left, top, height - inner[0] - top)
    return functional.pad(_resized(images, inner, rule.filter), margin)


def _of_shorter_side(images: torch.Tensor, rule: ImageRuleCfg) -> torch.Tensor:
    scale = min(rule.size) / min(images.shape[2:])
    height, width = (max(1, round(side * scale)) for side in images.shape[2:])
    return _resized(images, (height, width), rule.filter)


def _centre(images: torch.Tensor, rule: ImageRuleCfg) -> torch.Tensor:
    if rule.keeps == 1:
        return images
    if rule.cut == "points":
        return _sampled_centre(images, rule.keeps)
    height, width = images.shape[2:]
    keep_height, keep_width = (max(1, int(side * rule.keeps)) for side in (height, width))
    top, left = (height - keep_height) // 2, (width - keep_width) // 2
    kept = images[:, :, top : top + keep_height, left : left + keep_width]
    return kept if rule.fit == "shortest" else _resized(kept, (height, width), rule.filter)


def normalized(images_b3hw: torch.Tensor, rule: ImageRuleCfg) -> torch.Tensor:
    """uint8 0..255 -> float32 (x / 255 - mean) / std per channel, [B, 3, h, w]."""
    mean, std = (images_b3hw.new_tensor(v, dtype=torch.float32) for v in (rule.mean, rule.std))
    return (images_b3hw.float() / 255 - mean[:, None, None]) / std[:, None, None]


def _resized(
    images_b3hw: torch.Tensor, size: tuple[int, int], filter_: str = "bilinear"
) -> torch.Tensor:
    have = images_b3hw.shape[2:]
    if have == size:
        return images_b3hw
    x = images_b3hw.float()
    if filter_ in ("bilinear", "bicubic"):
        x = functional.interpolate(x, size, mode=filter_, align_corners=False, antialias=True)
    else:
        shrinks = have[0] >= size[0] and have[1] >= size[1]
        rows, columns = (
            _lanczos(n, m) if filter_ == "lanczos" else _area(n, m, shrinks)
            for n, m in zip(have, size, strict=True)
        )
        x = rows.to(x.device) @ x @ columns.to(x.device).T
    return x.round().clamp(0, 255).to(torch.uint8)


@functools.lru_cache(maxsize=64)
def _lanczos(n: int, m: int) -> torch.Tensor:
    """The weights of n pixels in each of m, float32 [m, n]."""
    stretch = max(n / m, 1.0)
    centres = (torch.arange(m, dtype=torch.float64) + 0.5) * n / m
    distance = ((torch.arange(n) + 0.5) - centres[:, None]) / stretch
    weights = torch.where(
        distance.abs() <= _LOBES, torch.sinc(distance) * torch.sinc(distance / _LOBES), 0.0
    )
    return (weights / weights.sum(1, keepdim=True)).float()


@functools.lru_cache(maxsize=64)
def _area(n: int, m: int, shrinks: bool) -> torch.Tensor:
    """The weights of n pixels in each of m, float32 [m, n]."""
    first, scale = torch.arange(m, dtype=torch.float64), n / m
    pixels = torch.arange(n, dtype=torch.float64)
    if shrinks:
        begin, end = first[:, None] * scale, (first[:, None] + 1) * scale
        weights = (torch.minimum(end, pixels + 1) - torch.maximum(begin, pixels)).clamp(min=0)
        return (weights / weights.sum(1, keepdim=True)).float()
    before = (first * scale).floor()
    share = first + 1 - (before + 1) / scale
    share = torch.where(share > 0, share - share.floor(), 0.0)
    weights = torch.zeros(m, n, dtype=torch.float64)
    rows = torch.arange(m)
    weights[rows, before.long().clamp(max=n - 1)] += 1 - share
    weights[rows, (before.long() + 1).clamp(max=n - 1)] += share
    return weights.float()


def _sampled_centre(images_b3hw: torch.Tensor, keeps: float) -> torch.Tensor:
    """As TensorFlow's crop_and_resize and its conversions from and to uint8, in float32."""
    x = images_b3hw.float() * torch.tensor(1 / 255, dtype=torch.float32)
    rows, columns = (_places(side, keeps, x.device) for side in x.shape[2:])
    top, bottom, share = rows
    x = x[:, :, :, columns[0]] + (x[:, :, :, columns[1]] - x[:, :, :, columns[0]]) * columns[2]
    x = x[:, :, top] + (x[:, :, bottom] - x[:, :, top]) * share[:, None]
    return (x.clamp(0, 1) * 255.5).clamp(0, 255).to(torch.uint8)


def _places(
    side: int, keeps: float, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The pixels before and after each point of a side, and the share of the second one."""
    kept = torch.tensor(keeps, dtype=torch.float32)
    begin = (1 - kept) / 2
    step = (begin + kept - begin) * (side - 1) / (side - 1)
    places = begin * (side - 1) + torch.arange(side, dtype=torch.float32) * step
    before = places.floor()
    parts = before.long(), places.ceil().long(), places - before
    return tuple(part.to(device) for part in parts)  # type: ignore[return-value]
