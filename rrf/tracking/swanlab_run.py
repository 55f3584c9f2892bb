"""A run in SwanLab, offline unless `SWANLAB_MODE` says otherwise: all of it lies in
`<run_dir>/swanlab/`, one directory for each start, and `swanlab sync` of those uploads it.

SwanLab buffers what it writes: of a process killed without warning the last records are missing.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from rrf.registry import require
from rrf.tracking.local_run import copy_artifact, kept, project_name

_STATES = {"FINISHED": "success", "FAILED": "crashed", "KILLED": "aborted"}
_LONGEST_NOTES = 1024  # characters, more is refused
log = logging.getLogger(__name__)


class SwanLabTracker:
    """Implements the tracker protocol. Resuming adds a directory with the same id, `swanlab_id`.

    `run_id` stays None: what is registered later belongs to an MLflow run, not to this one.
    """

    run_id = None

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
            experiment: The project.
            run_name: For people; a run that goes on keeps the one it has.
            run_dir: Where SwanLab writes, and where the id is kept.
            run_id: Of another tracker; this one continues with the id in `run_dir`.
            notes: The description of a new run; one that goes on keeps what it has.

        Raises:
            ImportError: If swanlab is not installed.
            OSError: If this process records another SwanLab run, there can be one at a time; or if
                SwanLab wants a login, which it does not offline.
        """
        run_dir = Path(run_dir)
        swanlab = require("swanlab", extra="swanlab")
        self.swanlab_id, name, is_new = kept(run_dir, "swanlab", run_name)
        self._tags: dict[str, str] = {}
        settings = swanlab.Settings(
            interactive=False,
            probe=swanlab.Settings.Probe(requirements=False, git=False),  # the lineage has them
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
            raise OSError(f"SwanLab opens no run with SWANLAB_MODE={mode}: {error}") from error

    def log_config(self, cfg: dict) -> None:
        # Of a None at the top level SwanLab would make an empty mapping.
        plain = {name: "null" if value is None else value for name, value in cfg.items()}
        _tell(lambda: self._run.config.update(plain))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        _tell(lambda: self._run.log(dict(metrics), step=step))

    def set_tags(self, tags: dict[str, str]) -> None:
        """Below `tags` in the config, because SwanLab's own tags have no values."""
        self._tags |= tags
        self.log_config({"tags": dict(self._tags)})

    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        """Copy a file or directory to the run's files, below artifacts/."""
        _tell(lambda: self._save(path, folder))

    def log_dataset(self, lineage: dict) -> None:
        self.log_config({"lineage": lineage})

    def close(self, status: str) -> None:
        self.set_tags({"status": status})
        error = f"the run ended as {status}" if status == "FAILED" else None
        with _own_hooks():
            _tell(lambda: self._run.finish(state=_STATES[status], error=error))

    def _save(self, path: str | Path, folder: str) -> None:
        files = Path(self._run.dir) / "files"
        for copy in copy_artifact(path, folder, files):
            self._run.save(str(copy), base_path=str(files), policy="now")


def _tell(call: Callable[[], object]) -> None:
    try:
        call()
    except (OSError, RuntimeError) as error:
        log.warning("SwanLab did not take a record, training goes on without: %s", error)


@contextlib.contextmanager
def _own_hooks() -> Iterator[None]:
    """Keep SIGINT and uncaught exceptions ours: SwanLab would end its run before the last
    checkpoint of an interrupted training is written.
    """
    is_main = threading.current_thread() is threading.main_thread()
    handler, hook = signal.getsignal(signal.SIGINT), sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook
        if is_main:
            signal.signal(signal.SIGINT, handler)
