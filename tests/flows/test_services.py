"""The records of services: processes that were killed in part, ports, and other shells.

The service here is a small program of two processes, as MLflow's server is: one starts the other,
which listens on the port, and ends when it ends.
"""

import dataclasses
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from infra import ports, services
from infra.services import Service
from rrf import service_records
from rrf.cli.doctor import server as doctor_row
from rrf.registry import links
from tests.waiting import is_running, wait_for

CHILD = """
import http.server, sys
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""
LAUNCHER = (
    "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', *sys.argv[1:]]))"
)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A workspace in which nothing runs, and in the end nothing runs again."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    for variable, _ in service_records.PORTS.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def server(home):
    """A running server of two processes, recorded as the MLflow server."""
    port = ports.free()
    command = (sys.executable, "-c", LAUNCHER, CHILD, str(port))
    service = Service("mlflow", "MLflow server", command, f"http://127.0.0.1:{port}/", port)
    assert services.launch(service, {})
    wait_for(lambda: services.is_healthy(service.health_url))
    yield service
    services.end_service("mlflow")
    wait_for(lambda: ports.is_free(port))


def kill_launcher(service: Service) -> None:
    """SIGKILL to the process that was started; its child stays and listens."""
    record = service_records.read(service.name)
    assert record
    os.kill(record.pid, signal.SIGKILL)
    os.waitpid(record.pid, 0)
    assert not services.is_running(service)
    assert services.is_healthy(service.health_url)


def printed_by(action) -> str:
    with io.StringIO() as file:
        action(Console(width=200, file=file))
        return file.getvalue()


def test_what_a_killed_server_leaves_on_its_port_is_ended(server: Service):
    kill_launcher(server)
    printed = printed_by(services.status)
    assert "ended or was killed, see " in printed
    assert "; of it still run: " in printed
    assert services.end_service("mlflow")
    assert ports.is_free(server.port)
    assert services.launch(server, {})


def test_down_ends_what_a_killed_server_leaves(server: Service):
    kill_launcher(server)
    assert "mlflow stopped" in printed_by(services.down)
    assert ports.is_free(server.port)
    assert not service_records.path("mlflow").exists()


def kill_altogether(service: Service) -> None:
    """SIGKILL to all processes of a service, as when the machine loses its power."""
    record = service_records.read(service.name)
    assert record
    for pid in reversed(record.processes()):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(record.pid, 0)
    wait_for(lambda: ports.is_free(service.port))


def test_status_says_of_a_killed_service_where_its_log_is_and_what_to_type(server: Service):
    kill_altogether(server)
    log = services.log_of("mlflow")
    assert f"✗ mlflow   ended or was killed, see {log}; type: rrf services up\n" in printed_by(
        services.status
    )
    assert "✗ worker   not started by `rrf services up`" in printed_by(services.status)


def test_a_foreign_process_on_the_port_is_left_alone(server: Service):
    """It took the port of a server that was killed altogether; the record is still there."""
    kill_altogether(server)
    words = [sys.executable, "-c", CHILD, str(server.port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as foreign:
        wait_for(lambda: not ports.is_free(server.port))
        assert not services.end_service("mlflow")
        with pytest.raises(ValueError, match=f"port {server.port} .* in use by another program"):
            services.check_ports([server])
        assert "mlflow was not running" in printed_by(services.down)
        assert is_running(foreign.pid)
        foreign.kill()


def test_a_child_is_told_to_end_after_its_parent_and_killed_if_it_does_not(home):
    """The parent ends at once; the child notes its SIGTERM and goes on."""
    noted = home / "noted"
    child = (
        "import signal, sys, time, pathlib\n"
        "note = lambda *_: pathlib.Path(sys.argv[1]).write_text('told')\n"
        "signal.signal(signal.SIGTERM, note); print('ready', flush=True); time.sleep(600)"
    )
    service = Service("worker", "worker", (sys.executable, "-c", LAUNCHER, child, str(noted)))
    services.launch(service, {})
    wait_for(lambda: "ready" in services.log_of("worker").read_text())
    record = service_records.read("worker")
    assert record
    processes = record.processes()
    assert len(processes) == 2
    record.end(timeout_s=2)
    assert noted.read_text() == "told"
    wait_for(lambda: not any(is_running(pid) for pid in processes))


def test_a_service_can_be_interrupted_if_a_background_script_started_it(home):
    """Such a script and its children ignore SIGINT, by which Prefect's worker stops itself."""
    program = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('de' + 'af')"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        services.launch(Service("worker", "worker", (sys.executable, "-c", program)), {})
    finally:
        signal.signal(signal.SIGINT, before)
    printed = wait_for(lambda: services.log_of("worker").read_text())
    assert "deaf" not in printed
    wait_for(lambda: "KeyboardInterrupt" in services.log_of("worker").read_text())


def test_the_next_worker_answers_for_the_flows_of_a_killed_one(home):
    """Its flows go on without it, and `down` ends them together with the next worker."""
    sleeper = "import time; print('ready', flush=True); time.sleep(600)"
    service = Service("worker", "worker", (sys.executable, "-c", LAUNCHER, sleeper))
    services.launch(service, {})
    wait_for(lambda: "ready" in services.log_of("worker").read_text())
    first = service_records.read("worker")
    assert first
    [flow] = [pid for pid in first.processes() if pid != first.pid]
    os.kill(first.pid, signal.SIGKILL)
    os.waitpid(first.pid, 0)
    assert services.launch(service, {})
    assert is_running(flow)
    assert services.end_service("worker")
    assert not is_running(flow)


