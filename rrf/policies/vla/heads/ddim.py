"""DDIM (arXiv:2010.02502) with the cosine schedule of arXiv:2102.09672: pure functions.

The settings are those of diffusers' DDIMScheduler with beta_schedule="squaredcos_cap_v2", which
OpenVLA-OFT uses: the network predicts the noise, the clean sample is clipped to [-1, 1], no noise
is added, and the step after the last noise level leads to the clean sample.

Legend: B batch, N noise levels.
"""

import math

import torch

_OFFSET = 0.008
_MAX_BETA = 0.999


def signal_shares(num_levels: int) -> torch.Tensor:
    """The share of the clean sample's variance at each level, float32 [N], falling."""

    def remaining(time: float) -> float:
        return math.cos((time + _OFFSET) / (1 + _OFFSET) * math.pi / 2) ** 2

    betas = [
        min(1 - remaining((level + 1) / num_levels) / remaining(level / num_levels), _MAX_BETA)
        for level in range(num_levels)
    ]
    return torch.cumprod(1 - torch.tensor(betas, dtype=torch.float32), dim=0)


def levels(num_levels: int, num_steps: int) -> list[int]:
    """The noise levels that are visited in sampling, from the noisiest on."""
    stride = num_levels // num_steps
    return [stride * step for step in reversed(range(num_steps))]


def noised(
    clean: torch.Tensor, noise: torch.Tensor, level_b: torch.Tensor, shares_n: torch.Tensor
) -> torch.Tensor:
    """The sample at the levels `level_b`, one per row."""
    share = shares_n.to(clean.device)[level_b].view(-1, *[1] * (clean.ndim - 1))
    return share.sqrt() * clean + (1 - share).sqrt() * noise


def denoised(
    x: torch.Tensor, noise: torch.Tensor, level: int, next_level: int, shares_n: torch.Tensor
) -> torch.Tensor:
    """The sample at `next_level`, given the noise predicted at `level`; below 0: the clean one."""
    share = shares_n[level].item()
    next_share = shares_n[next_level].item() if next_level >= 0 else 1.0
    clean = ((x - math.sqrt(1 - share) * noise) / math.sqrt(share)).clamp(-1, 1)
    return math.sqrt(next_share) * clean + math.sqrt(1 - next_share) * noise
