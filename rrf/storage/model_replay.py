"""The replay of imagined transitions, of which any number is written at a time.

Legend: M transitions, W width of a row.
"""

import torch

from rrf.storage.replay import Replay, RowLayout


class ModelReplay(Replay):
    """A ring of single transitions."""

    def __init__(self, layout: RowLayout, num_transitions: int, device: torch.device | str = "cpu"):
        super().__init__(layout, num_transitions, 1, device)

    def extend(self, rows_mw: torch.Tensor) -> None:
        """Store transitions, at most as many as fit in."""
        count = len(rows_mw)
        assert count <= self.capacity, "the capacity follows from the numbers in the config"
        begin = self.total_steps % self.capacity
        at_end = min(count, self.capacity - begin)
        self.rows[begin : begin + at_end] = rows_mw[:at_end]
        self.rows[: count - at_end] = rows_mw[at_end:]
        self.total_steps += count
