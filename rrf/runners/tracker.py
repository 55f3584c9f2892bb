"""The protocol through which a run reports its progress; `rrf.tracking` implements it."""

import contextlib
import typing
from collections.abc import Iterator
from pathlib import Path

from rrf.lineage import Lineage
from rrf.runners.interruption import Interrupted

Status = typing.Literal["FINISHED", "FAILED", "KILLED"]


class Tracker(typing.Protocol):
    """Receives the record of one run. Nothing it does may change the run."""

    @property
    def run_id(self) -> str | None:
        """The id of the run in MLflow; None without MLflow, and until it has answered."""
        ...

    def log_config(self, cfg: dict) -> None: ...

    def log_metrics(self, metrics: dict[str, float], step: int) -> None: ...

    def set_tags(self, tags: dict[str, str]) -> None: ...

    def log_artifact(self, path: str | Path, folder: str = "") -> None: ...

    def log_dataset(self, lineage: Lineage) -> None: ...

    def close(self, status: Status) -> None: ...


class NullTracker:
    """A tracker that records nothing."""

    run_id = None

    def log_config(self, cfg: dict) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        pass

    def set_tags(self, tags: dict[str, str]) -> None:
        pass

    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        pass

    def log_dataset(self, lineage: Lineage) -> None:
        pass

    def close(self, status: Status) -> None:
        pass


@contextlib.contextmanager
def closing(tracker: Tracker) -> Iterator[Tracker]:
    """Close the tracker at the end of the block, with its outcome: finished, killed or failed."""
    try:
        yield tracker
    except (Interrupted, KeyboardInterrupt):
        tracker.close("KILLED")
        raise
    except BaseException:
        tracker.close("FAILED")
        raise
    tracker.close("FINISHED")
