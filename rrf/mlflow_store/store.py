"""The MLflow store of this workspace: a client, experiments, metrics, and a lock (MLflow has none).

By default the store is a SQLite file and local files under `.rrf/`. `MLFLOW_TRACKING_URI` selects
another store.

What is wrong with a store that cannot be used is told in one line: what, where, what to type.
MLflow reports it as its own exceptions, with the SQL statement or the HTTP request in the text, or
as those of sqlalchemy and requests. Here all of them become an `OSError`; everything else that
MLflow refuses (an unknown run, an invalid name) keeps its type, because callers tell these apart.
"""

import contextlib
import datetime
import fcntl
import functools
import logging
import os
import re
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import service_guard, workspace
from rrf.mlflow_store import artifacts
from rrf.mlflow_store.artifacts import SQLITE

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from sqlalchemy import Engine

PATIENCE_VARIABLE = "RRF_STORE_PATIENCE_S"
_ANSWER_S, _PAUSE_S = 5.0, 2.0
_CONNECT_S = {"sqlite": "timeout", "postgresql": "connect_timeout", "mysql": "connect_timeout"}
"""Kind of database -> what its driver calls the seconds to wait for a connection or a lock."""
_RETRIES = "3"  # of MLflow's requests: 0, 4 and 8 s
BATCH = 1000
"""Metrics per request, MLflow's limit."""
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
_HINTS = {
    "is locked": "another process writes to it or holds it: wait, or end that process, then repeat",
    "readonly": "you may not write there; change that with: chmod -R u+w .rrf",
    "read-only": "you may not write there; change that with: chmod -R u+w .rrf",
    "is full": "free some space; `df -h .` shows how much there is",
    "no space left": "free some space; `df -h .` shows how much there is",
    "not a database": "move the file away, or restore it from a copy",
    "malformed": "move the file away, or restore it from a copy",
    "authentic": service_guard.MLFLOW_LOGIN,
    "password": service_guard.MLFLOW_LOGIN,
    "403": service_guard.MLFLOW_LOGIN,
}
_MIGRATION = re.compile(r"""^(revision|down_revision)\b[^=\n]*= *["'](\w+)["']""", re.MULTILINE)
_START = (
    "start the server with `rrf services up`, or unset MLFLOW_TRACKING_URI to use the local one"
)
_AWAY = ("TEMPORARILY_UNAVAILABLE", "INTERNAL_ERROR", "UNAUTHENTICATED")


def connect() -> "MlflowClient":
    """A client of the workspace's store. A local SQLite store is created if it does not exist.

    Raises:
        OSError: If the store cannot be reached or written.
    """
    from mlflow import MlflowClient

    uri = workspace.tracking_uri()
    service_guard.give_mlflow_login(uri)
    _prepare(uri)
    return translating(MlflowClient, uri)


def require_usable() -> None:
    """Check, without MLflow, that a server answers or that the file is a database.

    Raises:
        OSError: If not. Whether it can be written is seen only when it is.
    """
    uri = workspace.tracking_uri()
    if uri.startswith(workspace.SERVERS):
        _check_answers(uri)
    if uri.startswith(SQLITE) and "?" not in uri and is_made(uri):
        try:
            with contextlib.closing(sqlite3.connect(uri.removeprefix(SQLITE), timeout=0)) as file:
                file.execute("PRAGMA schema_version")
        except sqlite3.OperationalError:  # locked: by and by it can be written
            return
        except sqlite3.DatabaseError as error:
            raise unusable(uri, error) from error


