"""The MLflow store of this workspace: a client, experiments, and a lock, which MLflow itself lacks.

By default the store is a SQLite file and local files under `.rrf/`. `MLFLOW_TRACKING_URI` selects
another store.
"""

import contextlib
import fcntl
import functools
import logging
import os
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import workspace
from rrf.tracking import artifacts, store_errors
from rrf.tracking.artifacts import SQLITE

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from sqlalchemy import Engine

_ANSWER_S = 5.0
_CONNECT_S = {"sqlite": "timeout", "postgresql": "connect_timeout", "mysql": "connect_timeout"}
"""Kind of database -> what its driver calls the seconds to wait for a connection or a lock."""
_RETRIES = "3"  # of MLflow's requests: 0, 4 and 8 s


def connect() -> "MlflowClient":
    """A client of the workspace's store. A local SQLite store is created if it does not exist.

    Raises:
        OSError: If the store cannot be reached or written.
    """
    from mlflow import MlflowClient

    uri = workspace.tracking_uri()
    _prepare(uri)
    return store_errors.translating(MlflowClient, uri)


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
            raise store_errors.unusable(uri, error) from error


@functools.cache
def _prepare(uri: str) -> None:
    from mlflow import MlflowClient

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", _RETRIES)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # MLflow logs each failure of a database with its traceback; `store_errors` tells it in a line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    if uri.startswith(SQLITE):
        Path(uri.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
    if uri.startswith("http"):
        _check_answers(uri)
    is_new = uri.startswith(tuple(_CONNECT_S)) and not _has_tables(uri)
    with lock("mlflow-store"):  # two processes creating the tables at once would break both
        if is_new and not _has_tables(uri):
            store_errors.translated(_create, uri)(uri)
        store_errors.translating(MlflowClient, uri).search_experiments(max_results=1)


def _create(uri: str) -> None:
    """Make the tables, and the experiment Default with a place that is none of this machine."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(uri, artifacts.address())


def _check_answers(uri: str) -> None:
    """Check once that the server answers; MLflow's own client would retry for minutes."""
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_ANSWER_S).close()
    except urllib.error.HTTPError:
        return  # an HTTP error is an answer too, e.g. a request for a password
    except OSError as error:
        raise store_errors.unusable(uri, error) from error


def _has_tables(uri: str) -> bool:
    """Whether a database has MLflow's tables. It is asked once; MLflow would retry for minutes."""
    from sqlalchemy import inspect
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return inspect(engine(uri)).has_table("experiments")
    except SQLAlchemyError as error:
        raise store_errors.unusable(uri, error) from error


def is_made(uri: str) -> bool:
    """Whether there is a store at `uri`; only a file of SQLite may still have to be made."""
    return not uri.startswith(SQLITE) or Path(uri.removeprefix(SQLITE)).exists()


def engine(uri: str) -> "Engine":
    """The database at `uri`, which is asked once and not waited for longer than seconds."""
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.pool import NullPool

    url = make_url(uri)
    waits = {_CONNECT_S[url.get_backend_name()]: int(_ANSWER_S)}
    return create_engine(url, connect_args=waits, poolclass=NullPool)


def experiment_id(client: "MlflowClient", name: str) -> str:
    """The id of the experiment with this name, which is created if it does not exist."""
    from mlflow.exceptions import MlflowException

    with lock("mlflow-store"):
        if found := client.get_experiment_by_name(name):
            return found.experiment_id
        location = None  # a server decides where; a database would put it below the cwd
        if not workspace.tracking_uri().startswith("http"):
            location = artifacts.address(name)
        try:
            return client.create_experiment(name, artifact_location=location)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        found = client.get_experiment_by_name(name)  # another machine was faster
        assert found
        return found.experiment_id


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
