"""A run in MLflow. Training never waits for the store and does not fail if the store fails.

What is recorded goes to a queue that one thread processes in order, metrics in batches. The thread
connects to the store with the first metrics: MLflow's import takes two seconds of CPU, which the
first iteration should not share with it. While the store cannot be reached, the thread keeps the
queue and tries again. What is in the queue is in `<run_dir>/mlflow_unsent.json`, too, a record in
each line, and is sent when the same command runs again: a run that was killed goes on behind its
last checkpoint, and would not record once more what was before it. The run's own files do not
depend on the store.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from rrf import atomic, run_directory, workspace
from rrf.lineage import DatasetLineage, Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.authorship import NOTES, is_ours, signed
from rrf.run_directory import UNSENT
from rrf.runners.tracker import Status
from rrf.tracking.base import BaseTracker

_PARAMS = 100  # params per request, MLflow's limit
_LONGEST_PARAM = 500  # characters
_MISTAKES = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")  # the store will never take this record
_FILE_MISTAKES = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
log = logging.getLogger(__name__)

Record = dict[str, Any]
"""One thing to send, as plain data: the method of `_Run` that sends it under "kind", and its
arguments."""


class MLflowTracker(BaseTracker):
    """A run in the store of this workspace. Its outbox guards every record, not the base class."""

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
        connect_s: float = 10.0,
    ):
        """Prepare the run, which is opened or resumed when the first metrics arrive.

        Args:
            experiment: Name of the experiment; created if new.
            run_name: Name of the run for people.
            run_dir: The run's directory, where unsent records are kept.
            run_id: The run to continue. If this store does not have it, a new run is started.
            notes: The description of the run. In a resumed run it is brought up to date, unless a
                person wrote or edited it.
            retry_s: Seconds before a store that cannot be reached is tried again.
            interval_s: Seconds for which metrics are collected before they are sent.
            close_s: Seconds for which `close` waits for the store.
            connect_s: Seconds after which the run is opened even without metrics.

        Raises:
            OSError: If a server does not answer, or the file is no database.
        """
        super().__init__()
        store.require_usable()
        self._run_dir, self._close_s = Path(run_dir), close_s
        self._run = _Run(experiment, run_name, self._run_dir, run_id, notes)
        file = self._run_dir / UNSENT
        self._outbox = _Outbox(self._run.send, file, retry_s, interval_s, connect_s)

    @property
    def run_id(self) -> str | None:
        """The id of the run; None for a new run until the store has answered."""
        return self._run.run_id

    def log_config(self, cfg: dict) -> None:
        """Log the resolved config: each leaf as a param, and the whole as artifact config.yaml."""
        params = [(key[:250], _shortened(value)) for key, value in flatten(cfg).items()]
        for start in range(0, len(params), _PARAMS):
            self._put("params", params=dict(params[start : start + _PARAMS]))
        text = yaml.safe_dump(cfg, sort_keys=False, allow_unicode=True)
        self._put("text", name="config.yaml", text=text)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        now_ms = int(time.time() * 1000)
        for key, value in metrics.items():
            number = float(value)
            plain = number if math.isfinite(number) else str(number)  # JSON has no NaN
            self._put("metric", key=key, value=plain, timestamp=now_ms, step=step)
        self._outbox.begin()

    def set_tags(self, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            self._put("tag", key=key, value=value)

    def log_artifact(self, path: str | Path, folder: str = "") -> None:
        """Copy a file or directory to the run as soon as the store can be reached."""
        self._put("artifact", path=str(Path(path).absolute()), folder=folder)

    def log_dataset(self, lineage: Lineage) -> None:
        """Log each dataset as an input of the run, and the lineage as tags `lineage.*`.

        The dataset card becomes the artifact dataset/README.md; with several datasets each card
        becomes dataset/NAME/README.md.
        """
        datasets = [dataclasses.asdict(dataset) for dataset in lineage.datasets]
        self._put("inputs", datasets=datasets, revision=lineage.git_revision)
        for dataset in lineage.datasets:
            card = dataset.card
            if card and "://" not in card:  # a remote card is not copied, its tag has the address
                folder = str(PurePosixPath(dataset.card_place(lineage)).parent)
                self.log_artifact(workspace.home() / card, folder)
        self.set_tags(lineage.tags())

    def close(self, status: Status) -> None:
        """Send the rest of the queue, end the run, and keep unsent records on disk.

        A run that is killed before its first metrics leaves nothing in the store.
        """
        if status == "KILLED" and self._outbox.cancel():
            return  # what an earlier run left unsent stays in its file
        self._put("end", status=status)
        try:
            self._outbox.close(self._close_s)
        finally:  # also if Ctrl-C ends the wait
            if records := self._outbox.unsent():
                log.warning(
                    "MLflow did not come back: %d records kept in %s; the same command sends them",
                    len(records),
                    self._run_dir / UNSENT,
                )

    def _put(self, kind: str, **arguments) -> None:
        self._outbox.put({"kind": kind, **arguments})


class _Run:
    """Sends records to the run in the store, which it opens first. Used by one thread only."""

    def __init__(
        self, experiment: str, run_name: str, run_dir: Path, run_id: str | None, notes: str
    ):
        self._experiment, self._run_name, self._run_dir = experiment, run_name, run_dir
        self._notes = notes
        self.run_id = run_id
        self._client: Any = None

    def send(self, records: list[Record]) -> str | None:
        """Send `records`. Returns None on success, or the reason why the store cannot be
        reached."""
        from mlflow.exceptions import MlflowException

        try:
            if self._client is None:
                self._client = self._opened()
        except Exception as error:  # of the store's client, which may raise anything
            return str(error)
        try:
            self._send(records)
        except MlflowException as error:
            if error.error_code not in _MISTAKES:
                return str(error)
            if len(records) > 1:  # the store refused them all for one
                return next(filter(None, (self.send([record]) for record in records)), None)
            log.warning("MLflow refused a record of run %s: %s", self.run_id, error)
        except _FILE_MISTAKES as error:
            if records[0]["kind"] != "artifact":  # the store itself is in files, which may be away
                return str(error)
            log.warning("MLflow could not take a record of run %s: %s", self.run_id, error)
        except Exception as error:  # of the store's client, which may raise anything
            return str(error)
        return None

    def _send(self, records: list[Record]) -> None:
        if records[0]["kind"] == "metric":
            self._metrics(records)
        else:
            arguments = dict(records[0])
            getattr(self, f"_{arguments.pop('kind')}")(**arguments)

    def _opened(self) -> Any:
        """A client of the store that has the run.

        Raises:
            OSError: If the store cannot be reached, or refuses the run.
        """
        client = store.connect()
        from mlflow.exceptions import MlflowException

        try:
            if self.run_id is not None:
                try:
                    client.update_run(self.run_id, status="RUNNING")
                    self._renew(client, signed(self._notes) if self._notes else None)
                    return client
                except MlflowException as error:
                    log.warning(
                        "MLflow run %s cannot be continued (%s); starting a new one",
                        self.run_id,
                        error,
                    )
            experiment_id = store.experiment_id(client, self._experiment)
            tags = {NOTES: signed(self._notes)} if self._notes else {}
            run = client.create_run(experiment_id, tags=tags, run_name=self._run_name)
        except MlflowException as error:
            raise OSError(str(error)) from error
        self.run_id = run.info.run_id
        run_directory.note_run(self._run_dir, self.run_id)
        return client

    def _renew(self, client: Any, notes: str | None) -> None:
        """Bring the description of a resumed run up to date, unless a person wrote it."""
        written = client.get_run(self.run_id).data.tags.get(NOTES)
        if notes and is_ours(written) and written != notes:
            client.set_tag(self.run_id, NOTES, notes)

    def _metrics(self, records: list[Record]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(store.metric_name(r["key"]), float(r["value"]), r["timestamp"], r["step"])
            for r in records
        ]
        self._client.log_batch(self.run_id, metrics=metrics)

    def _params(self, params: dict[str, str]) -> None:
        """Log only new params: MLflow refuses a changed value, which a resumed run may have."""
        from mlflow.entities import Param

        known = self._client.get_run(self.run_id).data.params
        new = [Param(key, value) for key, value in params.items() if key not in known]
        self._client.log_batch(self.run_id, params=new)

    def _text(self, name: str, text: str) -> None:
        self._client.log_text(self.run_id, text, name)

    def _tag(self, key: str, value: str) -> None:
        self._client.set_tag(self.run_id, key, value)

    def _artifact(self, path: str, folder: str) -> None:
        is_folder = Path(path).is_dir()
        log_it = self._client.log_artifacts if is_folder else self._client.log_artifact
        log_it(self.run_id, path, folder or None)

    def _inputs(self, datasets: list[dict], revision: str | None) -> None:
        from rrf.mlflow_store.dvc_dataset import dataset_input

        inputs = [dataset_input(DatasetLineage(**dataset), revision) for dataset in datasets]
        self._client.log_inputs(self.run_id, inputs)

    def _end(self, status: str) -> None:
        self._client.set_terminated(self.run_id, status)


class _Outbox:
    """A queue that one thread processes in order; the receiver may be unreachable for any time.

    Its records are in a file, whose records come first.
    """

    def __init__(
        self,
        send: Callable[[list[Record]], str | None],
        file: Path,
        retry_s: float,
        interval_s: float,
        begin_s: float,
    ):
        self._send, self._retry_s, self._interval_s = send, retry_s, interval_s
        self._begin_s = begin_s
        self._file, self._changing = file, threading.Lock()
        self._items = collections.deque(_records_in(file))
        self._stream = file.open("ab", buffering=0)
        if self._stream.tell():
            self._stream.write(b"\n")  # behind half a line
        self._size = self._stream.tell()
        self._begun, self._closing = threading.Event(), threading.Event()
        self._beginning, self._is_cancelled = threading.Lock(), False
        self._thread = threading.Thread(target=self._work, name="mlflow-outbox", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        """Add a record; never waits for the receiver."""
        line = json.dumps(record, allow_nan=False) + "\n"
        with self._changing:
            self._items.append(record)
            with contextlib.suppress(OSError):  # of a full disk, which must not end a training
                self._stream.write(line.encode())

    def begin(self) -> None:
        """Send from now on; without it, sending begins after `begin_s` seconds."""
        self._begun.set()

    def cancel(self) -> bool:
        """End without sending anything; False if sending has begun already."""
        with self._beginning:
            self._is_cancelled = not self._begun.is_set()
            self._begun.set()
        if self._is_cancelled:
            self._stream.truncate(self._size)
            self._end()
        return self._is_cancelled

    def close(self, timeout_s: float) -> None:
        """Send the rest of the queue for at most `timeout_s` seconds."""
        self._closing.set()
        self._begun.set()
        try:
            self._thread.join(timeout_s)
        finally:
            self._end()

    def unsent(self) -> list[Record]:
        """What has not been sent."""
        return list(self._items)

    def _end(self) -> None:
        """Close the file, and remove an empty one."""
        with self._changing:
            is_empty = not os.fstat(self._stream.fileno()).st_size
            self._stream.close()
            if is_empty:
                self._file.unlink(missing_ok=True)

    def _is_sent(self, batch: list[Record]) -> None:
        """Remove what was sent."""
        with self._changing:
            for _ in batch:
                self._items.popleft()
            if self._items:
                return
            if self._stream.closed:
                self._file.unlink(missing_ok=True)
            else:
                self._stream.truncate(0)

    def _work(self) -> None:
        is_away, deadline = False, None
        self._begun.wait(self._begin_s)
        with self._beginning:
            self._begun.set()
            if self._is_cancelled:
                return
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
                self._is_sent(batch)
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

    def _next(self) -> list[Record]:
        """The metrics at the head of the queue, or else the one record there."""
        # Other threads append meanwhile, so the length is read only once.
        head = [self._items[index] for index in range(min(len(self._items), store.BATCH))]
        return (
            list(itertools.takewhile(lambda record: record["kind"] == "metric", head)) or head[:1]
        )


def _records_in(file: Path) -> list[Record]:
    """What a run has left unsent; a killed one may have written half of its last line."""
    if not file.is_file():
        return []
    text, records = file.read_text(encoding="utf-8", errors="replace"), []
    if text.startswith("["):  # as rrf wrote it before there was a record in each line
        records = atomic.parse_json(text)
    else:
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                records.append(atomic.parse_json(line))
    return [record for record in records if isinstance(record, dict) and record["kind"] != "end"]


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
