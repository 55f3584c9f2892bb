"""A run in Weights & Biases, offline unless `WANDB_MODE` says otherwise.

All files are in `<run_dir>/wandb/`, with one directory per start of the run; `wandb sync --append`
uploads these directories. W&B writes through a separate process. If that process dies or the disk
is full, the tracker logs a warning and training continues.
"""

import os
from pathlib import Path

from rrf.lookup import require
from rrf.runners.tracker import Status
from rrf.tracking.base import BaseTracker, copy_artifact, project_name, remembered

_EXIT_CODES = {"FINISHED": 0, "FAILED": 1, "KILLED": 255}  # W&B itself uses 255 for an interrupt


class WandbTracker(BaseTracker):
    """A run in W&B. Resuming adds a directory with the same id, `wandb_id`."""

    service = "W&B"

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
            experiment: Name of the W&B project.
            run_name: Name of the run for people; a resumed run keeps its name.
            run_dir: The run's directory, where W&B writes and where the id is kept.
            run_id: Not used: it belongs to MLflow. This tracker continues with the id in `run_dir`.
            notes: The description of a new run; a resumed run keeps its description.

        Raises:
            ImportError: If wandb is not installed.
            OSError: If W&B cannot be reached or asks for a login; neither happens offline.
        """
        super().__init__()
        mode = os.environ.get("WANDB_MODE", "offline")
        if mode == "offline":
            # wandb reads this when it is imported. Crash reports are all that it sends offline.
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = require("wandb", extra="wandb")
        from wandb.sdk.mailbox import HandleAbandonedError  # W&B's process died during a request

        self._refusals = (OSError, wandb.Error)
        self._losses = (ConnectionError, HandleAbandonedError)
        self.wandb_id, name, is_new = remembered(run_dir, "wandb", run_name)
        settings = wandb.Settings(
            mode=mode,
            root_dir=str(run_dir),
            reinit="create_new",
            console="off",
            silent=mode == "offline",
            disable_git=True,  # code and data are in the lineage
            disable_code=True,
        )
        try:
            self._run = wandb.init(
                project=project_name(experiment),
                name=name,
                notes=(notes or None) if is_new else None,
                id=self.wandb_id,
                resume="allow" if mode == "online" else None,  # offline, the same id is enough
                settings=settings,
            )
        except wandb.Error as error:
            raise OSError(f"W&B cannot open a run with WANDB_MODE={mode}: {error}") from error

    def log_config(self, cfg: dict) -> None:
        self._tell(lambda: self._run.config.update(cfg, allow_val_change=True))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Log metrics. One step may have several calls; W&B drops metrics of an earlier step."""
        self._tell(lambda: self._run.log(dict(metrics), step=step))

    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        """Copy a file or directory to the run's files, under artifacts/."""
        self._tell(lambda: self._save(path, folder))

    def _finish(self, status: Status) -> None:
        self._run.finish(exit_code=_EXIT_CODES[status])

    def _save(self, path: str | Path, folder: str) -> None:
        for copy in copy_artifact(path, folder, Path(self._run.dir)):
            self._run.save(str(copy), base_path=self._run.dir, policy="now")
