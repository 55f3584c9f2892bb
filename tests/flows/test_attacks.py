"""What others try on the servers of `rrf services up`: pages that the user has opened in a browser,
and other users of the machine. `docs/security.md` has the table.
"""

import base64
import contextlib
import http.server
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, browser
from tests.flows.conftest import Checkout

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


def tried(page: Browser, url: str, body: dict) -> dict[str, str]:
    """What the page in the browser gets for requests and a websocket to `url`."""
    return page.run(TRY.replace("URL", json.dumps(url)).replace("BODY", json.dumps(body)))


def runs(live: Checkout) -> int:
    return len(live.flow_runs("ingest"))


def test_a_page_of_another_port_cannot_use_prefect(live: Checkout, deployment, foreign_page):
    url = f"{live.api}/deployments/{deployment}/create_flow_run"
    with browser() as page:
        page.open(foreign_page)
        assert tried(page, url, COMMAND) == REFUSED
        assert tried(page, f"{live.api}/events/in", {}) == REFUSED
        assert runs(live) == 0
        page.open(live.api.replace("/api", "/v2/login"))
        headers = {**live.login(), **live.csrf(), "content-type": "application/json"}
        how = {"method": "POST", "headers": headers, "body": json.dumps(LATER)}
        assert page.run(f"fetch('{url}', {json.dumps(how)}).then((it) => it.status)") == 201
        assert runs(live) == 1


def test_a_page_of_another_port_cannot_use_mlflow_although_the_browser_is_logged_in(
    live: Checkout, foreign_page
):
    """The browser sends what it knows of a server with every request to it."""
    server = f"http://127.0.0.1:{live.mlflow_port}"
    url = f"{server}/ajax-api/2.0/mlflow/experiments/create"
    create = "fetch(URL, {method: 'POST', body: '{\"name\": \"mine\"}', headers: JSON})"
    create = create.replace("URL", f"'{url}'").replace(
        "JSON", "{'content-type':'application/json'}"
    )
    with browser() as page:
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


def test_a_page_whose_name_was_made_to_lead_here_is_answered_by_no_server(live: Checkout):
    """DNS rebinding: for the browser, page and server are the same site."""
    rule = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    for port in (live.prefect_port, live.mlflow_port):
        with browser(rule) as page:
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
    program = (
        "from prefect.client.orchestration import get_client\n"
        "from prefect.exceptions import PrefectHTTPStatusError\n"
        f"for values in ({COMMAND['job_variables']}, {{'env': {{}}}}, {{'working_dir': '/'}}):\n"
        "    with get_client(sync_client=True) as client:\n"
        "        ask = client.create_flow_run_from_deployment\n"
        "        try:\n"
        f"            ask('{deployment}', job_variables=values)\n"
        "        except PrefectHTTPStatusError as error:\n"
        "            print(error.response.status_code)\n"
    )
    before = runs(live)
    assert live.run(sys.executable, "-c", program) == "422\n" * 3
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
