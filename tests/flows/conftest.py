"""A copy of this checkout in a temporary directory, with its services running."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import typing
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from infra import ports, services
from rrf import processes
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]


class HasRoot(typing.Protocol):
    """Something that is in a checkout."""

    root: Path


class Checkout:
    """A checkout with its own state and ports, and the programs a user would type in it."""

    def __init__(self, root: Path):
        self.root = root
        self.prefect_port, self.mlflow_port = ports.free(), ports.free()
        self.api = f"http://127.0.0.1:{self.prefect_port}/api"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)}
        self.env = kept | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(root),
            "RRF_HOME": str(root),
            "RRF_KEYS": str(root / ".rrf" / "keys"),
            "RRF_KEY": "worker",
            "RRF_PREFECT_PORT": str(self.prefect_port),
            "RRF_MLFLOW_PORT": str(self.mlflow_port),
            "RRF_METRICS_PORT": str(ports.free()),
            "PREFECT_API_URL": self.api,
            "PREFECT_HOME": str(root / ".rrf" / "prefect"),
        }

    def run(self, *command: str, timeout_s: float = 900, check: bool = True) -> str:
        """Output of a command typed in the checkout."""
        result = subprocess.run(
            command,
            cwd=self.root,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or result.returncode == 0, (
            f"{command} -> {result.returncode}\n{result.stdout}"
        )
        return result.stdout

    def request(self, path: str, body: dict | None = None):
        """An answer of the Prefect server: GET, or POST of `body`."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.login()}
        if data is not None:
            headers |= self.csrf()
        question = urllib.request.Request(f"{self.api}{path}", data, headers)
        for _ in range(20):
            try:
                with urllib.request.urlopen(question, timeout=60) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                if error.code != 503:  # SQLite is busy; Prefect's own clients ask again, too
                    raise
            except TimeoutError:
                if body is not None:  # a question may be repeated, an order may not
                    raise
            time.sleep(0.5)
        raise AssertionError(f"{path} had no answer but 503 in twenty attempts")

    def login(self) -> dict[str, str]:
        """The header with the login of the servers, as their user reads it in the file."""
        line = (self.root / ".rrf/login").read_bytes().strip()
        return {"Authorization": f"Basic {base64.b64encode(line).decode()}"}

    def csrf(self) -> dict[str, str]:
        """The headers with a token against forged requests, as Prefect's clients ask for it."""
        token = self.request("/csrf-token?client=test")["token"]
        return {"Prefect-Csrf-Client": "test", "Prefect-Csrf-Token": token}

    def flow_runs(self, deployment: str, **conditions) -> list[dict]:
        """Flow runs of a deployment, newest first."""
        return self.request(
            "/flow_runs/filter",
            {
                "deployments": {"name": {"any_": [deployment]}},
                "flow_runs": conditions or None,
                "sort": "EXPECTED_START_TIME_DESC",
            },
        )

    def pause(self, deployment: str) -> None:
        """Stop its schedules, and the runs they have planned."""
        found = self.request(f"/deployments/name/{deployment}/{deployment}")
        self.request(f"/deployments/{found['id']}/pause_deployment", {})

    def start(self, deployment: str, **parameters) -> str:
        """The id of a flow run, created as `prefect deployment run` does."""
        found = self.request(f"/deployments/name/{deployment}/{deployment}")
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return self.request(f"/deployments/{found['id']}/create_flow_run", body)["id"]

    def artifacts(self, **conditions) -> list[str]:
        """Descriptions of artifacts in the order in which they were made."""
        found = self.request("/artifacts/filter", {"artifacts": conditions})
        return [one["description"] for one in sorted(found, key=lambda one: one["created"])]

    def state_of(self, run: str) -> str:
        return self.request(f"/flow_runs/{run}")["state"]["name"]

    def wait_for_state(self, run: str, *names: str, timeout_s: float = 300) -> None:
        """Until the flow run is in one of the states `names`."""
        wait_for(
            lambda: self.state_of(run) in names, timeout_s, lambda: f"{run} is {self.state_of(run)}"
        )


_OURS = ("PREFECT_", "RRF_", "MLFLOW_")


