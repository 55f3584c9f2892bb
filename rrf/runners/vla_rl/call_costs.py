"""What a call of an environment process costs, whatever the number of its slots.

The seconds of calls are fitted, by least squares, as a constant and a part that grows with the
number of episodes in a call. The numbers differ within a round, because slots stay empty at its
end.
"""

import dataclasses


@dataclasses.dataclass
class CallCosts:
    """The calls of a round."""

    count: int = 0
    _rows: float = 0.0
    _seconds: float = 0.0
    _rows_squared: float = 0.0
    _rows_seconds: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        """Note a call that executed chunks of this many episodes."""
        self.count += 1
        self._rows += rows
        self._seconds += seconds
        self._rows_squared += rows * rows
        self._rows_seconds += rows * seconds

    @property
    def fixed_s(self) -> float:
        """The constant part, summed over all calls; 0 if the calls do not tell."""
        spread = self.count * self._rows_squared - self._rows**2
        if spread <= 0:
            return 0.0
        by_row = (self.count * self._rows_seconds - self._rows * self._seconds) / spread
        return min(max(self._seconds - by_row * self._rows, 0.0), self._seconds)

    def clear(self) -> None:
        """Forget all."""
        self.__init__()
