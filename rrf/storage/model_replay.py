"""The replay of imagined transitions, of which any number is written at a time.

Legend: M transitions, W width of a row.
"""

import torch

from rrf.storage.replay import Replay, RowLayout


class ModelReplay(Replay):
    """A ring of single transitions. Only the `num_newest` ones are drawn."""

    def __init__(self, layout: RowLayout, num_transitions: int, device: torch.device | str = "cpu"):
        super().__init__(layout, num_transitions, 1, device)
        self.num_newest = num_transitions

    def __len__(self) -> int:
        return min(self.total_steps, self.num_newest)

    def extend(self, rows_mw: torch.Tensor) -> None:
        """Store transitions, at most as many as fit in."""
        count = len(rows_mw)
        assert count <= self.capacity, "the capacity follows from the numbers in the config"
        begin = self.total_steps % self.capacity
        at_end = min(count, self.capacity - begin)
        self.rows[begin : begin + at_end] = rows_mw[:at_end]
        self.rows[: count - at_end] = rows_mw[at_end:]
        self.total_steps += count

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """See `Replay.sample`."""
        return (self.total_steps - 1 - super().sample(shape, generator)) % self.capacity

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """See `Replay.state`."""
        filled = min(self.total_steps, self.capacity)
        facts = {"total_steps": self.total_steps, "num_newest": self.num_newest}
        return {"rows": self.rows[:filled]}, facts

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """See `Replay.load_state`."""
        self.total_steps, self.num_newest = facts["total_steps"], facts["num_newest"]
        self.rows[: len(tensors["rows"])] = tensors["rows"].to(self.rows)
