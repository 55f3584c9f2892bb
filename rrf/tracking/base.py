"""What the trackers of all services share. None of them can stop or change a training.

A record that a service refuses becomes one warning. A service that is lost (its process has died,
its file is gone) gets one warning and no further records.
"""

import abc
import logging
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from rrf import atomic
from rrf.lineage import Lineage
from rrf.runners.tracker import Status

ARTIFACTS = "artifacts"
_LONGEST_NAME = 100
log = logging.getLogger(__name__)


class BaseTracker(abc.ABC):
    """A run in one service; implements `rrf.runners.tracker.Tracker`.

    Each class is called like `open_trackers` calls it: experiment, name of the run, its directory,
    the MLflow run to continue, and the description of the run.
    """

    service: ClassVar[str]
    """Name of the service in warnings."""

    def __init__(self) -> None:
        self._tags: dict[str, str] = {}
        self._is_lost = False
        self._refusals: tuple[type[Exception], ...] = (OSError,)
        """Errors by which the service refuses a single record."""
        self._losses: tuple[type[Exception], ...] = ()
        """Errors after which the service takes no more records."""

    @property
    def run_id(self) -> str | None:
        """The MLflow run; None for every other service, because registered models belong to MLflow
        runs."""
        return None

    @abc.abstractmethod
    def log_config(self, cfg: dict) -> None:
        """Record entries of the run's config."""

    @abc.abstractmethod
    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Record metrics. Several calls may be about one step; steps never go back."""

    @abc.abstractmethod
    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        """Record a file, or the content of a directory, below `folder`."""

    def set_tags(self, tags: dict[str, str]) -> None:
        """Record tags; earlier ones stay."""
        self._tags |= tags
        self._note("tags", dict(self._tags))

    def log_dataset(self, lineage: Lineage) -> None:
        """Record what the policy is trained on."""
        self._note("lineage", lineage.to_dict())

    def close(self, status: Status) -> None:
        """Record how the run has ended, and write everything."""
        self.set_tags({"status": status})
        self._tell(lambda: self._finish(status))

    def _note(self, title: str, facts: dict) -> None:
        """Record facts under a title; most services have no place for them but the config."""
        self.log_config({title: facts})

    def _finish(self, status: Status) -> None:
        """End the run in the service."""
        raise NotImplementedError

    def _tell(self, call: Callable[[], object]) -> None:
        """Hand a record to the service."""
        if self._is_lost:
            return
        try:
            call()
        except (*self._refusals, *self._losses) as error:
            self._is_lost = isinstance(error, self._losses)
            what = "is lost" if self._is_lost else "did not accept a record"
            log.warning("%s %s, training continues without it: %s", self.service, what, error)


def remembered(run_dir: Path, service: str, run_name: str) -> tuple[str, str, bool]:
    """The id and the first name of this run in a service, and whether it is new there.

    Both are kept in `<run_dir>/<service>_run.json`, so a resumed run keeps them.
    """
    path = run_dir / f"{service}_run.json"
    if path.is_file():
        known = atomic.parse_json(path.read_bytes(), path)
        return known["id"], known["name"], False
    new_id = secrets.token_hex(8)
    atomic.write_json(path, {"id": new_id, "name": run_name})
    return new_id, run_name, True


def project_name(experiment: str) -> str:
    """`experiment` as a name of letters, digits and `-_.+` only, which every service accepts."""
    return re.sub(r"[^0-9A-Za-z_.+-]+", "-", experiment)[:_LONGEST_NAME] or "default"


def copy_artifact(path: str | Path, folder: str, files: Path) -> list[Path]:
    """Copy a file, or the content of a directory, to `<files>/artifacts/<folder>/`.

    The originals do not stay: checkpoints of a run are pruned and reports are rewritten.

    Returns:
        The copied files.
    """
    path, out = Path(path), files / ARTIFACTS / folder
    out.mkdir(parents=True, exist_ok=True)
    if not path.is_dir():
        shutil.copyfile(path, out / path.name)
        return [out / path.name]
    shutil.copytree(path, out, dirs_exist_ok=True)
    return [out / p.relative_to(path) for p in sorted(path.rglob("*")) if p.is_file()]
