"""Brings camera images to the size that a vision tower sees.

Legend: B images, H W height and width before, h w after.
"""

import torch
from torch.nn import functional

from rrf.networks.vlm.configs import ImageRuleCfg


def fitted(images_bhw3: torch.Tensor, rule: ImageRuleCfg) -> torch.Tensor:
    """uint8 [B, H, W, 3] -> uint8 [B, 3, h, w], resized, padded or cut as the rule says.

    The resizing is bilinear with antialiasing, as in Pillow and in JAX. openpi's PyTorch port has
    no antialiasing.

    Raises:
        ValueError: If the images are not uint8 [B, H, W, 3].
    """
    if images_bhw3.dtype != torch.uint8 or images_bhw3.ndim != 4 or images_bhw3.shape[-1] != 3:
        raise ValueError(
            f"images are {str(images_bhw3.dtype).removeprefix('torch.')}{list(images_bhw3.shape)}, "
            "expected uint8[B, H, W, 3]"
        )
    images = images_bhw3.permute(0, 3, 1, 2)
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
        return _resized(images, (height, width))
    scale = max(have_height / height, have_width / width)
    inner = (max(1, int(have_height / scale)), max(1, int(have_width / scale)))
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    margin = (left, width - inner[1] - left, top, height - inner[0] - top)
    return functional.pad(_resized(images, inner), margin)


def normalized(images_b3hw: torch.Tensor, rule: ImageRuleCfg) -> torch.Tensor:
    """uint8 0..255 -> float32 (x / 255 - mean) / std per channel, [B, 3, h, w]."""
    mean, std = (images_b3hw.new_tensor(v, dtype=torch.float32) for v in (rule.mean, rule.std))
    return (images_b3hw.float() / 255 - mean[:, None, None]) / std[:, None, None]


def _resized(images_b3hw: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    if images_b3hw.shape[2:] == size:
        return images_b3hw
    resized = functional.interpolate(
        images_b3hw.float(), size, mode="bilinear", align_corners=False, antialias=True
    )
    return resized.round().clamp(0, 255).to(torch.uint8)
