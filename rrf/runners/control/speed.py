"""What makes a run faster: compiled code, the number of torch threads, memory that is kept.

On busy cores, two threads are several times slower than one; on free cores, they are up to twice as
fast. Which of them is faster depends on the machine and on the size of the networks. Therefore the
first iterations alternate between both numbers, and the faster one is kept. Rounding depends on the
number of threads, so a run that must be repeatable bit for bit needs a fixed number. A critic that
learns in its own thread (`learner_threads`) always uses a single torch thread.
"""

import ctypes
import sys

import torch

from rrf.compiled.acceleration import accelerate
from rrf.runners import process_group
from rrf.runners.control.loop import ControlRunner, Extra

_TRIALS = 3
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_LARGEST = 32 * 2**20  # what glibc takes on 64-bit machines


class Speed(Extra):
    """Lets an algorithm learn in compiled code if there is some for it, and tunes the process."""

    def __init__(self, num_threads: int | None):
        """
        Args:
            num_threads: Torch threads; None finds the faster number.
        """
        self.num_threads = num_threads

    def prepare(self, runner: ControlRunner) -> None:
        self.threads = ThreadTuner(self.num_threads)
        keep_freed_memory()

    def attach(self, runner: ControlRunner) -> None:
        accelerate(runner.algorithm)

    def before_iteration(self, runner: ControlRunner) -> None:
        self.threads.begin()

    def after_iteration(self, runner: ControlRunner, seconds: float) -> None:
        if runner.num_stepped == runner.steps_per_iteration * process_group.size():
            self.threads.end(seconds)


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


def keep_freed_memory() -> None:
    """Keep the memory of freed tensors of up to 32 MiB for the next ones.

    By default glibc returns it to the system, which then clears every page again for each gradient
    step. With the large batches of CQL, a fifth of the time is spent so. Other C libraries are left
    as they are.
    """
    if not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
