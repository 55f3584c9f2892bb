"""Record a training run with any number of trackers, behind the one protocol that runners know.

`TRACKERS` lists the names of the trackers. A tracker that fails later in the run logs a warning and
never stops training.
"""

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from rrf.lineage import Lineage
from rrf.lookup import Lookup
from rrf.runners.tracker import Status

TRACKERS = Lookup(
    "tracker",
    {
        "mlflow": "rrf.tracking.mlflow_run:MLflowTracker",
        "tensorboard": "rrf.tracking.tensorboard_run:TensorBoardTracker",
        "wandb": "rrf.tracking.wandb_run:WandbTracker",
        "swanlab": "rrf.tracking.swanlab_run:SwanLabTracker",
    },
)


class Trackers:
    """Forwards every call to all trackers. `run_id` is that of the first tracker that has one."""

    def __init__(self, trackers: Sequence):
        self.trackers = list(trackers)

    @property
    def run_id(self) -> str | None:
        return next((t.run_id for t in self.trackers if t.run_id is not None), None)

    def log_config(self, cfg: dict) -> None:
        for tracker in self.trackers:
            tracker.log_config(cfg)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        for tracker in self.trackers:
            tracker.log_metrics(metrics, step)

    def set_tags(self, tags: dict[str, str]) -> None:
        for tracker in self.trackers:
            tracker.set_tags(tags)

    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        for tracker in self.trackers:
            tracker.log_artifact(path, folder)

    def log_dataset(self, lineage: Lineage) -> None:
        for tracker in self.trackers:
            tracker.log_dataset(lineage)

    def close(self, status: Status) -> None:
        with contextlib.ExitStack() as stack:  # closes the other trackers even if one raises
            for tracker in reversed(self.trackers):
                stack.callback(tracker.close, status)


def open_trackers(
    names: Iterable[str],
    experiment: str,
    run_name: str,
    run_dir: str | Path,
    run_id: str | None = None,
    notes: str = "",
) -> Trackers:
    """Open the trackers `names`.

    Args:
        names: Names from `TRACKERS`.
        experiment: Name of the group of runs that this run belongs to.
        run_name: Name of the run for people. TensorBoard names runs by directory and shows this
            name as text. A resumed run keeps its name.
        run_dir: The run's directory. TensorBoard, W&B and SwanLab write to it, and the MLflow
            tracker keeps unsent metrics there.
        run_id: The MLflow run to continue, from an earlier `Trackers.run_id`.
        notes: The description of the run, in markdown.

    Raises:
        ValueError: For an unknown name.
        ImportError: If the package of a tracker is not installed; the message names the extra to
            install.
        OSError: If a server does not answer now, or a file cannot be used. Later outages only log a
            warning.
    """
    classes = [TRACKERS.get(name) for name in names]
    opened = Trackers([])
    try:
        for cls in classes:
            opened.trackers.append(cls(experiment, run_name, Path(run_dir), run_id, notes))
    except BaseException:
        opened.close("KILLED")  # otherwise these runs would be shown as running for ever
        raise
    return opened
