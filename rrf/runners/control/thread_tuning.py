"""How many torch threads a run is fastest with, found out while it runs.

Two threads on contended cores are several times slower than one, on free ones up to twice as fast,
and which it is depends on the size of the networks as much as on the machine. So iterations take
turns with both numbers, and the one that was faster stays. Rounding depends on the number of
threads: a run that must be repeatable to the last bit fixes it. A critic that learns in a thread of
its own (`learner_threads`) keeps to one, whatever is tried.
"""

import torch

_TRIALS = 3


class ThreadTuner:
    """Call `begin` before and `end` after each iteration; `chosen` is None until it is decided."""

    def __init__(self, num_threads: int | None, candidates: tuple[int, ...] = (1, 2)):
        self.chosen = num_threads
        self._times: dict[int, list[float]] = {count: [] for count in candidates}
        if num_threads is not None:
            torch.set_num_threads(num_threads)

    def begin(self) -> None:
        """Set the number of threads to try next."""
        if self.chosen is None:
            torch.set_num_threads(self._next())

    def end(self, seconds: float) -> None:
        """Note how long the iteration took; after a few of each, decide."""
        if self.chosen is not None:
            return
        self._times[self._next()].append(seconds)
        if all(len(times) == _TRIALS for times in self._times.values()):
            self.chosen = min(self._times, key=lambda count: min(self._times[count]))
            torch.set_num_threads(self.chosen)

    def _next(self) -> int:
        return min(self._times, key=lambda count: len(self._times[count]))