def test_a_running_server_without_a_login_is_not_taken_for_one_of_ours(
    server: Service, monkeypatch
):
    """Such as an earlier rrf has started; `up` would keep it."""
    unguarded = dataclasses.replace(server, private_url=server.health_url)
    with pytest.raises(ValueError, match=r"MLflow server asks for no login, .* services down; rrf"):
        services.check_private(unguarded)
    monkeypatch.setattr(services, "local_servers", lambda: [unguarded])
    printed = printed_by(services.status)
    assert "! the MLflow server asks for no login" in printed
    assert "✗ mlflow   pid " in printed


def test_another_shell_finds_the_running_server_by_its_record(server: Service, monkeypatch):
    """It has no variable for the port; asking for another port is an error that names both."""
    assert services.mlflow_port() == server.port
    services.check_asked_port(server)
    monkeypatch.setenv("RRF_MLFLOW_PORT", str(server.port + 1))
    assert services.mlflow_port() == server.port
    refused = f"runs on port {server.port}, not {server.port + 1};.*MLFLOW_PORT={server.port}$"
    with pytest.raises(ValueError, match=refused):
        services.check_asked_port(server)
    kill_launcher(server)
    assert services.mlflow_port() == server.port + 1
    monkeypatch.delenv("RRF_MLFLOW_PORT")
    assert services.mlflow_port() == server.port


def test_doctor_and_links_name_the_port_of_the_record(server: Service):
    _, what, found = doctor_row("MLflow server", "mlflow", "/")
    assert (what, found) == ("MLflow server", f"http://127.0.0.1:{server.port} answers 200")
    assert links.mlflow_pages() == f"http://127.0.0.1:{server.port}"


def test_doctor_asks_the_servers_that_the_environment_names(server: Service, tmp_path, monkeypatch):
    """Not those of the workspace, which `rrf services up` does not start then."""
    away = ports.free()
    with monkeypatch.context() as patch:
        patch.setenv("RRF_HOME", str(tmp_path / "other"))
        patch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.port}")
        patch.setenv("PREFECT_API_URL", f"http://ann:secret@127.0.0.1:{away}/api")
        _, _, mlflow = doctor_row("MLflow server", "mlflow", "/")
        _, _, prefect = doctor_row("Prefect server", "prefect", "/api/health")
    assert mlflow == f"http://127.0.0.1:{server.port} answers 200"
    assert prefect.startswith(f"http://127.0.0.1:{away} of PREFECT_API_URL does not answer (")


def test_an_installation_that_is_older_than_the_code_is_named(home, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    with pytest.raises(ValueError, match=r"installed before its servers .* make setup$"):
        services.up(Console(quiet=True))


def test_deployments_with_job_variables_are_refused_with_where_these_belong(home):
    """Those of a workspace that an earlier rrf made."""
    from infra import deployments

    (home / "infra").mkdir()
    pool = "work_pool: {name: local, job_variables: {env: {A: b}}}"
    described = f"[{{name: ingest, work_pool: {{name: local}}}}, {{name: mine, {pool}}}]"
    (home / "infra/prefect.yaml").write_text(f"deployments: {described}")
    with pytest.raises(ValueError, match=r"'mine' in infra/prefect.yaml has job_variables, .*move"):
        deployments.deployments()


def test_prefect_commands_take_the_address_from_the_record(home):
    """In a shell without PREFECT_API_URL."""
    service_records.write("prefect", os.getpid(), 4321, "mark")
    root = Path(__file__).parents[2]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "config", "view"],
        cwd=root,
        env=env | {"PREFECT_HOME": str(home / "prefect")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PREFECT_API_URL='http://127.0.0.1:4321/api'" in done.stdout.replace("\n", "")


@pytest.mark.parametrize(
    ("variable", "profile"),
    [("http://there/api", "http://127.0.0.1:4200/api"), (None, "http://there/api")],
)
def test_an_address_in_the_shell_or_in_a_profile_decides(home, monkeypatch, variable, profile):
    from rrf import prefect_plugin

    service_records.write("prefect", os.getpid(), 4321, "mark")
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    if variable:
        monkeypatch.setenv("PREFECT_API_URL", variable)
    ctx = SimpleNamespace(prefect_version="0", api_url=profile)
    assert prefect_plugin.setup_environment(ctx=ctx) is None


def test_a_login_in_the_address_of_prefect_moves_to_its_own_setting(home, monkeypatch):
    from rrf import prefect_plugin

    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "")
    ctx = SimpleNamespace(prefect_version="0", api_url="https://ann:se%2Fcret@there/api")
    result = prefect_plugin.setup_environment(ctx=ctx)
    assert result
    assert result.env == {"PREFECT_API_URL": "https://there/api"}
    assert os.environ["PREFECT_API_AUTH_STRING"] == "ann:se/cret"


def test_ctrl_c_while_a_server_starts_leaves_nothing_that_down_does_not_find(home, monkeypatch):
    popen, started = subprocess.Popen, []

    def interrupted(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    sleeping = Service("worker", "worker", (sys.executable, "-c", "import time; time.sleep(60)"))
    with pytest.raises(KeyboardInterrupt):
        services.launch(sleeping, {})
    assert not services.is_running(sleeping)
    assert services.end_service("worker")
    assert started[0].wait(timeout=10) == -signal.SIGTERM
