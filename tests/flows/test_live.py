"""What a user does after `rrf services up`, on a real Prefect server, MLflow server and worker, and
what others try on them: pages that the user has opened in a browser, and other users of the machine
(`docs/security.md` has the table).
"""

import base64
import contextlib
import http.server
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.leftovers import crash_left_task_runs
from tests.browser import Browser, browser
from tests.flows.conftest import Checkout
from tests.waiting import is_running, wait_for

OURS = {
    "ingest",
    "ingest-deployment",
    "retrain-on-new-data",
    "train-vla",
    "train-locomotion",
    "train-offline",
    "train-hierarchy",
    "evaluate",
    "promote",
    "nightly-benchmark",
    "nightly-matrix",
}
NOBODY = 65534
COMMAND = {"job_variables": {"command": "sh -c 'touch /tmp/owned'"}}
LATER = {"state": {"type": "SCHEDULED", "state_details": {"scheduled_time": "2999-01-01"}}}
TRY = """(async () => {
  const answer = {};
  const post = {method: "POST", body: JSON.stringify(BODY), credentials: "include"};
  const json = {"content-type": "application/json"};
  for (const [name, how] of Object.entries({
    json: {...post, headers: json},
    blind: {...post, mode: "no-cors"},
    read: {credentials: "include"},
  })) answer[name] = await fetch(URL, how).then((it) => it.type, () => "refused");
  answer.socket = await new Promise((done) => {
    const socket = new WebSocket(URL.replace("http", "ws"), ["prefect"]);
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
  });
  return answer;
})()"""
REFUSED = {"json": "refused", "blind": "opaque", "read": "refused", "socket": "refused"}
"""What a page sees. The answer to a blind request is never shown to it; the servers say that they
did not do what it asked for."""


def trainer_of(checkpoint: Path) -> dict:
    """What the stand-in trainer saved last, once it has made some steps."""

    def read() -> dict | None:
        state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {}
        return state if state.get("step", 0) >= 10 else None

    return wait_for(read)


def test_a_port_in_use_is_one_clear_error(checkout: Checkout, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setitem(checkout.env, "RRF_MLFLOW_PORT", str(port))
        printed = checkout.run(sys.executable, "-m", "infra.services", "up", check=False)
    assert printed.startswith("error: ")
    assert f"port {port} for the MLflow server is in use by another program" in printed
    assert "RRF_MLFLOW_PORT=" in printed
    assert "Traceback" not in printed


def test_a_stale_record_never_signals_another_process(checkout: Checkout):
    """The pid in the record has been given to somebody else since: to this test."""
    record = checkout.root / ".rrf/pids/worker.json"
    kept = record.read_text() if record.exists() else None
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"pid": os.getpid(), "born": 1, "port": 0}))
    printed = checkout.run(sys.executable, "-m", "infra.services", "status", check=False)
    assert "✗ worker   ended or was killed, see " in printed
    record.write_text(kept) if kept else record.unlink()


def test_up_deploys_every_flow_and_the_gpu_limit(live: Checkout):
    deployments = {one["name"] for one in live.request("/deployments/filter", {})}
    assert deployments == OURS | {"tick", "training", "holding", "holding-at-night"}
    assert live.request(f"/v2/concurrency_limits/gpu-{socket.gethostname()}")["active"] is True
    assert live.request("/automations/filter", {}) == []


def test_a_schedule_fires_by_itself(live: Checkout):
    def fired() -> list[dict]:
        runs = live.flow_runs("tick", state={"type": {"any_": ["COMPLETED"]}})
        return [run for run in runs if run["auto_scheduled"]]

    assert wait_for(fired, 300)
    live.pause("tick")


def with_running_task(live: Checkout, state: str) -> str:
    """A flow run in this state, and a task run of it that is Running; the task run's id."""
    flow = live.request("/flows/", {"name": "training"})["id"]
    run = live.request("/flow_runs/", {"flow_id": flow})["id"]
    task = {"flow_run_id": run, "task_key": "train", "dynamic_key": "0", "name": "train"}
    task_run = live.request("/task_runs/", task)["id"]
    for path, each in ((f"/task_runs/{task_run}", "RUNNING"), (f"/flow_runs/{run}", state)):
        live.request(f"{path}/set_state", {"state": {"type": each}, "force": True})
    return task_run


