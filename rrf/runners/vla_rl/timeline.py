"""Who was busy when: the work of every role in a round, for a chart and for predictions.

timeline.json in a run's directory holds the last round: `round`; `layout`, the node of each process
of the roles env and rollout, and the cores of each node; `processes`, by name the spans of each,
[activity, begin, end] in seconds since the first; and `workload`, what was played.

What is measured is the wall clock, which the machines of a cluster have in common. That of a
process whose machine's clock is off is moved between its question and its answer.
"""

import collections
import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rrf import atomic
from rrf.runners.vla_rl.workload import Workload

FILE = "timeline.json"
_MAX_SPANS = 200_000  # a round has thousands; more is a backend whose spans nobody takes


@dataclasses.dataclass(frozen=True)
class Span:
    """Work of one process."""

    process: str  # "env 0", "rollout 0", "actor", "driver"
    activity: str
    begin_s: float
    end_s: float


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which processes there are, and where."""

    env: Sequence[int]  # the node of each environment process
    rollout: Sequence[int]  # the node of each rollout
    cores: Sequence[int]  # of each node


@dataclasses.dataclass(frozen=True)
class SavedRound:
    """What `FILE` holds."""

    number: int
    layout: Layout
    spans: list[Span]
    workload: Workload


class Timeline:
    """The spans since the last `clear`."""

    def __init__(self):
        self._spans = collections.deque[Span](maxlen=_MAX_SPANS)

    def add(self, process: str, activity: str, begin_s: float, end_s: float) -> None:
        """Note work of a process, in seconds of `time.time`."""
        self._spans.append(Span(process, activity, begin_s, end_s))

    def add_answer(
        self,
        process: str,
        worked: tuple[float, float, Mapping[str, float]],
        asked_s: float,
    ) -> None:
        """Note work that another process measured.

        Args:
            process: Who.
            worked: Its begin and end, and how it is shared by activities, in any unit.
            asked_s: When the process was asked.
        """
        begin, end, parts = worked
        off = min(0.0, time.time() - end) or max(0.0, asked_s - begin)
        unit = (end - begin) / (sum(parts.values()) or 1.0)
        for activity, share in parts.items():
            if share:
                self.add(process, activity, begin + off, begin + off + share * unit)
                begin += share * unit

    @contextlib.contextmanager
    def during(self, process: str, activity: str) -> Iterator[None]:
        """Within the block a process works."""
        begin = time.time()
        yield
        self.add(process, activity, begin, time.time())

    def clear(self) -> None:
        """Forget all."""
        self._spans.clear()

    def save(self, folder: Path, number: int, layout: Layout, workload: Workload) -> None:
        """Write the spans of a round, and what was played, to `FILE`."""
        start = min((span.begin_s for span in self._spans), default=0.0)
        processes = collections.defaultdict[str, list](list)
        for span in self._spans:
            times = (round(moment - start, 4) for moment in (span.begin_s, span.end_s))
            processes[span.process].append([span.activity, *times])
        saved = {
            "round": number,
            "layout": dataclasses.asdict(layout),
            "processes": dict(sorted(processes.items())),
            "workload": dataclasses.asdict(workload),
        }
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_text(folder / FILE, json.dumps(saved, separators=(",", ":")))


def load(run: Path) -> SavedRound:
    """The round that a run's timeline shows.

    Raises:
        ValueError: If the run has none.
    """
    if not (run / FILE).is_file():
        raise ValueError(f"{run} has no {FILE}; give the directory of a run of `rrf train`")
    saved = atomic.parse_json((run / FILE).read_bytes(), run / FILE)
    spans = [
        Span(process, *span) for process, times in saved["processes"].items() for span in times
    ]
    workload = Workload.from_dict(saved["workload"])
    return SavedRound(saved["round"], Layout(**saved["layout"]), spans, workload)
