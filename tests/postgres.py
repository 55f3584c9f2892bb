"""A real PostgreSQL server for tests, from the binaries that Debian installs."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import ports

_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def found() -> str | None:
    """The program that makes a database, where PostgreSQL is installed."""
    return shutil.which("initdb", path=os.pathsep.join([os.environ["PATH"], *map(str, _PLACES)]))


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Run a server with an empty database; yields its address for MLflow.

    Skips the test where PostgreSQL is not installed.
    """
    with running() as server:
        yield server.uri


class Server:
    """A server that runs.

    Args:
        uri: Its address for MLflow.
        control: The words that control it.
        start: What starts it.
    """

    def __init__(self, uri: str, control: list, start: list):
        self.uri, self._control, self._start = uri, control, start

    def restart(self) -> None:
        """End it at once, with all that it is doing, and start it again."""
        _run(*self._control, "-m", "immediate", "stop")
        _run(*self._control, *self._start)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Run a server that can be restarted. Skips as `server` does."""
    initdb = found()
    if initdb is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    pytest.importorskip("psycopg2", reason="psycopg2 is not installed")
    # PostgreSQL does not run as root, and pytest's own folders are closed to other users.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="rrf-postgres-") as folder:
        if user:
            shutil.chown(folder, user)
        data = Path(folder) / "data"
        _run(user, initdb, "-D", data, "-U", "rrf", "-A", "trust")
        port = ports.free()
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {folder}"
        control = [user, Path(initdb).parent / "pg_ctl", "-D", data, "-w"]
        start = ["-l", f"{folder}/log", "-o", options, "start"]
        _run(*control, *start)
        try:
            yield Server(f"postgresql://rrf@127.0.0.1:{port}/postgres", control, start)
        finally:
            _run(*control, "-m", "immediate", "stop")


def create(uri: str, *databases: str) -> None:
    """Make empty databases beside the one at `uri`."""
    for name in databases:
        query(uri, "postgres", f"CREATE DATABASE {name}")


def named(uri: str, database: str, driver: str = "") -> str:
    """The address of another database of the server at `uri`, for a driver of SQLAlchemy's."""
    return uri.replace("postgresql:", f"postgresql{driver and '+'}{driver}:").replace(
        "/postgres", f"/{database}"
    )


def query(uri: str, database: str, statement: str) -> list[tuple]:
    """The rows that a statement gives; what it changes is committed."""
    import psycopg2

    connection = psycopg2.connect(named(uri, database))
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def _run(user: str | None, *command) -> None:
    # Without a file for the output, the server would inherit our pipe and keep it open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            user=user,
            group=user,
            extra_groups=[] if user else None,
        )
        output.seek(0)
        assert done.returncode == 0, output.read().decode()
