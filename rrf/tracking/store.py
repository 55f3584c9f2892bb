"""The MLflow store of this workspace: a client, experiments, and a lock, which MLflow itself lacks.

By default the store is a SQLite file and local files under `.rrf/`. `MLFLOW_TRACKING_URI` selects
another store.
"""

import contextlib
import fcntl
import functools
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rrf import workspace

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
_ANSWER_S = 5.0


def connect() -> "MlflowClient":
    """A client of the workspace's store. A local SQLite store is created if it does not exist.

    Raises:
        OSError: If the store cannot be reached or written.
    """
    from mlflow import MlflowClient

    uri = workspace.tracking_uri()
    _prepare(uri)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


@functools.cache
def _prepare(uri: str) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    for chatty in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    if uri.startswith("http"):
        _check_answers(uri)
    if uri.startswith(SQLITE):
        Path(uri.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
    try:
        with lock("mlflow-store"):  # two processes creating the tables at once would break both
            MlflowClient(tracking_uri=uri).search_experiments(max_results=1)
    except MlflowException as error:
        raise OSError(_absent(uri, error)) from error


def _check_answers(uri: str) -> None:
    """Check once that the server answers; MLflow's own client would retry for minutes."""
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_ANSWER_S).close()
    except urllib.error.HTTPError:
        return  # an HTTP error is an answer too, e.g. a request for a password
    except OSError as error:
        raise OSError(_absent(uri, error)) from error


def _absent(uri: str, error: Exception) -> str:
    return (
        f"no MLflow store at {uri}: {error}; start the server with `make up`, or unset "
        "MLFLOW_TRACKING_URI to use the local one"
    )


def experiment_id(client: "MlflowClient", name: str) -> str:
    """The id of the experiment with this name, which is created if it does not exist."""
    with lock("mlflow-store"):
        if found := client.get_experiment_by_name(name):
            return found.experiment_id
        location = None
        if workspace.tracking_uri().startswith(SQLITE):
            location = f"{workspace.artifact_root()}/{name}"
        return client.create_experiment(name, artifact_location=location)


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
