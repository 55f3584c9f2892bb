"""Notifications against real servers on this machine: HTTP, and SMTP with its commands."""

import hashlib
import hmac
import http.server
import json
import socket
import socketserver
import threading

import pytest
import yaml
from typer.testing import CliRunner

from rrf import notifications
from rrf.cli import app
from rrf.notifications import Event, NotifyCfg, NotToldError, TargetCfg, send, tell

EVENT = Event("promoted", "arm version 3 is @champion", "113 of 120", "arm", "3", "http://page")


class Web(http.server.BaseHTTPRequestHandler):
    """Keeps what it is sent, and answers with the next of `statuses`, or 200."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers), body))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.end_headers()

    def do_PATCH(self):
        self.do_POST()

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.issues).encode())

    def log_message(self, *_):
        pass


class Mail(socketserver.StreamRequestHandler):
    """The part of SMTP that a mail without encryption needs."""

    def handle(self):
        self.wfile.write(b"220 ready\r\n")
        while line := self.rfile.readline():
            word = line.strip().upper()
            if word.startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                lines = []
                while (line := self.rfile.readline()) != b".\r\n":
                    lines.append(line.decode())
                self.server.seen.append("".join(lines))
            if word.startswith(b"QUIT"):
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 ok\r\n")


def serving(kind, handler):
    server = kind(("127.0.0.1", 0), handler)
    server.seen, server.statuses, server.asked, server.issues = [], [], [], []
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


@pytest.fixture
def web(monkeypatch):
    server = serving(http.server.ThreadingHTTPServer, Web)
    server.url = f"http://127.0.0.1:{server.server_port}/secret-hook"
    monkeypatch.setenv("HOOK", server.url)
    monkeypatch.setattr(notifications, "_PAUSE_S", 0.0)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    (tmp_path / "configs").mkdir()
    return tmp_path


def test_a_webhook_gets_the_facts_and_can_tell_that_it_was_us(web, monkeypatch):
    monkeypatch.setenv("SECRET", "between us")
    send(TargetCfg(kind="webhook", url_variable="HOOK", secret_variable="SECRET"), EVENT)
    ((path, headers, body),) = web.seen
    assert path == "/secret-hook"
    content = json.loads(body)
    assert (content["kind"], content["model"], content["version"]) == ("promoted", "arm", "3")
    assert (content["title"], content["text"]) == ("arm version 3 is @champion", "113 of 120")
    expected = hmac.new(b"between us", body, hashlib.sha256).hexdigest()
    assert headers[notifications.SIGNATURE.title()] == f"sha256={expected}" or (
        headers[notifications.SIGNATURE] == f"sha256={expected}"
    )


def test_slack_gets_one_text(web):
    send(TargetCfg(kind="slack", url_variable="HOOK"), EVENT)
    ((_, _, body),) = web.seen
    assert json.loads(body) == {"text": "*arm version 3 is @champion*\n113 of 120\n\nhttp://page"}


def test_github_gets_an_issue(web, monkeypatch):
    monkeypatch.setenv("TOKEN", "t0ken")
    cfg = TargetCfg(
        kind="github", repository="lab/robots", token_variable="TOKEN", labels=["nightly"],
        api=f"http://127.0.0.1:{web.server_port}",
    )  # fmt: skip
    send(cfg, EVENT)
    ((path, headers, body),) = web.seen
    assert path == "/repos/lab/robots/issues"
    assert headers["Authorization"] == "Bearer t0ken"
    assert json.loads(body) == {
        "title": EVENT.title, "body": "113 of 120\n\nhttp://page", "labels": ["nightly"],
    }  # fmt: skip


def test_a_red_night_is_one_issue_until_a_green_one_closes_it(web, home, monkeypatch):
    monkeypatch.setenv("TOKEN", "t0ken")
    (home / "configs/notify.yaml").write_text(
        "targets:\n"
        "  issues: {kind: github, repository: lab/robots, token_variable: TOKEN, labels: [night],"
        f" api: 'http://127.0.0.1:{web.server_port}'}}\n"
        "  hook: {kind: webhook, url_variable: HOOK}\n"
        "rules: [{events: [nightly], to: [issues, hook]}]\n"
    )
    web.issues = [
        {"number": 7, "title": "night of arm: Failed"},
        {"number": 8, "title": "night of arms: Failed"},
        {"number": 9, "title": "night of arm"},
    ]
    tell(Event("nightly", "night of arm: Failed", "2 lost", "arm"))
    assert [path for path, *_ in web.seen] == ["/secret-hook"]  # no second issue
    assert "is_over" not in json.loads(web.seen[0][2])
    assert web.asked == ["/repos/lab/robots/issues?state=open&per_page=100&labels=night"]
    web.seen.clear()
    assert tell(Event("nightly", "night of arm", "no alarm", "arm", is_over=True)) == ["issues"]
    assert [(path, json.loads(body)) for path, _, body in web.seen] == [
        ("/repos/lab/robots/issues/7", {"state": "closed"}),
        ("/repos/lab/robots/issues/7/comments", {"body": "no alarm"}),
    ]
    web.issues = {"message": "moved"}
    assert tell(Event("nightly", "night of arm", "no alarm", "arm", is_over=True)) == []


def test_a_mail_has_one_line_as_its_subject():
    server = serving(socketserver.ThreadingTCPServer, Mail)
    try:
        cfg = TargetCfg(
            kind="email", server="127.0.0.1", port=server.server_address[1], tls=False,
            sender="rrf@example.org", to=["a@example.org", "b@example.org"],
        )  # fmt: skip
        send(cfg, Event("failed", "train-vla:\nBcc: evil@example.org", "no disk"))
    finally:
        server.shutdown()
        server.server_close()
    (mail,) = server.seen
    head, _, body = mail.partition("\r\n\r\n")
    assert "Subject: train-vla: Bcc: evil@example.org" in head
    assert "To: a@example.org, b@example.org" in head
    assert body.strip() == "no disk"


def test_a_server_that_fails_is_asked_again_and_one_that_refuses_is_not(web):
    cfg = TargetCfg(kind="slack", url_variable="HOOK")
    web.statuses = [503, 500]
    send(cfg, EVENT)
    assert len(web.seen) == 3
    web.statuses = [500, 500, 500]
    with pytest.raises(NotToldError, match="500"):
        send(cfg, EVENT)
    web.seen.clear()
    web.statuses = [404]
    with pytest.raises(NotToldError, match="404"):
        send(cfg, EVENT)
    assert len(web.seen) == 1


@pytest.mark.parametrize(
    "address",
    [
        *("file:///etc/passwd", "secret", "http://127.0.0.1:1/secret", "http://127.0.0.1:x/secret"),
        "http://127.0.0.1:1/my secret",
    ],
)
def test_errors_do_not_show_what_is_secret(monkeypatch, address):
    monkeypatch.setenv("HOOK", address)
    monkeypatch.setattr(notifications, "_PAUSE_S", 0.0)
    with pytest.raises(NotToldError) as caught:
        send(TargetCfg(kind="slack", url_variable="HOOK"), EVENT)
    assert "secret" not in str(caught.value)
    monkeypatch.delenv("HOOK")
    with pytest.raises(NotToldError, match="HOOK is not set"):
        send(TargetCfg(kind="slack", url_variable="HOOK"), EVENT)


def test_a_token_of_two_lines_is_not_shown_and_an_answer_that_is_none_stops_nothing(
    home, monkeypatch, caplog
):
    monkeypatch.setattr(notifications, "_PAUSE_S", 0.0)
    monkeypatch.setenv("TOKEN", "ghp_secret\nof two lines\n")
    hub = {"kind": "github", "repository": "a/b", "token_variable": "TOKEN"}
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(3):
                connection = server.accept()[0]
                with connection:
                    connection.recv(10_000)
                    connection.sendall(b"what?\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.getsockname()[1]}/")
        rule = {"events": ["failed"], "to": ["hub", "hook"]}
        write(home, targets={"hub": hub, "hook": HOOK}, rules=[rule])
        assert tell(Event("failed", "t")) == []
    assert "'hook' is not told of this: BadStatusLine" in caplog.text
    assert "'hub' is not told of this: Invalid header value" in caplog.text
    assert "ghp_secret" not in caplog.text


def write(home, **data) -> None:
    (home / notifications.FILE).write_text(yaml.safe_dump(data))


HOOK = {"kind": "slack", "url_variable": "HOOK"}
GONE = {"kind": "slack", "url_variable": "GONE"}


def test_rules_say_who_is_told_of_what_and_one_who_is_away_stops_nobody(home, web, caplog):
    rules = [
        {"events": ["promoted"], "models": ["arm*"], "to": ["gone", "team"]},
        {"events": ["promoted", "failed"], "to": ["team"]},
    ]
    write(home, targets={"team": HOOK, "gone": GONE}, rules=rules)
    assert tell(EVENT) == ["team"]  # once, though two rules fit
    assert "'gone' is not told of this: GONE is not set" in caplog.text
    assert tell(Event("failed", "no model")) == ["team"]
    assert tell(Event("approval", "another event", model="arm")) == []
    assert len(web.seen) == 2


def test_without_a_file_or_with_a_damaged_one_nothing_stops(home, caplog):
    assert tell(EVENT) == []
    (home / notifications.FILE).write_text("targets: [")
    assert tell(EVENT) == []
    assert "nobody is told of this" in caplog.text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"targets": {"a": {"kind": "slack"}}}, "a target of kind slack needs url_variable"),
        ({"targets": {"a": {"kind": "fax"}}}, "kind"),
        ({"targets": {"a": HOOK | {"url": "http://"}}}, "no field 'url'"),
        ({"rules": [{"events": ["promotd"], "to": []}]}, "did you mean 'promoted'"),
        (
            {"targets": {"team": HOOK}, "rules": [{"events": [], "to": ["tem"]}]},
            "did you mean 'team",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_name(home, data, message):
    write(home, **data)
    with pytest.raises(ValueError, match=f"(?s)notify.yaml: .*{message}"):
        notifications.load()
    assert NotifyCfg() == NotifyCfg.from_dict({})


def test_commands_list_and_try_the_targets(home, web):
    def said(*words: str) -> str:
        done = CliRunner().invoke(app, ["notify", *words])
        return done.output if done.exit_code == 0 else f"{done.output}{done.exception}"

    assert "names nobody" in said("list")
    rules = [{"events": ["nightly"], "to": ["team"]}]
    write(home, targets={"team": HOOK, "gone": GONE}, rules=rules)
    listed = said("list")
    assert "nightly" in listed
    assert "GONE" in listed
    assert said("test", "team") == "team was told\n"
    tried = said("test")
    assert "team was told" in tried
    assert "gone: GONE is not set" in tried
    assert "did you mean 'team'" in said("test", "tem")
