"""The stack of infra/compose.yaml, built and run: a policy is trained, judged and promoted on it
while its parts are killed, and is there again after a restoration.
"""

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from rrf.client.connection import PolicyClient, ServerUnreachableError
from tests.flows import engine
from tests.flows.conftest import ROOT, balance_gate, copy_checkout
from tests.waiting import wait_for

COMPOSE = ROOT / "infra/compose.yaml"
FAULTS = ROOT / "tests/flows/faults.yaml"
TARGETS = ("database", "objects", "servers", "worker", "proxy")
USER = "10002"  # has no name in the images, like an operator who takes RRF_UID


def test_nothing_but_the_proxy_has_ports_or_a_way_out():
    described = yaml.safe_load(COMPOSE.read_text())
    for name, service in described["services"].items():
        assert ("ports" in service) == (name == "proxy"), name
        assert service["networks"] == (["inside", "outside"] if name == "proxy" else ["inside"])
        assert service["cap_drop"] == ["ALL"], name
        assert service["restart"] == ("no" if name == "maintenance" else "unless-stopped")
        assert not any(
            "password" in str(value).lower() for value in service.get("environment", {}).values()
        )
    assert described["networks"]["inside"] == {"internal": True}
    files = {secret["file"] for secret in described["secrets"].values()}
    assert all(file.startswith("${RRF_SECRETS:-/etc/rrf/secrets}/") for file in files)


def test_mlflows_server_looks_at_the_tables_before_it_begins():
    text = (ROOT / "infra/images/entry").read_text()
    server = text.partition("mlflow-server)")[2].partition(";;")[0]
    assert 0 < server.index("check_tables(") < server.index("exec python -m mlflow server")


class Stack:
    """The running stack, and what its users outside see of it."""

    def __init__(self, env: dict[str, str], folder: Path):
        self.root = self.workspace = folder / "robots"
        self.backups = folder / "backups"
        self.secrets = folder / "secrets"
        self.faults = folder / "faults"
        self.env = env | {
            "COMPOSE_PROJECT_NAME": "rrf-test",
            "RRF_IMAGES": "rrf-test",
            "RRF_SECRETS": str(self.secrets),
            "RRF_WORKSPACE": str(self.workspace),
            "RRF_BACKUPS": str(self.backups),
            "RRF_FAULTS": str(self.faults),
            "RRF_BIND": "127.0.0.1",
            "RRF_UID": USER,
            "RRF_GID": USER,
            "RRF_POLICY": "balance@champion",
        }
        self.tls = ssl.create_default_context()

    def secret(self, name: str) -> str:
        return (self.secrets / name).read_text().strip()

    def passwords(self) -> list[str]:
        """All secrets, the login without its user."""
        names = ("database_password", "objects_key", "policy_token", "login")
        return [self.secret(name).rpartition(":")[2] for name in names]

    def compose(self, *words: str, check: bool = True) -> str:
        files = ["-f", COMPOSE, "-f", FAULTS]
        return engine.run(self.env, "docker-compose", *files, *words, check=check)

    def docker(self, *words: str, check: bool = True) -> str:
        return engine.run(self.env, "docker", *words, check=check)

    def run_outside(self, *words) -> str:
        """Output of a command of rrf on another machine, which reaches what the proxy shows."""
        user, _, password = self.secret("login").partition(":")
        servers = {
            "RRF_HOME": str(self.faults),
            "MLFLOW_TRACKING_URI": "https://localhost:8444",
            "MLFLOW_TRACKING_USERNAME": user,
            "MLFLOW_TRACKING_PASSWORD": password,
            "MLFLOW_TRACKING_SERVER_CERT_PATH": str(self.secrets / "tls_certificate"),
        }
        return engine.run(self.env | servers, sys.executable, "-m", "rrf.cli", *words)

    def maintain(self, *words: str) -> str:
        return self.compose("run", "--rm", "maintenance", *words)

    def ledger(self, model: str) -> list[str]:
        """The lines of a model's ledger, without those of the engine."""
        lines = self.maintain("rrf", "models", "ledger", model).splitlines()
        return [line for line in lines if not line.startswith("Creating ")]

    def container(self, service: str) -> str:
        return self.compose("ps", "-q", service).strip()

    def spoil(self, mode: str) -> None:
        """What the S3 server does from now on: 500, slow, or ok."""
        (self.faults / "mode").write_text(mode)

    def pid(self, service: str) -> str:
        return self.docker("inspect", "-f", "{{.State.Pid}}", self.container(service)).strip()

    def kill(self, service: str, pid: str = "") -> None:
        """End a container's program as a crash does, and wait until the engine has it again."""
        pid = pid or self.pid(service)
        os.kill(int(pid), signal.SIGKILL)
        wait_for(lambda: self.is_well(service, but=pid), 600, lambda: self.logs(service))

    def is_well(self, service: str, but: str = "") -> bool:
        shown = (
            "{{.State.Pid}} {{.State.Running}} {{if .State.Health}}{{.State.Health.Status}}{{end}}"
        )
        answer = self.docker("inspect", "-f", shown, self.container(service), check=False).split()
        return answer[1:] in (["true", "healthy"], ["true"]) and answer[0] != but

    def logs(self, service: str) -> str:
        return self.docker("logs", "--tail", "60", self.container(service), check=False)

    def ask(self, address: str, body: dict | None = None, login: str | None = None):
        """An answer through the proxy: GET, or POST of `body`."""
        user = base64.b64encode((login or self.secret("login")).encode()).decode()
        headers = {"Authorization": f"Basic {user}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        question = urllib.request.Request(f"https://localhost:{address}", data, headers)
        with urllib.request.urlopen(question, timeout=60, context=self.tls) as answer:
            return json.loads(answer.read() or b"null")

    def asked(self, address: str, body: dict | None = None):
        """Like `ask`, for a question that may be repeated while a server comes back."""

        def answer():
            try:
                return [self.ask(address, body)]
            except (urllib.error.URLError, OSError):
                return None

        return wait_for(answer, 300)[0]

    def start(self, deployment: str, **parameters) -> str:
        found = self.asked(f"8443/api/deployments/name/{deployment}/{deployment}")
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return self.ask(f"8443/api/deployments/{found['id']}/create_flow_run", body)["id"]

    def retry(self, run: str) -> None:
        """As `prefect flow-run retry` does."""
        retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}}
        self.ask(f"8443/api/flow_runs/{run}/set_state", retry)

    def state(self, run: str) -> str:
        return self.asked(f"8443/api/flow_runs/{run}")["state"]["name"]

    def wait_for_state(self, run: str, *names: str) -> None:
        wait_for(lambda: self.state(run) in names, 1800, lambda: self.logs("worker"))

    def all_logs(self, service: str) -> str:
        return self.docker("logs", self.container(service), check=False)

    def num_checkpoints(self) -> int:
        return len(list((self.workspace / ".rrf/runs").glob("*/global_step_*/manifest.json")))