@contextlib.contextmanager
def as_its_user(live: Checkout) -> Iterator[None]:
    """For the block, this process asks the checkout's Prefect server, with its login."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    login = (live.root / ".rrf/login").read_text().strip()
    with temporary_settings({PREFECT_API_URL: live.api, PREFECT_API_AUTH_STRING: login}):
        yield


def test_task_runs_of_ended_flows_do_not_stay_running(live: Checkout):
    """If the flow ended a while ago: the reports of its tasks may be a little late."""
    ended, going = with_running_task(live, "CRASHED"), with_running_task(live, "RUNNING")
    with as_its_user(live):
        assert crash_left_task_runs() == 0
        # The server tells its time in whole seconds.
        assert wait_for(lambda: crash_left_task_runs(0)) == 1
    states = {one: live.request(f"/task_runs/{one}")["state"] for one in (ended, going)}
    assert {one: states[one]["name"] for one in states} == {ended: "Crashed", going: "Running"}
    assert states[ended]["message"] == "its flow run ended without it"


def test_status_names_three_running_services(live: Checkout):
    printed = live.run(sys.executable, "-m", "infra.services", "status")
    assert [line.split()[:2] for line in printed.splitlines()] == [
        ["✓", "prefect"],
        ["✓", "mlflow"],
        ["✓", "worker"],
    ]


def test_the_nightly_schedule_has_runs_at_two_in_the_morning(live: Checkout):
    runs = wait_for(lambda: live.flow_runs("nightly-matrix"))
    assert all(run["auto_scheduled"] for run in runs)
    assert {run["expected_start_time"][11:16] for run in runs} == {"02:00"}


@pytest.mark.slow
def test_a_run_whose_start_failed_does_not_stay_submitting(live: Checkout):
    """A worker has taken it, and it never showed a sign of life. `rrf services up` crashes it, if
    no worker has done it before.
    """
    live.pause("tick")
    flow = live.request("/flows/", {"name": "training"})["id"]

    def submitted() -> str:
        run = live.request("/flow_runs/", {"flow_id": flow})["id"]
        state = {"type": "PENDING", "name": "Submitting"}
        live.request(f"/flow_runs/{run}/set_state", {"state": state})
        return run

    left = submitted()
    program = "from flows.leftovers import crash_unstarted_runs as crash; print(crash({}))"
    assert live.run(sys.executable, "-c", program.format(60)) == "0\n"
    assert live.state_of(left) == "Submitting"
    live.run(sys.executable, "-c", program.format(0))
    assert live.state_of(left) == "Crashed"


@pytest.mark.slow
def test_train_locomotion_by_its_bare_name_makes_a_champion(live: Checkout, balanced: str):
    assert "'train-locomotion/train-locomotion'" in balanced
    assert "Completed" in balanced
    listed = live.run("rrf", "models", "list", "balance")
    assert "@champion" in listed
    assert "CartPole-v1" in listed


def test_a_wrong_login_is_one_line_that_says_what_to_type(live: Checkout, monkeypatch):
    monkeypatch.setitem(live.env, "PREFECT_API_AUTH_STRING", "rrf:wrong")
    printed = live.run("prefect", "deployment", "run", "train-vla", check=False)
    assert "asks for a login; type: export PREFECT_API_AUTH_STRING=" in printed.replace("\n", " ")
    assert "Traceback" not in printed


def test_an_unknown_bare_name_lists_the_known_ones(live: Checkout):
    printed = live.run("prefect", "deployment", "run", "train-val", check=False)
    assert "no deployment 'train-val'" in printed.replace("\n", " ")
    assert "Traceback" not in printed


@pytest.fixture(scope="module")
def deployment(live: Checkout) -> str:
    """The id of a deployment that an attacker wants to run."""
    return live.request("/deployments/name/ingest/ingest")["id"]


@pytest.fixture
def foreign_page() -> Iterator[str]:
    """An empty page of a server on another port of this machine."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    """A browser that was led to believe that evil.example is this machine."""
    with browser("--host-resolver-rules=MAP evil.example 127.0.0.1") as started:
        yield started


def tried(page: Browser, url: str, body: dict) -> dict[str, str]:
    """What the page in the browser gets for requests and a websocket to `url`."""
    return page.run(TRY.replace("URL", json.dumps(url)).replace("BODY", json.dumps(body)))


def runs(live: Checkout) -> int:
    return len(live.flow_runs("ingest"))


def test_a_page_of_another_port_cannot_use_prefect(live: Checkout, deployment, foreign_page, page):
    url = f"{live.api}/deployments/{deployment}/create_flow_run"
    page.open(foreign_page)
    assert tried(page, url, COMMAND) == REFUSED
    assert tried(page, f"{live.api}/events/in", {}) == REFUSED
    assert runs(live) == 0
    page.open(live.api.replace("/api", "/v2/login"))
    headers = {**live.login(), **live.csrf(), "content-type": "application/json"}
    how = {"method": "POST", "headers": headers, "body": json.dumps(LATER)}
    fetch = f"fetch('{url}', {json.dumps(how)}).then((it) => it.status)"
    # 503: SQLite is busy and nothing was done; Prefect's own pages ask again, too
    assert wait_for(lambda: (status := page.run(fetch)) != 503 and status) == 201
    assert runs(live) == 1


def test_a_page_of_another_port_cannot_use_mlflow_although_the_browser_is_logged_in(
    live: Checkout, foreign_page, page
):
    """The browser sends what it knows of a server with every request to it."""
    server = f"http://127.0.0.1:{live.mlflow_port}"
    url = f"{server}/ajax-api/2.0/mlflow/experiments/create"
    create = "fetch(URL, {method: 'POST', body: '{\"name\": \"mine\"}', headers: JSON})"
    create = create.replace("URL", f"'{url}'").replace(
        "JSON", "{'content-type':'application/json'}"
    )
    page.open_with_login(server, (live.root / ".rrf/login").read_text().strip())
    assert page.run(f"{create}.then((it) => it.status)") == 200
    page.open(foreign_page)
    assert tried(page, url, {"name": "evil"}) == REFUSED
    page.open(server)
    assert page.run(create + ".then((it) => it.json()).then((it) => it.error_code)") == (
        "RESOURCE_ALREADY_EXISTS"
    )
    evil = create.replace("mine", "evil")
    assert page.run(f"{evil}.then((it) => it.status)") == 200  # it was not there yet


def test_a_page_whose_name_was_made_to_lead_here_is_answered_by_no_server(live: Checkout, page):
    """DNS rebinding: for the browser, page and server are the same site."""
    for port in (live.prefect_port, live.mlflow_port):
        page.open(f"http://evil.example:{port}/")
        assert "answers to 127.0.0.1 only" in page.run("document.body.innerText")


ASK = r"""
exec 3<>"/dev/tcp/127.0.0.1/$1"
printf '%s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n' "$2" "$1" >&3
printf 'Content-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' "${#3}" "$3" >&3
head -n 1 <&3
"""


def test_another_user_of_the_machine_can_use_no_server(live: Checkout, deployment):
    if os.getuid() != 0:
        pytest.skip("only root can act as another user")
    before, body = runs(live), json.dumps({"name": "evil", **COMMAND})
    for port, what, status in (
        (live.prefect_port, f"POST /api/deployments/{deployment}/create_flow_run", "403"),
        (live.prefect_port, "GET /api/csrf-token?client=me", "401"),
        (live.mlflow_port, "POST /api/2.0/mlflow/experiments/create", "401"),
        (live.mlflow_port, "GET /ajax-api/2.0/mlflow/experiments/get?experiment_id=0", "401"),
    ):
        words = ["bash", "-c", ASK, "bash", str(port), what, body]
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        answer = subprocess.check_output(words, text=True, **other)
        assert answer.split()[1] == status, (what, answer)
    assert runs(live) == before


def test_whoever_may_start_runs_cannot_choose_how_the_worker_starts_them(
    live: Checkout, deployment
):
    """A request with the login."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError

    before = runs(live)
    for values in (COMMAND["job_variables"], {"env": {}}, {"working_dir": "/"}):
        with as_its_user(live), get_client(sync_client=True) as client:
            ask = client.create_flow_run_from_deployment
            with pytest.raises(PrefectHTTPStatusError) as refused:
                ask(uuid.UUID(deployment), job_variables=values)
        assert refused.value.response.status_code == 422
    assert runs(live) == before


