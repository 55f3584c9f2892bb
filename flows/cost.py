"""What a stage costs: time of machine, cores and cards, energy, bytes written; and a budget for it.

The numbers are in a file of the workspace, which a running stage writes every few seconds: what a
killed attempt has cost is not lost. In the end they become metrics of the run in MLflow, `cost/…`.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import os
import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rrf import atomic, workspace

WATTS_PER_CORE = 10.0
"""Of a busy core of a server, with its share of memory and fans. An assumption."""
WATTS_PER_CARD = 400.0
"""Of a card that a training holds. An assumption; data-centre cards are rated 300 to 700 W."""
_BLOCK = 512  # bytes, what Linux counts output in
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_EVERY_S = 5.0
log = logging.getLogger(__name__)
_Amount = Annotated[float | None, Field(gt=0)]


@dataclasses.dataclass
class Cost:
    """What the commands of a stage have used."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Of all cores together."""
    gpu_s: float = 0.0
    """Seconds for which cards were held, whether they were busy or not."""
    written_bytes: float = 0.0
    """To disks of this machine."""

    def __add__(self, other: "Cost") -> "Cost":
        mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return Cost(*(a + b for a, b in zip(mine, others, strict=True)))

    @property
    def energy_wh(self) -> float:
        """An estimate by the assumptions above, in watt-hours."""
        return (self.cpu_s * WATTS_PER_CORE + self.gpu_s * WATTS_PER_CARD) / 3600

    def metrics(self) -> dict[str, float]:
        """Metric -> value."""
        facts = dataclasses.asdict(self) | {"energy_wh_estimated": self.energy_wh}
        return {f"cost/{name}": value for name, value in facts.items()}


class Budget(BaseModel):
    """What the trainings of a flow run may use together, with their earlier attempts."""

    model_config = ConfigDict(extra="forbid")

    wall_hours: _Amount = None
    core_hours: _Amount = None
    """Of all cores together."""
    gpu_hours: _Amount = None
    """For which cards are held, busy or not."""
    energy_kwh: _Amount = None
    """By the estimate."""
    written_gb: _Amount = None
    """To disks, in 1e9 bytes."""

    def exceeded_by(self, cost: Cost) -> str:
        """Which part of it is used up; empty if none is."""
        used = {
            "wall_hours": cost.wall_s / 3600,
            "core_hours": cost.cpu_s / 3600,
            "gpu_hours": cost.gpu_s / 3600,
            "energy_kwh": cost.energy_wh / 1000,
            "written_gb": cost.written_bytes / 1e9,
        }
        limits = self.model_dump(exclude_none=True)
        return ", ".join(
            f"{used[name]:.3g} of {limit:g} {name}"
            for name, limit in limits.items()
            if used[name] >= limit
        )


class BudgetSpentError(RuntimeError):
    """A training was stopped, or not begun, because the budget is used up."""

    def __init__(self, stage: str, exceeded: str):
        super().__init__(
            f"the budget is used up at '{stage}': {exceeded}; to go on from the last checkpoint, "
            "start it again with the same parameters and a larger budget"
        )


class Meter:
    """Measures the training with one target and one set of overrides, over all attempts.

    One that has ended well may be asked for again. Then it is measured as a new one, and what it
    cost before stays in the file until `finish` says that it was trained anew.

    Args:
        target: Preset or training file.
        overrides: Of it.
    """

    def __init__(self, target: str, overrides: Mapping):
        file = workspace.find(target)
        content = file.read_text() if file.is_file() else ""
        given = json.dumps([target, content, dict(overrides)], sort_keys=True)
        name = f"{hashlib.sha256(given.encode()).hexdigest()[:32]}.json"
        self._path = workspace.state() / "costs" / name
        stored = _read(self._path)
        self.is_finished = bool(stored.pop("finished", False))
        self.cost = Cost(**stored)
        self._looked_s = 0.0

    @contextlib.contextmanager
    def running(self, num_gpus: int) -> Iterator[None]:
        """Add what the commands in the block cost, while it runs and when it has ended.

        Args:
            num_gpus: How many cards are held meanwhile.
        """
        self.cost = self._before = self.spent
        self._begin, self._num_gpus = _used(num_gpus), num_gpus
        self._looked_s = time.monotonic()
        try:
            yield
        finally:
            self._look()

    @property
    def spent(self) -> Cost:
        """What counts against a budget."""
        return Cost() if self.is_finished else self.cost

    def finish(self) -> None:
        """Say that the training has ended well."""
        self.is_finished = True
        self._write()

    def exceeded(self, budget: Budget | None, others: Cost) -> str:
        """Which part of the budget is used up while a command runs; looks every few seconds.

        Args:
            budget: None for none.
            others: What other trainings of it have used.
        """
        if time.monotonic() - self._looked_s < _EVERY_S:
            return ""
        self._look()
        return budget.exceeded_by(self.cost + others) if budget else ""

    def _look(self) -> None:
        self._looked_s, used = time.monotonic(), _used(self._num_gpus)
        pairs = zip(dataclasses.astuple(used), dataclasses.astuple(self._begin), strict=True)
        spent = self._before + Cost(*(now - begin for now, begin in pairs))
        pairs = zip(dataclasses.astuple(spent), dataclasses.astuple(self.cost), strict=True)
        self.cost = Cost(*map(max, pairs))  # what lost its parent is not seen any more
        if not self.is_finished:
            self._write()

    def _write(self) -> None:
        facts = dataclasses.asdict(self.cost) | {"finished": self.is_finished}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_json(self._path, facts)


def _read(path: Path) -> dict:
    try:
        facts = atomic.parse_json(path.read_bytes())
        cost = Cost(**{name: value for name, value in facts.items() if name != "finished"})
        if not all(0 <= value < math.inf for value in dataclasses.astuple(cost)):
            raise ValueError("a number that uses up no budget")
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError):
        log.warning("%s cannot be read, so what earlier attempts cost is not known", path)
        return {}
    return facts


def _used(num_gpus: int) -> Cost:
    """What the commands of this process have used so far, since some time in the past."""
    ended, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    cost = Cost(wall_s, ended.ru_utime + ended.ru_stime, wall_s * num_gpus)
    cost.written_bytes = float(ended.ru_oublock * _BLOCK)
    for folder in _running_commands():
        # A process may end between two looks; then it counts among those that have ended.
        with contextlib.suppress(OSError, IndexError, ValueError):
            times = _stat(folder)[11:15]  # user, system, and those of its ended children
            written = (folder / "io").read_text().partition("\nwrite_bytes:")[2].split()[0]
            cost.cpu_s += sum(map(int, times)) * _TICK_S
            cost.written_bytes += int(written)
    return cost


def _running_commands() -> Iterator[Path]:
    """Folders in /proc of the processes that this one has started, and theirs."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            parents[int(folder.name)] = int(_stat(folder)[1])
    for pid in parents:
        above = parents[pid]
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid():
            yield Path("/proc", str(pid))


def _stat(folder: Path) -> list[str]:
    """The fields after the name of the program: state, parent, …"""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def record(run_id: str | None, cost: Cost) -> None:
    """Write a cost to the run in MLflow. Without MLflow, or if it is away, it is not there."""
    from mlflow.exceptions import MlflowException

    from rrf.mlflow_store import store

    if run_id is None:
        return
    try:
        store.log_numbers(store.connect(), run_id, cost.metrics())
    except (OSError, MlflowException) as error:
        log.warning("what the run cost is not recorded: %s", error)
