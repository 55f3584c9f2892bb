"""A run in MLflow. Training never waits for the store and does not fail if the store fails.

Calls go to a queue that one thread processes in order, metrics in batches. While the store cannot
be reached, the thread keeps the queue and tries again. Metrics that are still unsent when the run
closes are written to `<run_dir>/mlflow_unsent.json` and sent when the run is resumed. The run's own
files do not depend on the store.
"""

import collections
import dataclasses
import hashlib
import itertools
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import yaml

from rrf import atomic, workspace
from rrf.lineage import Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.authorship import NOTES, is_ours, signed
from rrf.runners.tracker import Status
from rrf.tracking.base import BaseTracker

UNSENT = "mlflow_unsent.json"
_PARAMS = 100  # params per request, MLflow's limit
_LONGEST_PARAM = 500  # characters
_MISTAKES = (
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "RESOURCE_DOES_NOT_EXIST",
    "PERMISSION_DENIED",
)
_FILE_MISTAKES = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class _Point:
    """One metric value that waits to be sent."""

    key: str
    value: float
    timestamp: int
    step: int


class MLflowTracker(BaseTracker):
    """A run in the store of this workspace. Its outbox guards every call, not the base class."""

    service = "MLflow"

    def __init__(
        self,
        experiment: str,
        run_name: str,
        run_dir: Path,
        run_id: str | None = None,
        notes: str = "",
        *,
        retry_s: float = 5.0,
        interval_s: float = 1.0,
        close_s: float = 30.0,
    ):
        """Open or resume the run.

        Args:
            experiment: Name of the experiment; created if new.
            run_name: Name of the run for people.
            run_dir: The run's directory, where unsent metrics are kept.
            run_id: The run to continue. If this store does not have it, a new run is started.
            notes: The description of the run. In a resumed run it is brought up to date, unless a
                person wrote or edited it.
            retry_s: Seconds before a store that cannot be reached is tried again.
            interval_s: Seconds for which metrics are collected before they are sent.
            close_s: Seconds for which `close` waits for the store.

        Raises:
            OSError: If the store cannot be reached.
        """
        super().__init__()
        self._client = store.connect()
        self._run_dir, self._close_s = Path(run_dir), close_s
        self.run_id: str = self._open(experiment, run_name, run_id, notes)  # type: ignore[assignment]
        self._outbox = _Outbox(self._send, retry_s, interval_s)
        if notes and self.run_id == run_id:
            self._call(lambda: self._renew(signed(notes)))
        for point in self._unsent_before():
            self._outbox.put(point)

    def log_config(self, cfg: dict) -> None:
        """Log the resolved config: each leaf as a param, and the whole as artifact config.yaml."""
        from mlflow.entities import Param

        params = [Param(key[:250], _shortened(value)) for key, value in flatten(cfg).items()]
        for start in range(0, len(params), _PARAMS):
            part = params[start : start + _PARAMS]
            self._call(lambda part=part: self._log_params(part))
        text = yaml.safe_dump(cfg, sort_keys=False, allow_unicode=True)
        self._call(lambda: self._client.log_text(self.run_id, text, "config.yaml"))

    def _log_params(self, params: list) -> None:
        """Log only new params: MLflow refuses a changed value, which a resumed run may have."""
        known = self._client.get_run(self.run_id).data.params
        new = [param for param in params if param.key not in known]
        self._client.log_batch(self.run_id, params=new)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        now_ms = int(time.time() * 1000)
        for key, value in metrics.items():
            self._outbox.put(_Point(key, float(value), now_ms, step))

    def set_tags(self, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            self._call(lambda key=key, value=value: self._client.set_tag(self.run_id, key, value))

    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        """Copy a file or directory to the run as soon as the store can be reached."""
        path = Path(path)
        log_it = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        self._call(lambda: log_it(self.run_id, str(path), folder or None))

    def log_dataset(self, lineage: Lineage) -> None:
        """Log each dataset as an input of the run, and the lineage as tags `lineage.*`.

        The dataset card becomes the artifact dataset/README.md; with several datasets each card
        becomes dataset/NAME/README.md.
        """
        from rrf.mlflow_store.dvc_dataset import dataset_input

        revision = lineage.git_revision
        entities = [dataset_input(dataset, revision) for dataset in lineage.datasets]
        self._call(lambda: self._client.log_inputs(self.run_id, entities))
        for dataset in lineage.datasets:
            card = dataset.card
            if card and "://" not in card:  # a remote card is not copied, its tag has the address
                folder = str(PurePosixPath(dataset.card_place(lineage)).parent)
                self.log_artifact(workspace.home() / card, folder)
        self.set_tags(lineage.tags())

    def close(self, status: Status) -> None:
        """Send the rest of the queue, end the run, and keep unsent metrics on disk."""
        self._call(lambda: self._client.set_terminated(self.run_id, status))
        left = self._outbox.close(self._close_s)
        points = [dataclasses.asdict(item) for item in left if isinstance(item, _Point)]
        if left:
            atomic.write_json(self._run_dir / UNSENT, points)
            log.warning(
                "MLflow did not come back: %d metric values kept in %s, sent when the run resumes",
                len(points),
                self._run_dir / UNSENT,
            )

    def _open(self, experiment: str, run_name: str, run_id: str | None, notes: str) -> str:
        from mlflow.exceptions import MlflowException

        if run_id is not None:
            try:
                self._client.update_run(run_id, status="RUNNING")
            except MlflowException as error:
                log.warning(
                    "MLflow run %s cannot be continued (%s); starting a new one", run_id, error
                )
            else:
                return run_id
        experiment_id = store.experiment_id(self._client, experiment)
        tags = {NOTES: signed(notes)} if notes else {}
        return self._client.create_run(experiment_id, tags=tags, run_name=run_name).info.run_id

    def _renew(self, notes: str) -> None:
        written = self._client.get_run(self.run_id).data.tags.get(NOTES)
        if is_ours(written) and written != notes:
            self._client.set_tag(self.run_id, NOTES, notes)

    def _unsent_before(self) -> list[_Point]:
        path = self._run_dir / UNSENT
        if not path.is_file():
            return []
        points = [_Point(**point) for point in json.loads(path.read_text())]
        path.unlink()
        return points

    def _call(self, call: Callable[[], object]) -> None:
        self._outbox.put(call)

    def _send(self, items: list) -> str | None:
        """Send `items`. Returns None on success, or the reason why the store cannot be reached."""
        from mlflow.entities import Metric
        from mlflow.exceptions import MlflowException

        try:
            if callable(items[0]):
                items[0]()
            else:
                metrics = [Metric(p.key, p.value, p.timestamp, p.step) for p in items]
                self._client.log_batch(self.run_id, metrics=metrics)
        except MlflowException as error:
            if error.error_code not in _MISTAKES:
                return str(error)
            log.warning("MLflow refused a record of run %s: %s", self.run_id, error)
        except _FILE_MISTAKES as error:
            log.warning("MLflow could not take a record of run %s: %s", self.run_id, error)
        except OSError as error:
            return str(error)
        return None


class _Outbox:
    """A queue that one thread processes in order; the receiver may be unreachable for any time."""

    def __init__(self, send: Callable[[list], str | None], retry_s: float, interval_s: float):
        self._send, self._retry_s, self._interval_s = send, retry_s, interval_s
        self._items: collections.deque = collections.deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mlflow-outbox", daemon=True)
        self._thread.start()

    def put(self, item) -> None:
        """Add a metric value or a call; never waits."""
        self._items.append(item)

    def close(self, timeout_s: float) -> list:
        """Send the rest of the queue for at most `timeout_s` seconds; returns the unsent items."""
        self._closing.set()
        self._thread.join(timeout_s)
        return list(self._items)

    def _work(self) -> None:
        is_away, deadline = False, None
        while True:
            if self._closing.is_set():
                if not self._items:
                    return
                deadline = deadline or time.monotonic() + 2 * self._retry_s
                if is_away and time.monotonic() > deadline:
                    return
            elif not is_away:
                self._closing.wait(self._interval_s)
            if not self._items:
                continue
            batch = self._next()
            problem = self._send(batch)
            if problem is None:
                for _ in batch:
                    self._items.popleft()
                if is_away:
                    log.warning("MLflow is back")
                is_away = False
                continue
            if not is_away:
                log.warning(
                    "MLflow is away, training continues without it: %s", problem.split("\n")[0]
                )
            is_away = True
            self._closing.wait(self._retry_s)
            if self._closing.is_set():
                time.sleep(min(0.2, self._retry_s))

    def _next(self) -> list:
        # Other threads append meanwhile, so the length is read only once.
        head = [self._items[index] for index in range(min(len(self._items), store.BATCH))]
        if callable(head[0]):
            return head[:1]
        return list(itertools.takewhile(lambda item: not callable(item), head))


def flatten(cfg: dict, prefix: str = "") -> dict[str, str]:
    """Dotted path -> leaf. Lists are one leaf, and so are mappings with a "/" in a key, because
    MLflow does not accept such keys as names.
    """
    leaves = {}
    for key, value in cfg.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and not any("/" in name for name in value):
            leaves |= flatten(value, f"{path}.")
        else:
            leaves[path] = value if isinstance(value, str) else json.dumps(value)
    return leaves


def _shortened(value: str) -> str:
    if len(value) <= _LONGEST_PARAM:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:12]
    return f"{value[: _LONGEST_PARAM - 40]}… sha256 {digest}, in config.yaml"
