"""Servers of a team with a certificate of their own and a login, as seen from another machine."""

import base64
import http.server
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from rrf.cli.doctor import server as doctor_row
from tests.flows.conftest import ROOT
from tests.serving.test_access import certificate

LOGIN = "rrf:secret"
SUBMITS = "import infra.slurm as slurm, shutil; shutil.which = str; slurm.main()"


class Team(http.server.BaseHTTPRequestHandler):
    """Answers who knows the login."""

    def do_GET(self):
        known = f"Basic {base64.b64encode(LOGIN.encode()).decode()}"
        self.send_response(200 if self.headers["Authorization"] == known else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        self.do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def team(tmp_path, monkeypatch) -> Iterator[str]:
    """The address of the servers; what vouches for them is not in the environment."""
    files = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files["certificate"], files["key"])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Team)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"https://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", f"{address}/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("TEAM_CERTIFICATE", files["certificate"])
    yield address
    server.shutdown()
    server.server_close()


def first_line(*words: str) -> str:
    """The first line that a program prints; it is ended then if it goes on."""
    command = [sys.executable, *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        process.kill()
    return line


@pytest.mark.parametrize("words", [("-m", "infra.worker"), ("-c", SUBMITS)])
def test_the_first_line_says_what_to_type(team, monkeypatch, words):
    where = f"the Prefect server at {team}/api: "
    line = first_line(*words)
    assert f"{where}name the file that vouches for its certificate; type: export " in line
    monkeypatch.setenv("PREFECT_API_SSL_CERT_FILE", os.environ["TEAM_CERTIFICATE"])
    assert f"{where}it asks for a login; type: export PREFECT_API_" in first_line(*words)
    monkeypatch.setenv("PREFECT_API_SSL_CERT_FILE", "none.pem")
    assert "PREFECT_API_SSL_CERT_FILE names none.pem, and there is no such" in first_line(*words)


def test_doctor_logs_in(team, monkeypatch):
    asked = (("Prefect server", "prefect", "/api/health"), ("MLflow server", "mlflow", "/health"))
    for row, variable in zip(
        asked, ("PREFECT_API_SSL_CERT_FILE", "MLFLOW_TRACKING_SERVER_CERT_PATH"), strict=True
    ):
        assert f"certificate; type: export {variable}=FILE)" in doctor_row(*row)[2]
        monkeypatch.setenv(variable, os.environ["TEAM_CERTIFICATE"])
    assert "type: export PREFECT_API_AUTH_STRING=USER:PASSWORD" in doctor_row(*asked[0])[2]
    assert "check user and password in MLFLOW_TRACK" in doctor_row(*asked[1])[2]
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", LOGIN)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "rrf")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    for row in asked:
        assert doctor_row(*row)[2] == f"{team} answers 200"
