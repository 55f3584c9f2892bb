"""An MLflow server behind a proxy that asks for user and password, used by URL, as a team has it.

Everything that the commands print and everything that the store holds in the end is searched for
the password.
"""

import base64
import http.client
import http.server
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from infra import ports
from rrf import processes, workspace
from rrf.mlflow_store import store
from rrf.registry import links, registration
from rrf.registry.lineage_sources import collect_lineage
from rrf.tracking.runs import open_trackers
from tests.registry.conftest import make_checkpoint, make_evaluation
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PASSWORD = "pass/word"


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests with the right login on to the server behind it."""

    behind = 0
    login = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != self.login:
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=120)
        connection.request(self.command, self.path, body, dict(self.headers))
        found = connection.getresponse()
        content = found.read()
        self.send_response(found.status)
        self.send_header("Content-Type", found.headers.get("Content-Type", "text/plain"))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """A real MLflow server that serves artifacts; yields the port of the proxy before it."""
    folder, port = tmp_path_factory.mktemp("server"), ports.free()
    words = ["mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    words += ["--artifacts-destination", str(folder / "artifacts")]
    with (folder / "log").open("wb") as log:
        server = processes.start([sys.executable, "-m", *words], cwd=folder, stdout=log)
    Proxy.behind = port
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        wait_for(lambda: not ports.is_free(port), 180)
        yield folder, proxy.server_port
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
        processes.stop(server, grace_s=10)


@pytest.fixture
def login(home, behind, monkeypatch):
    """The variables of a shell that names user and password in the URI; yields the server's."""
    folder, port = behind
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "")
    uri = f"http://ann:pass%2Fword@127.0.0.1:{port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return folder, port, uri


def rrf(home: Path, uri: str, *words: str) -> str:
    """What `rrf WORDS` prints in a new shell."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    env |= {"MLFLOW_TRACKING_URI": uri, "RRF_HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "rrf", *words]
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_login_in_the_uri_works_and_is_nowhere_to_be_read(home, login, caplog):
    folder, port, uri = login
    run_dir = home / ".rrf/runs/r"
    run_dir.mkdir(parents=True)
    checkpoint = make_checkpoint(run_dir / "global_step_1")
    make_evaluation(run_dir / "evaluation", checkpoint, solved=19)
    tracker = open_trackers(["mlflow"], "train", "r", run_dir)
    tracker.log_config({"seed": 1})
    tracker.close("FINISHED")
    lineage = collect_lineage("demo")
    registration.register(checkpoint, "policy", tracker.run_id, lineage, run_dir / "evaluation")
    assert links.mlflow_pages() == f"http://127.0.0.1:{port}"
    listed = rrf(home, uri, "models", "list")
    assert "@candidate" in listed
    fetched = rrf(home, uri, "models", "fetch", "policy/1", "--out", "fetched")
    assert "policy version 1 is at fetched" in fetched
    doctor = rrf(home, uri, "doctor")
    assert f"http://127.0.0.1:{port}" in doctor
    with sqlite3.connect(folder / "mlflow.db") as database:
        stored = "\n".join(database.iterdump())
    written = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    for secret in ("pass/word", "pass%2Fword"):
        assert secret not in listed + fetched + doctor + caplog.text + stored
        assert not any(secret.encode() in content for content in written)
    assert workspace.tracking_uri() == f"http://127.0.0.1:{port}"


def test_a_wrong_password_is_one_line(home, login, monkeypatch):
    _, port, _ = login
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ann:wrong-word@127.0.0.1:{port}")
    with pytest.raises(
        OSError, match=r"^the MLflow store at .*: .*check user and password"
    ) as told:
        store._prepare.__wrapped__(workspace.tracking_uri())
    assert "wrong-word" not in str(told.value)
    assert "\n" not in str(told.value)
