"""Finds the fastest number of torch threads while a run is training.

On busy cores, two threads are several times slower than one; on free cores, they are up to twice as
fast. Which of them is faster depends on the machine and on the size of the networks. Therefore the
first iterations alternate between both numbers, and the faster one is kept. Rounding depends on the
number of threads, so a run that must be repeatable bit for bit needs a fixed number. A critic that
learns in its own thread (`learner_threads`) always uses a single torch thread.
"""

import torch

_TRIALS = 3


class ThreadTuner:
    """Call `begin` before and `end` after each iteration. `chosen` is None until the decision."""

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
        """Record the time of the iteration; decide after a few iterations with each number."""
        if self.chosen is not None:
            return
        self._times[self._next()].append(seconds)
        if all(len(times) == _TRIALS for times in self._times.values()):
            self.chosen = min(self._times, key=lambda count: min(self._times[count]))
            torch.set_num_threads(self.chosen)

    def _next(self) -> int:
        return min(self._times, key=lambda count: len(self._times[count]))
