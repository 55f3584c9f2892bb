"""What the guard of the servers lets through, and the file with their login."""

import asyncio
import base64
import os
import stat

import pytest

from rrf import service_guard, service_records

LOGIN = "rrf:secret"
KNOWN = ("authorization", "Basic " + base64.b64encode(LOGIN.encode()).decode())
HERE = ("host", "127.0.0.1:4200")


async def server(scope, receive, send):
    """Says which path it was asked for."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


def asked(*headers: tuple[str, str], login: str | None = LOGIN, **scope) -> list[dict]:
    """What a client gets for a request with these headers."""
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": "http", "method": "POST", "path": "/api/do", "headers": pairs} | scope
    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    async def receive() -> dict:
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(service_guard.Guard(server, login)(scope, receive, send))
    return sent


def status(*headers: tuple[str, str], **scope) -> int:
    return asked(*headers, **scope)[0]["status"]


@pytest.mark.parametrize("host", ["127.0.0.1:4200", "localhost:7", "[::1]:4200", "127.0.0.1"])
def test_a_program_with_the_login_passes_by_every_name_of_this_machine(host):
    assert status(("host", host), KNOWN) == 200


@pytest.mark.parametrize(
    "hosts",
    [
        ["evil.example:4200"],
        ["127.0.0.1.evil.example"],
        ["evil.example@127.0.0.1.nip.example"],
        ["[::1"],
        ["\xff"],
        [""],
        [],
        ["127.0.0.1:4200", "evil.example"],
    ],
)
def test_a_foreign_name_is_refused_also_with_the_login(hosts):
    assert status(*(("host", host) for host in hosts), KNOWN) == 403


def test_a_server_of_a_team_is_reached_by_the_names_that_it_was_given(monkeypatch):
    monkeypatch.setenv("RRF_SERVER_NAMES", "mlflow, Robots.example.org,")
    for host, expected in {
        "mlflow:5000": 200,
        "robots.example.org:8444": 200,
        "127.0.0.1:5000": 200,
        "example.org": 403,
        "": 403,
    }.items():
        assert status(("host", host), KNOWN) == expected
    assert status(("host", "mlflow:5000")) == 401
    assert status(("host", "mlflow:5000"), KNOWN, ("origin", "http://evil.example")) == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:4200", 200),
        ("http://127.0.0.1:8888", 403),
        ("http://localhost:4200", 403),
        ("http://evil.example", 403),
        ("http://evil.example/://127.0.0.1:4200", 403),
        ("null", 403),  # a file, or a frame in a sandbox
        ("", 403),
    ],
)
def test_only_the_servers_own_pages_pass(origin, expected):
    assert status(HERE, KNOWN, ("origin", origin)) == expected


@pytest.mark.parametrize(
    ("site", "mode", "method", "expected"),
    [
        ("same-origin", "cors", "POST", 200),
        ("none", "navigate", "GET", 200),  # typed into the browser
        ("cross-site", "navigate", "GET", 200),  # a link in a report
        ("cross-site", "navigate", "POST", 403),  # a form of another page
        ("cross-site", "no-cors", "GET", 403),  # a picture or script in another page
        ("same-site", "no-cors", "GET", 403),  # a page of another port
    ],
)
def test_other_pages_can_only_link_here(site, mode, method, expected):
    fetch = (("sec-fetch-site", site), ("sec-fetch-mode", mode))
    assert status(HERE, KNOWN, *fetch, method=method) == expected


@pytest.mark.parametrize(
    "given",
    [
        [],
        [("authorization", "Basic " + base64.b64encode(b"rrf:wrong").decode())],
        [("authorization", "Bearer secret")],
        [KNOWN, ("authorization", "Basic x")],
    ],
)
def test_without_the_login_a_browser_is_told_to_ask_for_it(given):
    start, body = asked(HERE, *given)
    assert start["status"] == 401
    assert (b"www-authenticate", b'Basic realm="rrf", charset="UTF-8"') in start["headers"]
    assert b".rrf/login" in body["body"]
    assert b"secret" not in body["body"]


def test_health_needs_no_login_and_prefect_asks_for_it_by_itself():
    assert status(HERE, path="/health") == 200
    assert status(HERE, path="/health/") == 401
    assert status(HERE, login=None) == 200
    assert status(("host", "evil.example"), path="/health") == 403


def test_no_other_page_may_show_a_server_in_a_frame():
    start = asked(HERE, KNOWN)[0]
    assert (b"content-security-policy", b"frame-ancestors 'self'") in start["headers"]


def test_a_websocket_of_another_page_is_closed_before_it_opens():
    refused = asked(HERE, ("origin", "http://evil.example"), type="websocket", login=None)
    assert refused == [{"type": "websocket.close", "code": 1008}]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    for name in ("USERNAME", "PASSWORD", "TOKEN"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "")
    return tmp_path


def test_the_login_is_made_once_for_this_user_only(home):
    before = os.umask(0)
    try:
        made = service_guard.login()
    finally:
        os.umask(before)
    assert stat.S_IMODE((home / ".rrf/login").stat().st_mode) == 0o600
    assert service_guard.login() == made
    assert [file.name for file in (home / ".rrf").iterdir()] == ["login"]
    (home / ".rrf/login").unlink()
    assert service_guard.login() != made


def test_a_server_of_a_team_is_given_its_login(home, monkeypatch):
    monkeypatch.setenv("RRF_LOGIN", "team:word")
    assert service_guard.login() == "team:word"
    assert not service_guard.login_file().exists()
    monkeypatch.setenv("RRF_LOGIN", "word")
    with pytest.raises(ValueError, match="RRF_LOGIN holds no USER:SECRET"):
        service_guard.login()


def test_a_login_that_others_can_read_is_refused(home):
    service_guard.login()
    (home / ".rrf/login").chmod(0o640)
    with pytest.raises(ValueError, match=r"others can read .*login; .* chmod 600 .*services up"):
        service_guard.login()


def test_the_login_goes_only_to_the_running_server_of_this_workspace(home):
    """Another user's program may have taken the port of a server that was killed."""
    made = service_guard.login()
    service_records.write("mlflow", os.getpid(), 5321, "mark")
    assert service_guard.login_of("http://127.0.0.1:5321") == made
    assert service_guard.login_of("http://127.0.0.1:5322") is None
    assert service_guard.login_of("http://mlflow.example.org:5321") is None
    (home / ".rrf/login").unlink()  # then a new one would be wrong
    assert service_guard.login_of("http://127.0.0.1:5321") is None
    service_guard.login()
    service_records.path("mlflow").write_text('{"pid": 1, "born": 1, "port": 5321}')
    assert service_guard.login_of("http://127.0.0.1:5321") is None


def test_mlflows_clients_get_the_login_unless_they_have_one(home, monkeypatch):
    made = service_guard.login()
    service_records.write("mlflow", os.getpid(), 5321, "mark")
    service_guard.give_mlflow_login("http://mlflow.example.org")
    service_guard.give_mlflow_login(f"sqlite:///{home}/mlflow.db")
    assert os.environ["MLFLOW_TRACKING_USERNAME"] == ""
    service_guard.give_mlflow_login("http://127.0.0.1:5321")
    user, password = (os.environ[f"MLFLOW_TRACKING_{name}"] for name in ("USERNAME", "PASSWORD"))
    assert f"{user}:{password}" == made
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hers")
    service_guard.give_mlflow_login("http://127.0.0.1:5321")
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "hers"


def test_what_a_refused_request_still_sends_is_taken_first():
    said, body = [], [b"a", b"b", b"c"]

    async def receive() -> dict:
        part = body.pop(0)
        said.append(part)
        return {"type": "http.request", "body": part, "more_body": bool(body)}

    async def send(message: dict) -> None:
        said.append(message["type"])

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"evil")]}
    asyncio.run(service_guard.Guard(server)(scope, receive, send))
    assert said == [b"a", b"b", b"c", "http.response.start", "http.response.body"]
