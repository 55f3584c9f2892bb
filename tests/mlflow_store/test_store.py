"""A store that cannot be used: one line that says what, where and what to type; never a traceback,
never a password, never minutes of waiting.
"""

import contextlib
import http.server
import shutil
import sqlite3
import ssl
import sys
import threading
from pathlib import Path

import pytest

from infra import ports
from rrf import cli
from rrf.mlflow_store import store
from rrf.registry import listing
from rrf.tracking.mlflow_run import MLflowTracker
from tests.serving.test_access import certificate
from tests.waiting import wait_for

PASSWORD = "s3cret%2Fword"  # in a URI, "s3cret/word"
COMMANDS = {
    "list": ["models", "list"],
    "fetch": ["models", "fetch", "policy@champion"],
    "ledger": ["models", "ledger", "policy"],
    "promote": ["models", "promote", "policy", "1"],
    "rollback": ["models", "rollback", "policy", "--reason", "drops the cup"],
}


@contextlib.contextmanager
def locked(path: Path):
    """Another connection holds the whole database, as another process would."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        holder.close()


def line_of(words: list[str], monkeypatch, capsys) -> str:
    """The only line that `rrf WORDS` prints, which is an error."""
    monkeypatch.setattr(sys, "argv", ["rrf", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    printed = capsys.readouterr()
    [line] = (printed.out + printed.err).splitlines()
    return line


@pytest.fixture
def hasty(monkeypatch):
    """The store is given little time to answer; nothing here answers later."""
    monkeypatch.setattr(store, "_ANSWER_S", 1.0)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_locked_store_is_one_line_in_every_command(home, hasty, monkeypatch, capsys, command):
    monkeypatch.chdir(home)
    with locked(home / ".rrf/mlflow.db"):
        line = line_of(COMMANDS[command], monkeypatch, capsys)
    assert line.startswith(f"error: the MLflow store at sqlite:///{home}/.rrf/mlflow.db: ")
    assert "database is locked; another process writes to it or holds it: wait," in line


def test_a_store_that_may_not_be_written_is_one_line(home, monkeypatch):
    path = home / ".rrf/mlflow.db"
    monkeypatch.chdir(home)  # MLflow makes a directory "file:" in the current one
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///file:{path}?mode=ro&uri=true")
    assert listing.versions() == []
    with pytest.raises(OSError, match=r"attempt to write a readonly database; you may not write"):
        store.connect().create_registered_model("policy")


def test_a_full_disk_is_one_line(home):
    """The file may not grow by a single page, as on a full disk."""
    client = store.connect()
    with sqlite3.connect(home / ".rrf/mlflow.db") as connection:
        [pages] = connection.execute("PRAGMA page_count").fetchone()
    from sqlalchemy import event

    engine = client._get_registry_client().store.engine
    event.listen(
        engine, "checkout", lambda dbapi, *_: dbapi.execute(f"PRAGMA max_page_count={pages}")
    )

    def fill() -> None:
        for number in range(200):
            client.create_registered_model(f"policy-{number}", description="x" * 4000)

    with pytest.raises(OSError, match=r"database or disk is full; free some space"):
        fill()


def test_a_file_that_is_no_database_is_one_line(home, monkeypatch, capsys):
    (home / ".rrf/mlflow.db").write_text("no database" * 1000)
    line = line_of(COMMANDS["list"], monkeypatch, capsys)
    assert "file is not a database; move the file away, or restore it from a copy" in line


def test_a_server_that_is_gone_is_one_line_without_its_password(home, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ann:{PASSWORD}@127.0.0.1:9/")
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD", raising=False)
    line = line_of(COMMANDS["list"], monkeypatch, capsys)
    assert line.startswith("error: no MLflow store at http://127.0.0.1:9/: ")
    assert "Connection refused; start the server with `rrf services up`, or unset" in line
    assert "s3cret" not in line


def test_a_database_server_that_is_gone_is_one_line_without_its_password(home, monkeypatch, capsys):
    port = ports.free()
    uri = f"postgresql://ann:{PASSWORD}@127.0.0.1:{port}/mlflow"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    line = line_of(COMMANDS["list"], monkeypatch, capsys)
    assert line.startswith(f"error: no MLflow store at postgresql://127.0.0.1:{port}/mlflow: ")
    assert "Connection refused" in line
    assert "s3cret" not in line


@pytest.mark.parametrize("port", [24013, 14030, 54010])
def test_the_digits_of_a_port_are_no_answer_of_a_server(port):
    uri = f"postgresql://127.0.0.1:{port}/mlflow"
    error = OSError(f'connection to server at "127.0.0.1", port {port} failed: Connection refused')
    assert str(store.unusable(uri, error)).startswith(f"no MLflow store at {uri}: ")


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_login_says_where_user_and_password_come_from(code):
    error = OSError(f"API request failed with error code {code} != 200")
    assert "check user and password" in str(store.unusable("http://127.0.0.1:5000", error))


def test_a_password_that_no_address_can_hold_is_refused_unseen(home, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:s3cret/word@127.0.0.1:9")
    line = line_of(COMMANDS["list"], monkeypatch, capsys)
    assert "http://127.0.0.1:9 is not the address of a server; write special characters" in line
    assert "s3cret" not in line


def test_training_goes_on_while_the_store_is_locked_and_others_are_told(home, tmp_path, caplog):
    """The store is locked after both have used it."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    tracker = MLflowTracker("train", "r", run_dir, interval_s=0.05, retry_s=0.2)
    with locked(home / ".rrf/mlflow.db"):
        tracker.log_metrics({"loss": 1.0}, 1)
        with pytest.raises(OSError, match=r"^the MLflow store at .*: database is locked; [^\n]*$"):
            listing.versions()
        wait_for(lambda: "MLflow is away, training continues without it" in caplog.text)
    tracker.close("FINISHED")
    assert "database is locked" in caplog.text
    assert "Traceback" not in caplog.text
    assert store.connect().get_run(tracker.run_id).data.metrics == {"loss": 1.0}


