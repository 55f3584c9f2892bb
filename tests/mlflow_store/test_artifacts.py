"""A store can be moved, copied and shared: no path of a machine is in it."""

import base64
import contextlib
import http.server
import os
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

from infra import ports, services
from rrf import service_guard, service_records
from rrf.mlflow_store import artifacts, store
from rrf.registry import listing, loading, promotion
from tests import postgres
from tests.registry.conftest import new_run, register

SQLITE = "sqlite:////a/.rrf/mlflow.db"


def test_an_address_is_resolved_by_the_store_it_stands_in(monkeypatch, tmp_path):
    address = artifacts.address("my runs") + "/run/artifacts"
    assert address == "rrf-artifacts:/my%20runs/run/artifacts"
    of_file = "file:///a/.rrf/mlartifacts/my%20runs/run/artifacts"
    assert artifacts.resolve(address, SQLITE) == of_file
    folder = Path("/a/.rrf/mlartifacts/my runs/run/artifacts")
    assert artifacts.local_folder(address, SQLITE) == folder
    of_proxy = "mlflow-artifacts:/my%20runs/run/artifacts"
    assert artifacts.resolve(address, "https://host/mlflow") == of_proxy
    assert artifacts.local_folder(address, "https://host/mlflow") is None
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    here = (tmp_path / ".rrf/mlartifacts/x").as_uri()
    assert artifacts.resolve("rrf-artifacts:/x", "postgresql://host/db") == here
    monkeypatch.setenv("RRF_ARTIFACT_ROOT", "s3://bucket/robots")
    assert artifacts.resolve("rrf-artifacts:/x", SQLITE) == "s3://bucket/robots/x"
    monkeypatch.setenv("RRF_ARTIFACT_ROOT", "/mnt/robots")
    assert artifacts.resolve("rrf-artifacts:/x", SQLITE) == "file:///mnt/robots/x"
    assert artifacts.resolve("s3://other/x", SQLITE) == "s3://other/x"


@pytest.mark.parametrize("uri", ["rrf-artifacts:/../x", "rrf-artifacts:/a/%2e%2e/%2E./x"])
def test_an_address_that_leads_out_of_the_folder_is_refused(uri):
    with pytest.raises(ValueError, match="leads out of the folder of artifacts"):
        artifacts.resolve(uri, SQLITE)


def test_what_is_downloaded_draws_no_bar(monkeypatch, tmp_path, capfd):
    monkeypatch.delenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", raising=False)
    (tmp_path / "from").mkdir()
    (tmp_path / "from/file").write_text("x")
    (tmp_path / "to").mkdir()
    repository = artifacts.repository((tmp_path / "from").as_uri(), SQLITE)
    repository.download_artifacts("file", str(tmp_path / "to"))
    assert (tmp_path / "to/file").read_text() == "x"
    assert capfd.readouterr().err == ""


@pytest.fixture
def model(home, run_id) -> str:
    """A model with a champion, whose evaluation and report are stored."""
    version, _ = register(home, "policy", run_id, seed=1, solved=18)
    promotion.promote("policy", version)
    return version


