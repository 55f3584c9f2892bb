"""Supervised losses over action chunks: pure functions that ignore padding.

`is_pad` is bool [B, H], True for steps past the episode's end; or, in a batch of several robots,
[B, H, A], True also for the dimensions that a row's robot does not have.

Legend: B batch, H steps in an action chunk, A action dimension, N token bins.
"""

import torch
from torch.nn import functional


def masked_mean(values_bha: torch.Tensor, is_pad: torch.Tensor) -> torch.Tensor:
    """The mean over what is not padding; 0 if all is padding."""
    if is_pad.ndim == 3:
        keep_bha = (~is_pad).to(values_bha.dtype)
        return (values_bha * keep_bha).sum() / keep_bha.sum().clamp(min=1)
    keep_bh1 = (~is_pad).unsqueeze(-1).to(values_bha.dtype)
    count = (keep_bh1.sum() * values_bha.shape[-1]).clamp(min=1)
    return (values_bha * keep_bh1).sum() / count


def without_absent(values_bhp: torch.Tensor, is_pad: torch.Tensor) -> torch.Tensor:
    """The values, but 0 in the dimensions that a row's robot does not have.

    `values_bhp` may have more dimensions than `is_pad`. A chunk's first step is never padding, so
    it tells which dimensions there are.
    """
    if is_pad.ndim == 2:
        return values_bhp
    absent_b1p = functional.pad(is_pad[:, :1], (0, values_bhp.shape[2] - is_pad.shape[2]))
    return values_bhp.masked_fill(absent_b1p, 0.0)


def held(values_bha: torch.Tensor, is_pad: torch.Tensor) -> torch.Tensor:
    """The chunk in which the last real step goes on through the padding at the end.

    For heads that read the whole target, so that the loss does not depend on the padding.
    """
    is_pad_bh = is_pad.all(-1) if is_pad.ndim == 3 else is_pad
    last_b1 = ((~is_pad_bh).sum(1, keepdim=True) - 1).clamp(min=0)
    steps_bh = torch.arange(is_pad_bh.shape[1], device=is_pad_bh.device).minimum(last_b1)
    return values_bha.gather(1, steps_bh.unsqueeze(-1).expand_as(values_bha))


def masked_smooth_l1(
    prediction_bha: torch.Tensor, target_bha: torch.Tensor, is_pad: torch.Tensor, beta: float
) -> torch.Tensor:
    """Smooth L1 (arXiv:1504.08083): e^2 / (2 beta) where |e| < beta, |e| - beta / 2 elsewhere."""
    return masked_mean(
        functional.smooth_l1_loss(prediction_bha, target_bha, reduction="none", beta=beta),
        is_pad,
    )


def soft_labels(
    target_bha: torch.Tensor, centers: torch.Tensor, sigma_bins: float, smoothing: float
) -> torch.Tensor:
    """The label distribution, [B, H, A, N].

    It is a Gaussian around the target with a standard deviation of `sigma_bins` bins, normalised
    over the bins, and mixed with a uniform distribution of weight `smoothing`. If `sigma_bins` is
    0, the whole mass of the Gaussian is on the nearest bin.
    """
    distance = target_bha.unsqueeze(-1) - centers
    if sigma_bins == 0:
        peak = functional.one_hot(distance.abs().argmin(-1), len(centers)).to(target_bha.dtype)
    else:
        width = sigma_bins * (centers[1] - centers[0])
        peak = torch.softmax(-0.5 * (distance / width) ** 2, dim=-1)
    return (1 - smoothing) * peak + smoothing / len(centers)


def masked_token_cross_entropy(
    logits_bhan: torch.Tensor, labels_bhan: torch.Tensor, is_pad: torch.Tensor
) -> torch.Tensor:
    """Cross entropy of soft labels, in nats per token."""
    return masked_mean(-(labels_bhan * torch.log_softmax(logits_bhan, dim=-1)).sum(-1), is_pad)
