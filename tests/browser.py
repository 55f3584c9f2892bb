"""A real browser without a window, driven by Chromium's own protocol."""

import contextlib
import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from rrf import processes
from tests.waiting import wait_for

_NAMES = ("chromium", "chromium-browser", "google-chrome")

_CUT = """[...document.querySelectorAll("body *")].filter((element) => {
  if (element.getBoundingClientRect().right <= WIDTH + 1) return false;
  for (let outer = element.parentElement; outer !== document.body; outer = outer.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(outer).overflowX)) return false;
  return true;
}).map((it) => `${it.tagName} ${it.className} ${it.textContent.slice(0, 40)}`)"""


class Browser:
    """One page of a browser."""

    def __init__(self, connection: Connection):
        self._connection, self._sent = connection, 0
        self._ask("Page.enable")

    def open(self, url: str) -> None:
        """Show a page; returns when it and its scripts are loaded."""
        self._ask("Page.navigate", url=url)
        wait_for(lambda: self.run("document.readyState + location.href").startswith("complete"))

    def run(self, script: str):
        """The value of an expression in the page; a promise is waited for."""
        answer = self._ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def hold(self, width: int) -> None:
        """Be a phone or tablet of this many pixels across."""
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        self._ask("Emulation.setDeviceMetricsOverride", **size)

    def cut_at(self, width: int, page: Path) -> list[str]:
        """What a window of this many pixels cuts off a page, and no scroll bar leads to."""
        self.hold(width)
        self.open(page.as_uri())
        return self.run(_CUT.replace("WIDTH", str(width)))

    def open_with_login(self, url: str, login: str) -> None:
        """Show a page for which the browser asks its user for `USER:PASSWORD`, once for all."""
        user, _, password = login.partition(":")
        self._login = {"username": user, "password": password}
        self._ask("Fetch.enable", handleAuthRequests=True)
        self.open(url)
        self._ask("Fetch.disable")

    def _ask(self, method: str, **parameters) -> dict:
        self._sent += 1
        number = self._sent
        self._send(number, method, parameters)
        while (message := json.loads(self._connection.recv(timeout=120))).get("id") != number:
            self._meet(message)
        assert "error" not in message, message
        return message["result"]

    def _meet(self, event: dict) -> None:
        """Let requests go on while the browser asks about them, and give it the login."""
        if not event.get("method", "").startswith("Fetch."):
            return
        request = {"requestId": event["params"]["requestId"]}
        if event["method"] == "Fetch.authRequired":
            answer = {"response": "ProvideCredentials", **self._login}
            self._send(0, "Fetch.continueWithAuth", {**request, "authChallengeResponse": answer})
        else:
            self._send(0, "Fetch.continueRequest", request)

    def _send(self, number: int, method: str, parameters: dict) -> None:
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))


@contextlib.contextmanager
def browser(*options: str) -> Iterator[Browser]:
    """A browser for the block; without one, the test is skipped."""
    name = next(filter(None, map(shutil.which, _NAMES)), None)
    if name is None:
        pytest.skip("no browser here; type: apt-get install --no-install-recommends chromium")
    with tempfile.TemporaryDirectory() as folder:
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        command = [name, *words, *options, f"--user-data-dir={folder}", "about:blank"]
        process = processes.start(command, stdout=subprocess.DEVNULL)
        try:
            told = Path(folder, "DevToolsActivePort")
            wait_for(lambda: told.exists() and told.read_text().count("\n"))
            port = told.read_text().split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                [page] = [each for each in json.load(answer) if each["type"] == "page"]
            with connect(page["webSocketDebuggerUrl"], max_size=None) as connection:
                yield Browser(connection)
        finally:
            processes.stop(process, grace_s=10)
