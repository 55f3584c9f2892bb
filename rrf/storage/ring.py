"""A ring of rows: new rows overwrite the oldest. Legend: K rows given, C capacity."""

import torch


class Ring:
    """The last C rows, float32 [C, ...]."""

    def __init__(self, capacity: int, shape: tuple[int, ...], device: torch.device | str = "cpu"):
        self.rows = torch.empty(capacity, *shape, device=device)
        self.total = 0  # number of rows ever written

    def __len__(self) -> int:
        return min(self.total, len(self.rows))

    @property
    def room(self) -> int:
        """Number of rows that fit in before the oldest are overwritten."""
        return len(self.rows) - len(self)

    def write(self, rows: torch.Tensor) -> None:
        """Store rows [K, ...]; of more than C, the last C."""
        self.total += max(0, len(rows) - len(self.rows))
        rows = rows[-len(self.rows) :]
        places = torch.arange(self.total, self.total + len(rows), device=rows.device)
        self.rows[places % len(self.rows)] = rows
        self.total += len(rows)

    def sample(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Rows drawn with equal probability, with replacement, [count, ...]."""
        return self.rows[draw(len(self), count, generator)]

    def state(self) -> dict[str, torch.Tensor]:
        """The filled part (a view), and the number of rows written."""
        return {"rows": self.rows[: len(self)], "total": torch.tensor(self.total)}

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore what `state` of a ring of the same capacity returned."""
        self.total = int(tensors["total"])
        self.rows[: len(self)] = tensors["rows"].to(self.rows)


def draw(count: int, num: int, generator: torch.Generator) -> torch.Tensor:
    """`num` numbers from 0 to `count` - 1, with replacement, int64 on the generator's device."""
    return torch.randint(count, (num,), generator=generator, device=generator.device)