@pytest.fixture(scope="module")
def stack(tmp_path_factory) -> Iterator[Stack]:
    """The stack as docs/production.md starts it."""
    engine.require()
    folder = tmp_path_factory.mktemp("stack")
    with engine.running(folder) as env:
        engine.make_bases(env, folder)
        context = copy_checkout(folder / "context")
        lock = ["uv", "pip", "compile", "-q", "--no-annotate", "--no-header", "--python-version"]
        lock += ["3.12", "-c", "requirements.lock", "--extra", "postgres", "--extra", "s3"]
        numpy = folder / "override"
        numpy.write_text("numpy>=2.2,<2.3\n")  # as in pyproject.toml
        words = [*lock, "--override", numpy, "pyproject.toml", "-o", "worker.lock"]
        subprocess.run(words, cwd=context, check=True, capture_output=True)
        bases = ["PYTHON_IMAGE=rrf-test/python", "DEBIAN_IMAGE=rrf-test/debian", "LOCK=worker.lock"]
        given = [word for base in bases for word in ("--build-arg", base)]
        for target in TARGETS:
            name = f"rrf-test/{target}"
            if os.environ.get(engine.ENGINE) and engine.run(env, "docker", "images", "-q", name):
                continue  # remove an image of your engine to have it built again
            file = context / "infra/images/Dockerfile"
            command = ["docker", "build", "-q", "--network", "host", *given, "-f", file]
            engine.run(env, *command, "--target", target, "-t", name, context)
        one = Stack(env, folder)
        copy_checkout(one.workspace)
        one.backups.mkdir()
        one.faults.mkdir()
        shutil.copy2(ROOT / "tests/flows/fault_proxy.py", one.faults)
        one.spoil("ok")
        for path in (one.workspace, one.backups):
            subprocess.run(["chown", "-R", USER, path], check=True)
        folder.chmod(0o755)
        subprocess.run([ROOT / "infra/images/secrets", one.secrets, "localhost"], check=True)
        one.tls.load_verify_locations(one.secrets / "tls_certificate")
        try:
            one.compose("up", "-d", "--no-build")
            wait_for(lambda: "Worker" in one.all_logs("worker"), 600, lambda: one.logs("worker"))
            yield one
        finally:
            one.compose("down", "-v", "--remove-orphans", check=False)
            shutil.rmtree(one.workspace, ignore_errors=True)


@pytest.mark.slow
def test_from_outside_everything_asks_for_the_login_and_speaks_tls(stack):
    for address in ("8443/api/version", "8444/api/2.0/mlflow/experiments/search?max_results=1"):
        stack.asked(address)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            stack.ask(address, login="rrf:guess")
        with pytest.raises((urllib.error.URLError, ssl.SSLError, OSError)):
            urllib.request.urlopen(f"http://localhost:{address}", timeout=30)


