"""A low-pass filter by FFT over the last W values of a sequence. It never looks ahead.

    window of the last W values -> mirrored at its end -> FFT -> frequencies above the cutoff are
    set to 0 -> inverse FFT -> the value at the end of the window

Mirroring makes the window periodic without a jump, which would smear over all frequencies. The
filter is linear. So the FFT is taken once, of unit impulses, and gives W coefficients; filtering is
then a weighted sum. Before an episode has W values, its first one stands for those before it.

Legend: T time, B batch or environments, W window, D width.
"""

import torch
from torch import nn

from rrf.networks.block_configs import FFTFilterCfg


def low_passed(window: torch.Tensor, cutoff: float) -> torch.Tensor:
    """The window [W, ...] without what is faster than `cutoff` of half the sampling rate."""
    mirrored = torch.cat([window, window.flip(0)])
    spectrum = torch.fft.rfft(mirrored, dim=0)
    frequencies = torch.linspace(0, 1, len(spectrum), dtype=torch.float64)  # 1: half the rate
    passes = (frequencies <= cutoff + 1e-9).view(-1, *[1] * (window.ndim - 1))
    return torch.fft.irfft(spectrum * passes, n=len(mirrored), dim=0)[: len(window)]


class FFTFilter(nn.Module):
    """Filters step by step, for a deployed policy, and along sequences, for training.

    Its memory [W - 1, B, D + 1] holds the last values, the oldest first. Each is followed by a 1; a
    memory without values is all zeros.
    """

    coefficients: torch.Tensor

    def __init__(self, cfg: FFTFilterCfg, width: int):
        super().__init__()
        self.window, self.width = cfg.window, width
        impulses = torch.eye(cfg.window, dtype=torch.float64)
        coefficients = low_passed(impulses, cfg.cutoff)[-1].float()
        self.register_buffer("coefficients", coefficients, persistent=False)

    def initial_memory(self, num_envs: int) -> torch.Tensor:
        """The memory without values."""
        return self.coefficients.new_zeros(self.window - 1, num_envs, self.width + 1)

    def step(self, x_bd: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The filtered value [B, D], and the memory after it."""
        newest = self._flagged(x_bd.unsqueeze(0))
        values = torch.cat([torch.where(memory[:, :, -1:] > 0, memory, newest), newest])
        return self._filtered(values), values[1:]

    def sequence(
        self, x_tbd: torch.Tensor, memory: torch.Tensor, starts_tb: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Filtered values [T, B, D], and the memory after each step.

        Args:
            x_tbd: The sequences.
            memory: The memory before the first step.
            starts_tb: bool; true where an episode begins, before which nothing is remembered.
        """
        past, length = self.window - 1, len(x_tbd)
        values = torch.cat([memory, self._flagged(x_tbd)])
        places = torch.arange(past, past + length, device=x_tbd.device)
        is_new = memory[-1, :, -1] == 0  # nothing is remembered
        begins = torch.where(starts_tb, places.unsqueeze(1), past * is_new).cummax(0).values
        back = torch.arange(-past, 1, device=x_tbd.device)
        rows_wtb = torch.maximum((back.unsqueeze(1) + places).unsqueeze(-1), begins)
        index = rows_wtb.flatten(0, 1).unsqueeze(-1).expand(-1, -1, values.shape[-1])
        windows = values.gather(0, index).view(self.window, length, *values.shape[1:])
        return self._filtered(windows), list(windows[1:].unbind(1))

    def _flagged(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, torch.ones_like(x[..., :1])], -1)

    def _filtered(self, windows: torch.Tensor) -> torch.Tensor:
        """The weighted sums of windows [W, ..., D + 1], without the flag: [..., D]."""
        return torch.tensordot(self.coefficients, windows[..., :-1], 1)
