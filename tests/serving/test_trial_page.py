"""The operator's page: in a real browser, over real HTTP, and by a process that is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from rrf import processes
from rrf.evaluation.trials.record import Record, hold
from rrf.serving.trial_page import Page, PageServer, token_in
from rrf.serving.trials import Session
from tests.browser import browser
from tests.evaluation.trials.studies import study
from tests.waiting import wait_for

TOKEN = "t" * 32


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    study()
    return tmp_path / "trials/s"


@pytest.fixture
def page(folder):
    with (
        hold(folder) as record,
        PageServer(
            Page(Session(record, serves=False), TOKEN), "127.0.0.1", 0, ["tablet.lab"], None
        ) as server,
    ):
        yield server


def ask(url, content=None, token=TOKEN, **headers):
    """Status and text of an answer."""
    data = None if content is None else json.dumps(content).encode()
    headers = {"Authorization": f"Bearer {token}"} | headers if token else headers
    asked = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_who_does_not_know_the_token_or_comes_from_elsewhere_is_refused(page, folder):
    view = f"{page.url}api/view"
    assert ask(page.url, token=None)[0] == 200
    assert TOKEN not in ask(page.url, token=None)[1]
    assert ask(view, token=None)[0] == ask(view, token="x" * 32)[0] == 401
    assert ask(view, Host="evil.example")[0] == 403
    assert ask(view, Host=f"tablet.lab:{page.port}")[0] == 200
    assert ask(view, Origin="https://evil.example")[0] == 403
    cross = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert ask(f"{page.url}api/start", {"trial": "1"}, **cross)[0] == 403
    assert ask(f"{page.url}api/start", {"trial": "1"}, token=None)[0] == 401
    assert Record(folder).lines == []


def test_what_is_no_answer_is_refused_and_nothing_is_written(page, folder):
    assert ask(f"{page.url}api/start", {"trial": "1"})[0] == 200
    for content, why in (
        ({"trial": "1", "id": "12345678"}, "success is None"),
        ({"trial": "1", "id": "short", "success": False}, "id of 8 to 64"),
        ({"trial": "1", "id": "12345678", "success": True}, "reaches the last stage, 'done'"),
        ({"trial": "1", "id": "12345678", "success": False, "steps": ["fly"]}, "no step 'fly'"),
        ({"trial": "1", "id": "12345678", "success": False, "notes": "n" * 3000}, "at most 2000"),
        ({"trial": 1, "id": "12345678", "success": False}, "names the trial"),
        ({"trial": "1", "notes": "x" * 70_000}, "at most 64000 bytes"),
        (["no object"], "JSON object"),
    ):
        status, text = ask(f"{page.url}api/score", content)
        assert (status, why in text) == (400, True), text
    assert ask(f"{page.url}api/score", {"trial": "2", "id": "12345678", "success": False})[0] == 409
    assert [line["event"] for line in Record(folder).lines] == ["begin"]


def test_two_tablets_at_once_score_a_trial_once(page, folder):
    ask(f"{page.url}api/start", {"trial": "1"})
    statuses = []

    def tap(number):
        answer = {"trial": "1", "id": f"tablet-{number}", "success": False}
        statuses.append(ask(f"{page.url}api/score", answer)[0])

    tablets = [threading.Thread(target=tap, args=(number,)) for number in range(8)]
    for tablet in tablets:
        tablet.start()
    for tablet in tablets:
        tablet.join()
    assert sorted(statuses) == [200, *[409] * 7]
    assert [line["event"] for line in Record(folder).lines] == ["begin", "score"]


def test_an_answer_that_is_repeated_counts_once(page, folder):
    ask(f"{page.url}api/start", {"trial": "1"})
    answer = {"trial": "1", "id": "the-answer", "success": False}
    assert ask(f"{page.url}api/score", answer)[0] == 200
    assert ask(f"{page.url}api/score", answer)[0] == 200  # its confirmation was lost
    assert len(Record(folder).lines) == 2


def test_an_operator_plays_trials_in_a_browser(page, folder):
    with browser() as tablet:
        tablet.hold(400)
        tablet.open(f"{page.url}#{TOKEN}")

        def shows(trial):
            wait_for(lambda: tablet.run(f"at('name').textContent === 'Trial {trial}' && !busy"))

        def tap(name):
            tablet.run(f"at('{name}').click()")

        shows(1)
        assert tablet.run("location.href") == page.url  # the token is not in the history
        tap("start")
        wait_for(lambda: tablet.run("!at('score').hidden"))
        assert tablet.run("at('save').disabled")
        tap("no")
        tap("more")
        tablet.run("document.querySelector('#steps input[value=reach]').click()")
        tablet.run("document.querySelector('#stage input[value=near]').click()")
        tablet.run("document.querySelector('#tags input[value=slipped]').click()")
        tablet.open(f"{page.url}?reloaded#{TOKEN}")  # what was tapped is still there
        wait_for(lambda: tablet.run("view !== null && !at('save').disabled"))
        tap("save")
        shows(2)
        tap("start")
        wait_for(lambda: tablet.run("!at('score').hidden"))
        tap("yes")
        tap("save")
        shows(3)
        tap("undo")
        tap("really")
        shows(2)
        tap("bad")
        tablet.run("at('reason').value = 'camera fell'")
        tap("confirm")
        shows(3)
        assert tablet.run("document.body.scrollWidth") <= 400
    first, second, undo, invalid = (
        line for line in Record(folder).lines if line["event"] != "begin"
    )
    assert (first["success"], first["interventions"], first["steps"]) == (False, 1, ["reach"])
    assert (first["stage"], first["tags"]) == ("near", ["slipped"])
    assert (second["success"], second["stage"]) == (True, "done")
    assert second["steps"] == ["reach", "grasp", "open"]
    assert (undo["event"], undo["trial"]) == ("undo", "2")
    assert (invalid["event"], invalid["reason"]) == ("invalid", "camera fell")


def served():
    """`rrf trial serve` as a process; its url and its process."""
    command = [sys.executable, "-m", "rrf", "trial", "serve", "s", "--page-only", "--port", "0"]
    process = processes.start(command, stdout=subprocess.PIPE)
    assert process.stdout
    line = process.stdout.readline().decode()
    found = re.search(r"(http://\S+/)#(\S+)", line)
    assert found, line
    return process, found[1], found[2]


@pytest.mark.slow
def test_after_a_kill_the_study_goes_on_where_it_was(tmp_path, folder):
    process, url, token = served()
    try:
        ask(f"{url}api/start", {"trial": "1"}, token)
        ask(f"{url}api/score", {"trial": "1", "id": "answer-1", "success": False}, token)
        ask(f"{url}api/start", {"trial": "2"}, token)
        with pytest.raises(ValueError, match="another process writes the record of 's'"):
            hold(folder).__enter__()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with (folder / "record.jsonl").open("ab") as record:
        record.write(b'{"format_version": 1, "number": 4, "ev')  # a line that power has cut off
    process, url, again = served()
    try:
        assert again == token  # tablets find the page again
        trial = json.loads(ask(f"{url}api/view", token=token)[1])["trial"]
        assert trial["id"] == "2"
        assert trial["begun"]
        ask(f"{url}api/score", {"trial": "2", "id": "answer-2", "success": False}, token)
        assert len(Record(folder).lines) == 4
    finally:
        processes.stop(process, grace_s=60)


def test_a_token_that_others_can_read_is_refused(tmp_path):
    token_in(tmp_path / "token")
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ValueError, match="others can read"):
        token_in(tmp_path / "token")