@functools.cache
def _prepare(uri: str) -> None:
    from mlflow import MlflowClient

    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", _RETRIES)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # MLflow logs each failure of a database with its traceback; `store_errors` tells it in a line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    if uri.startswith(SQLITE):
        Path(uri.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
    if uri.startswith("http"):
        _check_answers(uri)
    is_new = uri.startswith(tuple(_CONNECT_S)) and not _has_tables(uri)
    if uri.startswith(tuple(_CONNECT_S)):
        check_tables(uri)
    with lock("mlflow-store"):  # two processes creating the tables at once would break both
        if is_new and not _has_tables(uri):
            translated(_create, uri)(uri)
        translating(MlflowClient, uri).search_experiments(max_results=1)


def _create(uri: str) -> None:
    """Make the tables, and the experiment Default with a place that is none of this machine."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(uri, artifacts.address())


def _check_answers(uri: str) -> None:
    """Check that the server answers: once, for somebody who waits, and MLflow's own client would
    ask for minutes. What nobody waits for has `$RRF_STORE_PATIENCE_S` seconds.
    """
    deadline = time.monotonic() + float(os.environ.get(PATIENCE_VARIABLE) or 0)
    while True:
        try:
            known = service_guard.certificates(service_guard.MLFLOW_CERTIFICATES)
            health = f"{uri.rstrip('/')}/health"
            urllib.request.urlopen(health, timeout=_ANSWER_S, context=known).close()
        except urllib.error.HTTPError:
            return  # an HTTP error is an answer too, e.g. a request for a password
        except service_guard.NO_ANSWER as error:
            if time.monotonic() >= deadline:
                raise unusable(uri, error) from error
            time.sleep(_PAUSE_S)
        else:
            return


def _has_tables(uri: str) -> bool:
    """Whether a database has MLflow's tables. It is asked once; MLflow would retry for minutes."""
    from sqlalchemy import inspect
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return inspect(engine(uri)).has_table("experiments")
    except SQLAlchemyError as error:
        raise unusable(uri, error) from error


def check_tables(uri: str) -> None:
    """Check that a database with tables has those of the MLflow that is installed.

    MLflow would change the tables of an older one when it is first used, without a copy of them.

    Raises:
        OSError: If it has those of another MLflow.
    """
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    if not _has_tables(uri):
        return
    known = _migrations()
    try:
        with engine(uri).connect() as connection:
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    except SQLAlchemyError as error:
        raise unusable(uri, error) from error
    if found in known and found not in known.values():
        return
    what = f"the MLflow store at {workspace.shown_uri(uri)} has the tables of"
    if found not in known:
        raise OSError(f"{what} a newer MLflow ({found}); install the rrf that the others use")
    shown = uri if uri.startswith(SQLITE) else '"$MLFLOW_TRACKING_URI"'
    raise OSError(
        f"{what} an older MLflow ({found}); stop what uses it, then type: rrf backup before.tar; "
        f"mlflow db upgrade {shown}"
    )


@functools.cache
def _migrations() -> dict[str, str]:
    """The states of the tables that the installed MLflow knows, each with the one before it.

    The files are read, not run, as Alembic would: that takes half a second of CPU.
    """
    import mlflow

    folder, found = Path(mlflow.__file__).parent / "store/db_migrations/versions", {}
    for file in folder.glob("*.py"):
        names = dict(_MIGRATION.findall(file.read_text(encoding="utf-8")))
        if "revision" in names:
            found[names["revision"]] = names.get("down_revision", "")
    return found


def is_made(uri: str) -> bool:
    """Whether there is a store at `uri`; only a file of SQLite may still have to be made."""
    return not uri.startswith(SQLITE) or Path(uri.removeprefix(SQLITE)).exists()


def engine(uri: str, keep: bool = False) -> "Engine":
    """The database at `uri`, which is asked once and not waited for longer than seconds.

    Args:
        uri: Of the database.
        keep: Keep the connection for the next question.
    """
    from sqlalchemy import QueuePool, create_engine, make_url
    from sqlalchemy.pool import NullPool

    url = make_url(uri)
    waits = {_CONNECT_S[url.get_backend_name()]: int(_ANSWER_S)}
    return create_engine(url, connect_args=waits, poolclass=QueuePool if keep else NullPool)


def experiment_id(client: "MlflowClient", name: str) -> str:
    """The id of the experiment with this name, which is created if it does not exist."""
    from mlflow.exceptions import MlflowException

    with lock("mlflow-store"):
        if experiment := client.get_experiment_by_name(name):
            return experiment.experiment_id
        location = None  # a server decides where; a database would put it below the cwd
        if not workspace.tracking_uri().startswith("http"):
            location = artifacts.address(name)
        try:
            return client.create_experiment(name, artifact_location=location)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        experiment = client.get_experiment_by_name(name)  # another machine was faster
        assert experiment
        return experiment.experiment_id


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a named lock against all threads and processes of this workspace.

    It is an flock on a file under `.rrf/locks/`. The system releases it when its holder ends, even
    if the holder is killed.
    """
    folder = workspace.state() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name.replace('/', '-')}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def metric_history(
    run_id: str, names: list[str] | None = None
) -> dict[str, list[tuple[int, float]]]:
    """The curves of a run, metric -> (step, value) in order, of all metrics or only of `names`."""
    client = connect()
    names = sorted(client.get_run(run_id).data.metrics) if names is None else names
    curves = {}
    for name in names:
        points = {m.step: m.value for m in client.get_metric_history(run_id, name)}
        curves[name] = sorted(points.items())
    return curves


def unusable(uri: str, error: BaseException) -> OSError:
    """The error for a store that cannot be reached, read or written because of `error`."""
    root = error
    while (not root.__suppress_context__ and root.__context__) or root.__cause__:
        root = root.__cause__ or root.__context__
        assert root
    reason = (str(root).strip() or type(root).__name__).splitlines()[0]
    words = reason.lower()  # 403 is an answer of a server, and not a part of port 24033
    hint = service_guard.hint(words, service_guard.MLFLOW_CERTIFICATES) or next(
        (h for mark, h in _HINTS.items() if re.search(rf"(?<!\d){mark}(?!\d)", words)), None
    )
    if hint is None and not uri.startswith("sqlite:"):
        return OSError(workspace.shown_uri(f"no MLflow store at {uri}: {reason}; {_START}"))
    hint = hint or "check the file and its folder, then repeat"
    return OSError(workspace.shown_uri(f"the MLflow store at {uri}: {reason}; {hint}"))


def translating(client: type["MlflowClient"], uri: str) -> "MlflowClient":
    """A client for the store at `uri` whose methods raise `unusable` when the store is.

    Args:
        client: MLflow's class of clients.
        uri: The store, for tracking and registry.
    """

    class Client(client):
        def _raise_if_prompt(self, name: str) -> None:
            """Do not read the whole model before each tag and alias: no model here is a prompt."""

        def __getattribute__(self, name: str):
            attribute = super().__getattribute__(name)
            if name.startswith("_") or not callable(attribute):
                return attribute
            return translated(_upserting(attribute) if name.startswith("set_") else attribute, uri)

    return translated(lambda: Client(tracking_uri=uri, registry_uri=uri), uri)()


def translated(call: Callable, uri: str) -> Callable:
    """`call`, which uses the store at `uri`, raising `unusable` when the store is."""

    @functools.wraps(call)
    def method(*args, **kwargs):
        import requests
        import sqlalchemy.exc
        from mlflow.exceptions import MlflowException

        try:
            return call(*args, **kwargs)
        except MlflowException as error:
            if error.error_code == "PERMISSION_DENIED":
                raise PermissionError(str(unusable(uri, error))) from error
            if error.error_code not in _AWAY and not _is_of_the_database(error.__cause__):
                raise
            raise unusable(uri, error) from error
        except (sqlalchemy.exc.SQLAlchemyError, requests.RequestException) as error:
            raise unusable(uri, error) from error

    return method


def _upserting(call: Callable) -> Callable:
    """`call`, which sets a tag or an alias, for two processes that set it first at the same time.

    MLflow looks whether it exists and then inserts it. Of two processes, the second one's insertion
    fails; called again, it changes what the other has inserted.
    """

    @functools.wraps(call)
    def method(*args, **kwargs):
        from mlflow.exceptions import MlflowException

        try:
            return call(*args, **kwargs)
        except MlflowException as error:
            if not any(mark in str(error) for mark in ("IntegrityError", "UniqueViolation")):
                raise
        return call(*args, **kwargs)

    return method


def _is_of_the_database(error: BaseException | None) -> bool:
    """Whether the database itself has failed, and not one statement with the values in it."""
    from sqlalchemy.exc import DatabaseError, DataError, IntegrityError, ProgrammingError

    refused = (DataError, IntegrityError, ProgrammingError)
    return isinstance(error, DatabaseError) and not isinstance(error, refused)


def metric_name(key: str) -> str:
    """A metric's name without what MLflow refuses, e.g. @ in the name of a task."""
    return _NOT_IN_NAMES.sub("_", key)


def log_numbers(client: "MlflowClient", run_id: str, numbers: Mapping[str, float]) -> None:
    """Add numbers to a run as metrics."""
    from mlflow.entities import Metric

    now_ms = int(datetime.datetime.now().timestamp() * 1000)
    metrics = [Metric(metric_name(key), float(v), now_ms, 0) for key, v in numbers.items()]
    for start in range(0, len(metrics), BATCH):
        client.log_batch(run_id, metrics=metrics[start : start + BATCH])