def copy_checkout(target: Path) -> Path:
    """The files of this working tree that git does not ignore, in a repository of their own."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in sorted(set(listed.stdout.decode().split("\0")) - {""}):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], ["add", "-Af"], [*author, "commit", "-qm", "copy"]):
        subprocess.run(["git", *words], cwd=target, check=True)
    return target


@pytest.fixture(scope="package")
def prefect_api(tmp_path_factory) -> Iterator[str]:
    """The address of a server as Prefect starts it for tests, one for all modules: to start it
    takes ten CPU-seconds. It computes also while nobody asks it.
    """
    home, port = tmp_path_factory.mktemp("prefect"), ports.free()
    command = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"]
    command += ["--host", ports.HOST, "--port", str(port), "--log-level", "error"]
    env = {"PREFECT_HOME": str(home), "PREFECT_UI_ENABLED": "0"}
    env |= {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    api, log = f"http://{ports.HOST}:{port}/api", home / "server.log"
    with log.open("wb") as file:
        process = processes.start(command, cwd=home, env=env, stdout=file)
    try:
        wait_for(
            lambda: services.is_healthy(f"{api}/health") or processes.has_ended(process),
            found=log.read_text,
        )
        yield api
    finally:
        processes.stop(process, grace_s=10)


@pytest.fixture(scope="module")
def server(prefect_api) -> Iterator[None]:
    """Flows of this process run on the server of `prefect_api`."""
    from prefect.context import _temporary_global_settings_context, get_settings_context
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with (
        temporary_settings({PREFECT_API_URL: prefect_api}),
        _temporary_global_settings_context(get_settings_context()),  # for the threads of tests
    ):
        yield
        with contextlib.suppress(RuntimeError):  # nothing was logged
            APILogWorker.instance().drain()
        EventsWorker.drain_all()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Iterator[Checkout]:
    """A copy of this checkout; nothing runs in it yet."""
    copy = Checkout(copy_checkout(tmp_path_factory.mktemp("checkout")))
    yield copy
    copy.run(sys.executable, "-m", "infra.services", "down")


@pytest.fixture(scope="module")
def live(checkout) -> Checkout:
    """The copy with `rrf services up` done in it, and the stand-in flows deployed beside ours."""
    file = checkout.root / "infra/prefect.yaml"
    described = yaml.safe_load(file.read_text())
    described["deployments"] += yaml.safe_load((ROOT / "tests/flows/standins.yaml").read_text())
    file.write_text(yaml.safe_dump(described))
    checkout.run(sys.executable, "-m", "infra.services", "up")
    return checkout


def as_words(values: dict) -> list[str]:
    """Parameters of a flow as words for `prefect deployment run`."""
    return [word for key, value in values.items() for word in ("-p", f"{key}={json.dumps(value)}")]


BALANCE = """
name: balance
env: {type: "rrf.envs.gymnasium.configs:GymnasiumEnvCfg", task: CartPole-v1, num_envs: 4}
seed: 4242
episodes_per_task: 4
max_episode_steps: 60
success: {return: {min: 8}}
"""


def balance_gate(live: "HasRoot", name: str, least: float) -> str:
    """A gate of four short episodes on CartPole that asks for this mean return.

    The path is as a user in the checkout types it.
    """
    (live.root / "configs/protocols/balance.yaml").write_text(BALANCE)
    gate = live.root / f"configs/gates/{name}.yaml"
    limits = f"limits: {{return: {{min: {least}}}}}\nlooks: [4]\nchampion_margin: 0.9\n"
    gate.write_text(f"name: {name}\nprotocol: balance\noverall_lower_bound: 0.0\n{limits}")
    return f"configs/gates/{name}.yaml"


def balancing(gate: str, seed: int) -> list[str]:
    """A training of two iterations, as words for `prefect deployment run`."""
    overrides = {"max_iterations": 2, "num_steps_per_env": 32, "seed": seed}
    values = {"preset": "cartpole-ppo", "gate": gate, "model": "balance", "overrides": overrides}
    return ["deployment", "run", "train-locomotion", "--watch", *as_words(values)]


@pytest.fixture(scope="module")
def balanced(live: Checkout) -> str:
    """What the flow prints that makes the champion of `balance`."""
    return live.run("prefect", *balancing(balance_gate(live, "easy", least=1), seed=0))