def test_doctor_shows_the_store_and_what_is_wrong_with_it(home, hasty):
    from rrf.cli.doctor import _store

    uri = f"sqlite:///{home}/.rrf/mlflow.db"
    assert _store() == ("[green]ok[/green]", "MLflow store", uri)
    store._prepare.cache_clear()
    with locked(home / ".rrf/mlflow.db"):
        status, _, found = _store()
    assert status == "[red]problem[/red]"
    assert "database is locked; another process" in found
    shutil.rmtree(home / ".rrf")
    assert _store()[2] == f"{uri}, which the first training makes"


def test_of_two_processes_that_set_a_tag_first_at_the_same_time_both_succeed(home):
    client = store.connect()
    client.create_registered_model("policy")
    from sqlalchemy import event

    columns, values = "(workspace, name, key, value)", "('default', 'policy', 'key', 'theirs')"
    faster = [f"INSERT INTO registered_model_tags {columns} VALUES {values}"]

    def insert_first(connection, cursor, statement, *_) -> None:
        if statement.startswith("INSERT INTO registered_model_tags") and faster:
            with sqlite3.connect(home / ".rrf/mlflow.db") as other:
                other.execute(faster.pop())

    engine = client._get_registry_client().store.engine
    event.listen(engine, "before_cursor_execute", insert_first)
    try:
        client.set_registered_model_tag("policy", "key", "ours")
    finally:
        event.remove(engine, "before_cursor_execute", insert_first)
    assert not faster
    assert client.get_registered_model("policy").tags == {"key": "ours"}


def test_a_task_may_have_a_name_that_mlflow_refuses(home):
    client = store.connect()
    run = client.create_run(client.create_experiment("tasks")).info.run_id
    store.log_numbers(client, run, {"success/bowl@swap: now": 0.5, "success/größe": 1.0})
    assert client.get_run(run).data.metrics == {"success/bowl_swap: now": 0.5, "success/größe": 1.0}


def test_a_server_whose_certificate_is_in_a_file_is_reached_as_by_mlflow(monkeypatch, tmp_path):
    class Well(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    files = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files["certificate"], files["key"])
    server = http.server.HTTPServer(("127.0.0.1", 0), Well)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    uri = f"https://127.0.0.1:{server.server_port}"
    try:
        with pytest.raises(OSError, match=r"certificate verify failed.* type: export MLFLOW_TR"):
            store._check_answers(uri)
        monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", files["certificate"])
        store._check_answers(uri)
        monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(tmp_path / "none.pem"))
        with pytest.raises(OSError, match=r"names .*none\.pem, and there is no such file"):
            store._check_answers(uri)
    finally:
        server.shutdown()
        server.server_close()


def test_what_nobody_waits_for_asks_again_for_a_server_that_is_away(monkeypatch):
    port, started = ports.free(), []

    class Well(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    def start_instead_of_sleeping(_: float) -> None:
        server = http.server.HTTPServer(("127.0.0.1", port), Well)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)

    monkeypatch.setattr(store.time, "sleep", start_instead_of_sleeping)
    uri = f"http://127.0.0.1:{port}"
    with pytest.raises(OSError, match="no MLflow store at"):
        store._check_answers(uri)
    assert started == []
    monkeypatch.setenv("RRF_STORE_PATIENCE_S", "600")
    store._check_answers(uri)
    (server,) = started
    server.shutdown()
    server.server_close()


def test_a_database_that_ends_before_the_first_question_is_one_line():
    """MLflow asks it while a client is made."""
    from sqlalchemy.exc import OperationalError

    class Client:
        def __init__(self, **_):
            raise OperationalError("", {}, Exception("server closed the connection\nunexpectedly"))

    with pytest.raises(OSError, match=r"no MLflow store at postgresql:.*server closed the"):
        store.translating(Client, "postgresql://somewhere/mlflow")
