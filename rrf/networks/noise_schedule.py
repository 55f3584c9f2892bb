"""The noise levels of a diffusion model, and its denoising steps: pure functions.

A chunk at noise level k is x = sqrt(a_k) action + sqrt(1 - a_k) noise. The squared-cosine schedule
(arXiv:2102.09672) gives a_k; the steps are DDIM's (arXiv:2010.02502), which are those of DDPM
(arXiv:2006.11239) with eta = 1 and all levels.

Legend: B rows, H steps in a chunk, A action dimension, K noise levels.
"""

import math

import torch

_OFFSET = 0.008
_MAX_BETA = 0.999


def squared_cosine(num_levels: int) -> torch.Tensor:
    """a_k of each level, float32 [K]: the products of 1 - beta, where
    beta_k = 1 - f(k + 1) / f(k), at most 0.999, and f(k) = cos^2((k / K + 0.008) / 1.008 pi / 2).
    """

    def share(level: int) -> float:
        return math.cos((level / num_levels + _OFFSET) / (1 + _OFFSET) * math.pi / 2) ** 2

    betas = [min(1 - share(k + 1) / share(k), _MAX_BETA) for k in range(num_levels)]
    return (1 - torch.tensor(betas, dtype=torch.float64)).cumprod(0).float()


def visited(num_levels: int, num_steps: int) -> list[int]:
    """The indices of the noise levels that evenly spaced steps visit, from the noisiest on.

    These are the "leading" ones of diffusers' DDIMScheduler, which OpenVLA-OFT samples with.
    """
    stride = num_levels // num_steps
    return [stride * step for step in reversed(range(num_steps))]


def noisy(action_bha: torch.Tensor, noise_bha: torch.Tensor, level_b: torch.Tensor) -> torch.Tensor:
    """The chunk at levels whose a is `level_b`."""
    a_b11 = level_b[:, None, None]
    return a_b11.sqrt() * action_bha + (1 - a_b11).sqrt() * noise_bha


def denoised(
    x_bha: torch.Tensor, noise_bha: torch.Tensor, level_b: torch.Tensor, clip: float | None
) -> torch.Tensor:
    """The action that `x` and a predicted noise point to, clipped to +-`clip`."""
    a_b11 = level_b[:, None, None]
    action_bha = (x_bha - (1 - a_b11).sqrt() * noise_bha) / a_b11.sqrt()
    return action_bha if clip is None else action_bha.clamp(-clip, clip)


def ddim_step(
    action_bha: torch.Tensor,
    noise_bha: torch.Tensor,
    level_b: torch.Tensor,
    next_b: torch.Tensor,
    eta: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean [B, H, A] and std [B, 1, 1] of x at the next level.

    Args:
        action_bha: The predicted action.
        noise_bha: The predicted noise.
        level_b: a of the present level.
        next_b: a of the next level; 1 for no noise, where the std is 0.
        eta: Multiplies the std of DDPM's posterior. The std stays within the noise of that level.
    """
    variance_b = (1 - next_b) / (1 - level_b) * (1 - level_b / next_b)
    std_b = torch.minimum(eta * variance_b.sqrt(), (1 - next_b).sqrt())
    rest_b11 = (1 - next_b - std_b**2).clamp(min=0).sqrt()[:, None, None]
    return next_b.sqrt()[:, None, None] * action_bha + rest_b11 * noise_bha, std_b[:, None, None]
