"""How benchmarks read clocks: wall seconds, CPU-seconds, and measurements that take turns; and how
much memory a process had.

CPU-seconds count all threads of this process and the child processes that have ended. This file
needs the standard library only, because peers run in interpreters without this package.
"""

import itertools
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Pace:
    """Steps of all environments per wall second and per CPU-second."""

    steps_per_s: float
    steps_per_cpu_s: float


def seconds() -> tuple[float, float]:
    """Wall seconds since any moment, and the CPU-seconds so far."""
    return time.perf_counter(), time.process_time() + children_cpu_s()


def children_cpu_s() -> float:
    """CPU-seconds of the child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def peak_kb(process: int | str = "self") -> int:
    """The most memory that a process ever had, by its id.

    `resource` would say more: what a process had in memory before it started this program.
    """
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


class Stopwatch:
    """Measures a `with` block: `wall_s` and `cpu_s`."""

    def __enter__(self) -> "Stopwatch":
        self._began = seconds()
        return self

    def __exit__(self, *_: object) -> None:
        wall_s, cpu_s = seconds()
        self.wall_s, self.cpu_s = wall_s - self._began[0], cpu_s - self._began[1]

    def pace(self, num_steps: int) -> Pace:
        """The pace of so many steps in the block."""
        return Pace(num_steps / self.wall_s, num_steps / self.cpu_s)


def in_turns(*measures: Callable[[], _Result], repeats: int) -> list[list[_Result]]:
    """What each measurement gives in all rounds; they take turns, so that all meet the same load.

    Returns:
        One list for each measurement, with a result for each round.
    """
    rounds = [[measure() for measure in measures] for _ in range(repeats)]
    return [list(results) for results in zip(*rounds, strict=True)]


def median_paces(*measures: Callable[[], Pace], repeats: int) -> list[Pace]:
    """The median pace of each measurement over rounds in which they take turns."""
    return [
        Pace(
            statistics.median(pace.steps_per_s for pace in paces),
            statistics.median(pace.steps_per_cpu_s for pace in paces),
        )
        for paces in in_turns(*measures, repeats=repeats)
    ]


def median_cpu_s(
    *calls: Callable[[], object], repeats: int, times: int = 1, warm_up: int = 1
) -> list[float]:
    """CPU-seconds of one call of each function: medians over rounds in which they take turns.

    Args:
        calls: The functions.
        repeats: Rounds that count.
        times: Calls of a function in each round.
        warm_up: Rounds before, which do not count.
    """
    spent = in_turns(
        *(lambda call=call: cpu_s_of(call, times=times) for call in calls),
        repeats=warm_up + repeats,
    )
    return [statistics.median(rounds[warm_up:]) for rounds in spent]


def cpu_s_of(call: Callable[..., object], *arguments: object, times: int = 1) -> float:
    """CPU-seconds of one call, the mean of several calls."""
    with Stopwatch() as watch:
        for _ in range(times):
            call(*arguments)
    return watch.cpu_s / times


def pace_between(marks: Sequence[tuple[int, float, float]]) -> Pace:
    """The median pace between marks of (steps so far, wall seconds, CPU-seconds)."""
    pairs = list(itertools.pairwise(marks))
    wall, cpu = (
        statistics.median((b[0] - a[0]) / (b[clock] - a[clock]) for a, b in pairs)
        for clock in (1, 2)
    )
    return Pace(wall, cpu)
