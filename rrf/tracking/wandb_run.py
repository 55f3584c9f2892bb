"""A run in Weights & Biases, offline unless `WANDB_MODE` says otherwise: all of it lies in
`<run_dir>/wandb/`, one directory for each start, and `wandb sync --append` of those uploads it.

W&B writes through a process of its own. When that dies or the disk is full, a warning is all
training notices.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from rrf.registry import require
from rrf.tracking.local_run import copy_artifact, kept, project_name

_EXIT_CODES = {"FINISHED": 0, "FAILED": 1, "KILLED": 255}  # 255 is W&B's own for an interrupt
log = logging.getLogger(__name__)


class WandbTracker:
    """Implements the tracker protocol. Resuming adds a directory with the same id, `wandb_id`.

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
            run_dir: Where W&B writes, and where the id is kept.
            run_id: Of another tracker; this one continues with the id in `run_dir`.
            notes: The description of a new run; one that goes on keeps what it has.

        Raises:
            ImportError: If wandb is not installed.
            OSError: If W&B cannot be reached, or wants a login; neither happens offline.
        """
        run_dir = Path(run_dir)
        mode = os.environ.get("WANDB_MODE", "offline")
        if mode == "offline":
            # Read when wandb is imported; crash reports are the one thing it sends offline.
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._wandb = require("wandb", extra="wandb")
        from wandb.sdk.mailbox import HandleAbandonedError  # its process died while it was asked

        self._losses = (ConnectionError, HandleAbandonedError)
        self.wandb_id, name, is_new = kept(run_dir, "wandb", run_name)
        self._tags: dict[str, str] = {}
        self._is_gone = False
        settings = self._wandb.Settings(
            mode=mode,
            root_dir=str(run_dir),
            reinit="create_new",
            console="off",
            silent=mode == "offline",
            disable_git=True,  # code and data are in the lineage
            disable_code=True,
        )
        try:
            self._run = self._wandb.init(
                project=project_name(experiment),
                name=name,
                notes=(notes or None) if is_new else None,
                id=self.wandb_id,
                resume="allow" if mode == "online" else None,  # offline, the same id says it all
                settings=settings,
            )
        except self._wandb.Error as error:
            raise OSError(f"W&B opens no run with WANDB_MODE={mode}: {error}") from error

    def log_config(self, cfg: dict) -> None:
        self._tell(lambda: self._run.config.update(cfg, allow_val_change=True))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Metrics of one step may come in several calls; W&B drops what is of an earlier step."""
        self._tell(lambda: self._run.log(dict(metrics), step=step))

    def set_tags(self, tags: dict[str, str]) -> None:
        """Below `tags` in the config, because W&B's own tags have no values."""
        self._tags |= tags
        self.log_config({"tags": dict(self._tags)})

    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        """Copy a file or directory to the run's files, below artifacts/."""
        self._tell(lambda: self._save(path, folder))

    def log_dataset(self, lineage: dict) -> None:
        self.log_config({"lineage": lineage})

    def close(self, status: str) -> None:
        self.set_tags({"status": status})
        self._tell(lambda: self._run.finish(exit_code=_EXIT_CODES[status]))

    def _save(self, path: str | Path, folder: str) -> None:
        for copy in copy_artifact(path, folder, Path(self._run.dir)):
            self._run.save(str(copy), base_path=self._run.dir, policy="now")

    def _tell(self, call: Callable[[], object]) -> None:
        if self._is_gone:
            return
        try:
            call()
        except (OSError, self._wandb.Error, *self._losses) as error:
            self._is_gone = isinstance(error, self._losses)
            log.warning("W&B did not take a record, training goes on without: %s", error)