@pytest.mark.slow
def test_events_and_logs_are_streamed_to_who_knows_the_login(stack):
    """Prefect's clients send it in the first message, not with the request."""

    def answer(stream: str, login: str) -> str:
        address = f"wss://localhost:8443/api/{stream}/out"
        with connect(address, ssl=stack.tls, subprotocols=[Subprotocol("prefect")]) as socket:
            socket.send(json.dumps({"type": "auth", "token": login}))
            return json.loads(socket.recv(timeout=60))["type"]

    for stream in ("events", "logs"):
        stack.asked("8443/api/version")
        assert answer(stream, stack.secret("login")) == "auth_success"
        with pytest.raises(ConnectionClosed, match="1008"):
            answer(stream, "rrf:guess")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            stack.ask(f"8443/api/{stream}/out", login="rrf:guess")


@pytest.mark.slow
def test_secrets_are_in_no_image_and_on_no_command_line(stack):
    secrets = stack.passwords()
    shown = [stack.docker("history", "--no-trunc", f"rrf-test/{target}") for target in TARGETS]
    names = stack.compose("ps", "-q").split()
    shown += [stack.docker("inspect", name) for name in names]
    shown += [stack.docker("top", name, "-eo", "pid,args") for name in names]
    assert len(names) == 7  # one is the proxy of this test
    assert [secret for secret in secrets if any(secret in text for text in shown)] == []
    lines = [line for n in names for line in stack.docker("top", n, "-eo", "pid,user").splitlines()]
    assert [line for line in lines if line.split()[1] == "root"] == []


@pytest.mark.slow
def test_a_champion_is_made_while_everything_is_killed_and_is_restored_elsewhere(stack):
    values = {"preset": "cartpole-ppo", "gate": balance_gate(stack, "easy", least=1)}
    overrides = {"max_iterations": 200, "num_steps_per_env": 32, "save_interval": 5, "seed": 0}
    worker = stack.pid("worker")
    run = stack.start("train-locomotion", model="balance", **values, overrides=overrides)
    wait_for(lambda: stack.num_checkpoints() >= 1, 1200, lambda: stack.logs("worker"))
    stack.kill("worker", worker)  # with the flow and the training in it
    stack.wait_for_state(run, "Crashed")
    saved = stack.num_checkpoints()
    stack.spoil("500")
    stack.retry(run)
    stack.wait_for_state(run, "Running", "Completed")
    for service in ("database", "prefect", "mlflow"):
        stack.kill(service)
    stack.docker("pause", stack.container("objects"))  # it answers nobody
    stack.spoil("slow")
    stack.docker("unpause", stack.container("objects"))
    stack.kill("objects")
    for _ in range(3):  # what was away for longer than its clients ask is a matter of a retry
        stack.wait_for_state(run, "Completed", "Failed", "Crashed")
        if stack.state(run) == "Completed":
            break
        stack.retry(run)
    stack.wait_for_state(run, "Completed")
    assert stack.num_checkpoints() > saved
    stack.spoil("ok")
    assert "aliases and ledgers agree" in " ".join(stack.maintain("rrf", "doctor").split())
    ledger = stack.ledger("balance")
    assert " ".join(ledger).count("version 1 promoted") == 1

    stack.run_outside("models", "fetch", "balance@champion", "--out", stack.faults / "policy")

    bin_ = "/usr/lib/postgresql/15/bin"
    stored = [stack.compose("exec", "-T", "database", f"{bin_}/pg_dumpall", "-h", "/tmp").encode()]
    stored += [
        path.read_bytes() for path in (stack.workspace / ".rrf").rglob("*") if path.is_file()
    ]
    assert any(b"cartpole-ppo" in content for content in stored)
    assert [one for one in stack.passwords() if any(one.encode() in text for text in stored)] == []

    said = stack.maintain("backup", "/backups/one.tar")
    assert "prefect (postgresql), mlflow (postgresql)" in said
    stack.compose("down", "-v")  # the disks are gone
    (stack.workspace / ".rrf").rename(stack.workspace.with_name("before"))
    stack.compose("up", "-d", "--no-build", "database", "objects")
    for service in ("database", "objects"):
        wait_for(lambda service=service: stack.is_well(service), 300)
    stack.maintain("restore", "/backups/one.tar")
    stack.compose("up", "-d", "--no-build")
    wait_for(lambda: stack.is_well("mlflow"), 600)
    assert stack.state(run) == "Completed"
    assert stack.ledger("balance") == ledger

    stack.compose("--profile", "serve", "up", "-d", "--no-build", "policy")
    token, file = stack.secret("policy_token"), stack.secrets / "tls_certificate"

    def answered():
        try:
            with PolicyClient("wss://localhost:8445", token=token, ca_file=str(file)) as client:
                return [client.infer({"policy": np.zeros(4, np.float32)})]
        except ServerUnreachableError:
            return None

    actions = wait_for(answered, 900, lambda: stack.logs("policy"))[0]
    assert np.isfinite(actions).all()
