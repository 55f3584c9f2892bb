"""A run in SwanLab, offline unless `SWANLAB_MODE` says otherwise.

All files are in `<run_dir>/swanlab/`, with one directory per start of the run; `swanlab sync`
uploads these directories. SwanLab buffers its writes, so the last records of a killed process are
lost.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from rrf.lookup import require
from rrf.runners.tracker import Status
from rrf.tracking.base import BaseTracker, copy_artifact, project_name, remembered

_STATES = {"FINISHED": "success", "FAILED": "crashed", "KILLED": "aborted"}
_LONGEST_NOTES = 1024  # characters; SwanLab refuses longer descriptions


class SwanLabTracker(BaseTracker):
    """A run in SwanLab. Resuming adds a directory with the same id, `swanlab_id`."""

    service = "SwanLab"

    def __init__(
        self,
        experiment: str,
        run_name: str,
        run_dir: Path,
        run_id: str | None = None,
        notes: str = "",
    ):
        """
        Args:
            experiment: Name of the SwanLab project.
            run_name: Name of the run for people; a resumed run keeps its name.
            run_dir: The run's directory, where SwanLab writes and where the id is kept.
            run_id: Not used: it belongs to MLflow. This tracker continues with the id in `run_dir`.
            notes: The description of a new run; a resumed run keeps its description.

        Raises:
            ImportError: If swanlab is not installed.
            OSError: If this process already records another SwanLab run, or if SwanLab asks for a
                login, which never happens offline.
        """
        super().__init__()
        self._refusals = (OSError, RuntimeError)
        swanlab = require("swanlab", extra="swanlab")
        self.swanlab_id, name, is_new = remembered(run_dir, "swanlab", run_name)
        settings = swanlab.Settings(
            interactive=False,
            probe=swanlab.Settings.Probe(requirements=False, git=False),  # already in the lineage
            terminal=swanlab.Settings.Terminal(proxy_type="none"),
        )
        mode = os.environ.get("SWANLAB_MODE", "offline")
        try:
            with _own_hooks():
                self._run = swanlab.init(
                    project=project_name(experiment),
                    name=name,
                    description=(notes[:_LONGEST_NOTES] or None) if is_new else None,
                    id=self.swanlab_id,
                    resume="allow",
                    mode=mode,
                    log_dir=str(run_dir / "swanlab"),
                    settings=settings,
                )
        except RuntimeError as error:
            raise OSError(f"SwanLab cannot open a run with SWANLAB_MODE={mode}: {error}") from error

    def log_config(self, cfg: dict) -> None:
        # SwanLab would turn a None at the top level into an empty mapping.
        plain = {name: "null" if value is None else value for name, value in cfg.items()}
        self._tell(lambda: self._run.config.update(plain))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self._tell(lambda: self._run.log(dict(metrics), step=step))

    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        """Copy a file or directory to the run's files, under artifacts/."""
        self._tell(lambda: self._save(path, folder))

    def _finish(self, status: Status) -> None:
        error = f"the run ended as {status}" if status == "FAILED" else None
        with _own_hooks():
            self._run.finish(state=_STATES[status], error=error)

    def _save(self, path: str | Path, folder: str) -> None:
        files = Path(self._run.dir) / "files"
        for copy in copy_artifact(path, folder, files):
            self._run.save(str(copy), base_path=str(files), policy="now")


@contextlib.contextmanager
def _own_hooks() -> Iterator[None]:
    """Restore our handlers for SIGINT and uncaught exceptions after calls to SwanLab.

    SwanLab's handlers would end its run before an interrupted training has written its last
    checkpoint.
    """
    is_main = threading.current_thread() is threading.main_thread()
    handler, hook = signal.getsignal(signal.SIGINT), sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook
        if is_main:
            signal.signal(signal.SIGINT, handler)