def test_the_login_is_for_its_user_only(live: Checkout):
    file = live.root / ".rrf/login"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    user, _, secret = file.read_text().strip().partition(":")
    assert (user, len(base64.urlsafe_b64decode(secret + "="))) == ("rrf", 32)
    logs = "".join(log.read_text() for log in (live.root / ".rrf/logs").iterdir())
    assert secret not in logs
    database = (live.root / ".rrf/prefect/prefect.db").read_bytes()
    assert secret.encode() not in database
    started_as = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            started_as.append(path.read_bytes())
    assert any(b"infra.prefect_server" in words for words in started_as)
    assert not any(secret.encode() in words for words in started_as)


@pytest.mark.slow
def test_cancelling_stops_training_and_saves_a_checkpoint(live: Checkout, tmp_path):
    run = live.start("training", checkpoint=str(tmp_path / "checkpoint.json"))
    trainer = trainer_of(tmp_path / "checkpoint.json")
    live.run("prefect", "flow-run", "cancel", run)
    live.wait_for_state(run, "Cancelled")
    wait_for(lambda: not is_running(trainer["pid"]))
    assert json.loads((tmp_path / "checkpoint.json").read_text())["saved_on_signal"]


@pytest.mark.slow
def test_a_failed_run_resumes_where_training_was_killed(live: Checkout, tmp_path):
    checkpoint = tmp_path / "checkpoint.json"
    run = live.start("training", checkpoint=str(checkpoint), steps=60)
    os.kill(trainer_of(checkpoint)["pid"], signal.SIGKILL)
    live.wait_for_state(run, "Failed")
    live.run("prefect", "flow-run", "retry", run)
    live.wait_for_state(run, "Completed")
    state = json.loads(checkpoint.read_text())
    assert state["step"] == 60
    assert [start > 0 for start in state["starts"]] == [False, True]