def test_a_client_is_not_sent_to_the_bucket_of_a_server(monkeypatch, tmp_path):
    """Where only the server may reach it, as in infra/compose.yaml."""

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            signs = b'{"multipart_uploads_enabled": true, "multipart_downloads_enabled": true}'
            self.send_response(200)
            self.end_headers()
            self.wfile.write(signs if "server-info" in self.path else b"content")

        def log_message(self, *_):
            pass

    for direction in ("UPLOAD", "DOWNLOAD"):
        monkeypatch.delenv(f"MLFLOW_ENABLE_PROXY_MULTIPART_{direction}", raising=False)
    asked: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    uri = f"http://127.0.0.1:{server.server_port}"
    try:
        repository = artifacts.repository("rrf-artifacts:/1/run", uri)
        assert isinstance(repository, MlflowArtifactsRepository)
        assert not repository._is_multipart_upload_enabled()
        repository._download_file("weights", str(tmp_path / "weights"))
        assert (tmp_path / "weights").read_bytes() == b"content"
        assert asked == ["/api/2.0/mlflow-artifacts/artifacts/1/run/weights"]
        monkeypatch.setenv("MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD", "true")
        assert artifacts.repository("rrf-artifacts:/1/run", uri)._is_multipart_upload_enabled()
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_a_workspace_can_be_moved_with_all_that_it_has_registered(
    home, model, tmp_path_factory, monkeypatch
):
    here = str(home).encode()
    for file in (home / ".rrf").rglob("*"):
        assert not file.is_file() or here not in file.read_bytes(), file
    assert store.connect().get_experiment("0").artifact_location == "rrf-artifacts:/0"
    moved = tmp_path_factory.mktemp("elsewhere") / "workspace"
    shutil.move(home, moved)
    monkeypatch.setenv("RRF_HOME", str(moved))
    fetched = loading.fetch("policy@champion", moved / "fetched")
    assert (fetched.version, listing.problems("policy")) == (model, [])
    # A run of its own: MLflow remembers in this process where the first one's artifacts were.
    version, _ = register(moved, "policy", new_run(store.connect()), seed=2, solved=20)
    assert promotion.promote("policy", version).champion == version  # reads both evaluations


def test_what_postgresql_knows_lies_in_the_workspace_or_where_the_variable_says(
    home, monkeypatch, tmp_path_factory
):
    shared = tmp_path_factory.mktemp("shared")
    with postgres.server() as uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.chdir(shared)
        client = store.connect()
        assert client.get_experiment("0").artifact_location == "rrf-artifacts:/0"
        here, there = new_run(client), new_run(client)
        client.log_text(here, "here", "note.txt")
        monkeypatch.setenv("RRF_ARTIFACT_ROOT", str(shared / "artifacts"))
        client.log_text(there, "there", "note.txt")
        place = home / ".rrf/mlartifacts"
        assert (place / f"train/{here}/artifacts/note.txt").read_text() == "here"
        place = shared / "artifacts"
        assert (place / f"train/{there}/artifacts/note.txt").read_text() == "there"
        assert [file.name for file in shared.iterdir()] == ["artifacts"]


@pytest.mark.slow
def test_another_machine_reads_and_registers_through_the_server(
    home, model, monkeypatch, tmp_path_factory
):
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(home, other, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".rrf"))
    with served() as address:
        login = service_guard.login()
        monkeypatch.setenv("RRF_HOME", str(other))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address.replace("//", f"//{login}@"))
        monkeypatch.chdir(other)
        loading.fetch("policy@champion", other / "fetched")
        client = store.connect()
        run_id = client.create_run(store.experiment_id(client, "elsewhere")).info.run_id
        version, _ = register(other, "policy", run_id, seed=2, solved=20)
        promotion.promote("policy", version)
        assert not (other / "mlruns").exists()
        assert not (other / ".rrf/mlartifacts").exists()
        listed = f"{address}/api/2.0/mlflow/artifacts/list?run_id={run_id}&path=evaluation"
        basic = f"Basic {base64.b64encode(login.encode()).decode()}"
        asked = urllib.request.Request(listed, headers={"Authorization": basic})
        assert b"evaluation/" in urllib.request.urlopen(asked).read()
    monkeypatch.setenv("RRF_HOME", str(home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert loading.fetch("policy@champion", home / "fetched").version == version


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The MLflow server that `rrf services up` starts in this workspace; yields its address."""
    service = services.mlflow_service(ports.free())
    services.launch(service, {**os.environ, **services.environment(ports.free())})
    record = service_records.read(service.name)
    assert record
    try:
        services.wait_until_healthy(service, lambda: record.is_running)
        yield service.health_url.removesuffix("/health")
    finally:
        record.end(timeout_s=30)
