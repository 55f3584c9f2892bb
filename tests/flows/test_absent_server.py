"""A Prefect server that goes away and comes back, and flows that are killed, on real services."""

import http.server
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from infra import ports
from tests.flows.conftest import Checkout
from tests.waiting import is_running, wait_for

AWAY_S = 60


class Health(http.server.BaseHTTPRequestHandler):
    """Answers every request as a healthy Prefect server answers a question for its health."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"true")

    def log_message(self, *_):
        pass


def serve(port: int) -> http.server.HTTPServer:
    server = http.server.HTTPServer(("127.0.0.1", port), Health)
    threading.Thread(target=server.serve_forever).start()
    return server


def stop(server: http.server.HTTPServer) -> None:
    server.shutdown()
    server.server_close()


def test_a_new_client_waits_for_a_server_that_its_process_has_reached_before(monkeypatch):
    """Each slot, artifact and name of a run is sent by a client of its own. The server comes back
    while the client waits before it tries again.
    """
    port, servers = ports.free(), []
    waiting = SimpleNamespace(sleep=lambda seconds: servers.append(serve(port)))
    monkeypatch.setattr("prefect.client.base.time", waiting)
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{port}/api"}):
        first = serve(port)
        assert get_client(sync_client=True)._client.get("/health").status_code == 200
        stop(first)
        assert get_client(sync_client=True)._client.get("/health").status_code == 200
        stop(servers[0])


@pytest.fixture(scope="module")
def checkout(checkout: Checkout) -> Checkout:
    """The copy on a machine with two GPUs."""
    state = str(checkout.root / "state")
    checkout.env |= {"CUDA_VISIBLE_DEVICES": "0,1", "XDG_STATE_HOME": state}
    return checkout


def kill_server(live: Checkout) -> None:
    """SIGKILL to every process of the Prefect server."""
    pid = json.loads((live.root / ".rrf/pids/prefect.json").read_text())["pid"]
    os.killpg(pid, signal.SIGKILL)
    wait_for(lambda: not is_running(pid))


def task_states(live: Checkout, run: str) -> list[str]:
    found = live.request("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
    return [one["state"]["name"] for one in found]


def has_begun(checkpoint: Path) -> bool:
    return checkpoint.exists() and json.loads(checkpoint.read_text())["step"] >= 10


@pytest.mark.slow
def test_a_server_that_is_away_for_a_minute_fails_no_run(live: Checkout, tmp_path):
    """One training ends while it is away, one goes on all the time, and one waits for a GPU."""
    live.pause("tick")
    files = [tmp_path / f"{name}.json" for name in ("long", "short", "waits")]
    runs = []
    for file, steps in zip(files, (2000, 400, 20), strict=True):
        runs.append(live.start("training", checkpoint=str(file), steps=steps))
        if file is not files[2]:
            wait_for(lambda file=file: has_begun(file))
    kill_server(live)
    wait_for(lambda: json.loads(files[1].read_text())["step"] == 400)
    time.sleep(AWAY_S)
    live.run(sys.executable, "-m", "infra.services", "up")
    for run in runs:
        live.wait_for_state(run, "Completed", "Failed", "Crashed", timeout_s=600)
    assert [live.state_of(run) for run in runs] == ["Completed"] * 3
    for run in runs:  # the task runs report through events, a little later
        wait_for(lambda run=run: task_states(live, run) == ["Completed"], 120)
    cancelled = live.start("training", checkpoint=str(tmp_path / "more.json"), steps=2000)
    wait_for(lambda: has_begun(tmp_path / "more.json"))
    live.run("prefect", "flow-run", "cancel", cancelled)  # the worker still listens
    live.wait_for_state(cancelled, "Cancelled")


@pytest.mark.slow
def test_the_tasks_of_a_killed_flow_are_crashed_when_the_next_flow_starts(live: Checkout, tmp_path):
    file = tmp_path / "killed.json"
    run = live.start("training", checkpoint=str(file), steps=2000)
    wait_for(lambda: has_begun(file))
    wait_for(lambda: task_states(live, run) == ["Running"])
    os.kill(json.loads(file.read_text())["parent"], signal.SIGKILL)
    live.wait_for_state(run, "Crashed")
    time.sleep(70)
    assert task_states(live, run) == ["Running"]
    refused = live.start("promote", model="nobody-yet", version="1")
    live.wait_for_state(refused, "Failed")
    assert task_states(live, run) == ["Crashed"]