def worker_reports(live: Checkout) -> int:
    """How often the worker has dealt with a process that was killed."""
    log = (live.root / ".rrf/logs/worker.log").read_text()
    return log.count("prefect.flow_runs.worker - Check whether the flow run exceeded its memory")


@pytest.mark.slow
def test_a_killed_flow_takes_training_with_it_and_resumes_on_retry(live: Checkout, tmp_path):
    """Slow: the killed flow's GPU slot is free only when its lease of 60 s has run out."""
    checkpoint = tmp_path / "checkpoint.json"
    run = live.start("training", checkpoint=str(checkpoint), steps=100)
    trainer = trainer_of(checkpoint)
    num_reports = worker_reports(live)
    os.kill(trainer["parent"], signal.SIGKILL)
    live.wait_for_state(run, "Crashed")
    # Prefect crashes a killed run twice, the worker last; a retry in between would be lost.
    wait_for(lambda: worker_reports(live) > num_reports)
    wait_for(lambda: not is_running(trainer["pid"]))
    assert json.loads(checkpoint.read_text())["saved_on_signal"]
    live.run("prefect", "flow-run", "retry", run)
    live.wait_for_state(run, "Completed")
    assert json.loads(checkpoint.read_text())["starts"][1] > 0


@pytest.mark.slow
def test_up_again_keeps_what_runs(live: Checkout):
    before = (live.root / ".rrf/pids/prefect.json").read_text()
    live.run(sys.executable, "-m", "infra.services", "up")
    assert (live.root / ".rrf/pids/prefect.json").read_text() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlflow", "prefect"])
def test_up_mends_a_server_whose_launcher_was_killed(live: Checkout, monkeypatch, name):
    """In another shell, which does not know the ports; Prefect's server is one process."""
    before = json.loads((live.root / f".rrf/pids/{name}.json").read_text())
    os.kill(before["pid"], signal.SIGKILL)
    wait_for(lambda: not is_running(before["pid"]))
    for variable in ("RRF_PREFECT_PORT", "RRF_MLFLOW_PORT", "PREFECT_API_URL"):
        monkeypatch.delitem(live.env, variable)
    printed = live.run(sys.executable, "-m", "infra.services", "up")
    assert ("had been killed; ended what it left" in printed) == (name == "mlflow")
    after = json.loads((live.root / f".rrf/pids/{name}.json").read_text())
    assert after["port"] == before["port"]
    assert after["pid"] != before["pid"]
    assert live.run(sys.executable, "-m", "infra.services", "status").count("✓") == 3
    assert "train-vla" in live.run("prefect", "deployment", "ls")


@pytest.mark.slow
def test_metrics_are_a_service_for_who_asks_for_them(live: Checkout):
    up = [sys.executable, "-m", "infra.services", "up"]
    assert "metrics" not in live.run(*up)
    port = live.env["RRF_METRICS_PORT"]
    page = f"http://127.0.0.1:{port}/metrics"
    assert page in live.run(*up, "--metrics")
    assert f"port {port}" in live.run(sys.executable, "-m", "infra.services", "status")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(page, timeout=60)
    with urllib.request.urlopen(urllib.request.Request(page, headers=live.login())) as answer:
        assert b"rrf_registry_up 1.0" in answer.read()
    record = json.loads((live.root / ".rrf/pids/metrics.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    wait_for(lambda: not is_running(record["pid"]))
    assert page in live.run(*up)  # what has ended is started again
