"""A policy server whose canary is worse, killed while a robot plays and its release is decided.

The robot lives on, as robots do: it repeats what was not answered, with the same ids. Which version
acts in an episode depends on the hash of a release, so that no two runs are the same; what is
compared is what the robot was told with what the registry says in the end.
"""

import collections
import json
import os
import random
import signal
import sys
import threading
import time
import typing
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from infra import ports
from rrf import atomic
from tests.faults.kills import KILLS, Killed, Survival, Trial, import_all
from tests.faults.work_cases import rrf
from tests.serving import test_canary as canary

_STEPS, _MOST = 3, 400


class Serving(Killed):
    """A server, whose outcomes end the release."""

    name = "canary"

    def trial(self, folder: Path) -> "CanaryTrial":
        return CanaryTrial(self, folder)

    def prepare(self, home: Path) -> None:
        from rrf.registry import promotion, releases
        from tests.registry import conftest as registry

        registry.new_repository(home)
        rules = home / f"configs/releases/{canary.NAME}.yaml"
        rules.parent.mkdir(parents=True)
        rules.write_text("share: 0.5\nmargin: 0.2\n")
        canary.registered(home, "good", canary.balancing)
        promotion.promote(canary.NAME, "1")
        canary.registered(home, "bad", canary.damaged)
        releases.begin(canary.NAME, "2")
        (home / "port").write_text(str(ports.free()))

    def work(self, home: Path) -> None:
        port = (home / "port").read_text()
        if (home / "modules.json").exists():  # asks for them
            threading.Thread(target=_write_modules, args=[home], daemon=True).start()
        rrf("serve", canary.NAME, "registry_s=0.1", "--port", port)

    def play(self, home: Path) -> None:
        """What the robot does until the canary is pulled; it writes what it was told."""
        from rrf.client import PolicyClient
        from rrf.registry.served import ServedModel

        url, told = f"ws://127.0.0.1:{(home / 'port').read_text()}", home / "robot.jsonl"
        with PolicyClient(url, timeout_s=120, connect_s=300) as robot, told.open("w") as file:
            for number in range(_MOST):
                id = f"episode-{number}"
                role = patiently(lambda id=id: robot.begin_episode(id))["role"]
                for _ in range(_STEPS):
                    patiently(lambda: robot.infer({"policy": np.zeros(4, np.float32)}))
                success = role == "champion"
                patiently(lambda success=success: robot.end_episode(success=success))
                if number % 5 == 0:  # said twice, and contradicted: counted once
                    end = {"id": id, "success": success, "reason": "", "guards": 0}
                    patiently(lambda end=end: robot._exchange({"episode_end": end}))
                    end |= {"success": not success}
                    _refused(lambda end=end: robot._exchange({"episode_end": end}))
                file.write(json.dumps([id, role, success]) + "\n")
                file.flush()
                if number % 10 == 9 and "2" in ServedModel(canary.NAME).state().revoked:
                    return
        raise AssertionError(f"the canary acts after {_MOST} episodes")

    def look(self, home: Path) -> None:
        from rrf.registry import listing

        aliases = [alias for v in listing.versions(canary.NAME) for alias in v.aliases]
        assert aliases.count("champion") == 1, aliases

    def state(self, home: Path) -> typing.Any:
        raise NotImplementedError  # no two runs are the same

    def check(self, home: Path) -> None:
        """Compare what the robot was told with the book, the evidence and the ledger."""
        self.look(home)
        told = {id: rest for id, *rest in map(json.loads, (home / "robot.jsonl").open())}
        check_release(canary.NAME, told)


def check_release(name: str, told: Mapping[str, list]) -> None:
    """Compare what robots were told and have said with the book, the evidence and the ledger: the
    canary, version 2, was bad, and version 1 is the champion.

    Args:
        name: The registered model.
        told: Episode -> the role of who acted, and its success.
    """
    from rrf.registry import promotion, releases
    from rrf.serving.book import open_book

    with open_book(name) as book:
        kept = {e.id: [e.actor.role, e.outcome and e.outcome.success] for e in book.episodes()}
    assert kept == told, f"the book differs: {[i for i in told if told[i] != kept.get(i)]}"
    ledger = promotion.ledger_of(name)
    ends = [e.conclusion["outcome"] for e in ledger.entries if e.conclusion]
    assert ends == ["bad"], f"the release ended {ends}"
    assert ledger.champion == "1"
    (status,) = releases.statuses(name)
    assert status.decision is not None
    arms = (("canary", status.decision.canary), ("champion", status.decision.champion))
    for role, arm in arms:
        known = collections.Counter(role for role, _ in told.values())[role]
        assert arm.ended <= known, f"{arm.ended} episodes counted of the {known} played"


class CanaryTrial(Trial):
    """The server of a release in a folder."""

    def __init__(self, case: Serving, folder: Path):
        self.case = case
        super().__init__(case, folder)

    def _undisturbed_s(self) -> float:
        (self._start / "modules.json").write_text("[]")
        self._played([], Survival(self.fault, -1, [], 0))
        import_all(json.loads((self.home / "modules.json").read_text()))
        (self._start / "modules.json").unlink()
        return self._played([], Survival(self.fault, -1, [], 0))

    def _harm(self, rng: random.Random, survival: Survival) -> None:
        self._played(sorted(rng.random() * self.usual_s for _ in range(KILLS)), survival)

    def _played(self, moments_s: list[float], survival: Survival) -> float:
        """Let the robot play while the server is killed so long after each start; returns the
        seconds that it took."""
        self._again()
        began = time.monotonic()
        robot = self._begun(lambda: self.case.play(self.home))
        for after_s in [*moments_s, None]:
            server = self._begun(lambda: self.case.work(self.home))
            code = self._waited(robot, after_s)
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            if code is not None:
                break
            survival.kills += 1
            survival.moments_s.append(round(after_s or 0.0, 3))
            self._in_fork(lambda: self.case.look(self.home))
        assert code == 0, self._said()
        took_s = time.monotonic() - began
        self._in_fork(lambda: self.case.check(self.home))
        return took_s

    def _waited(self, pid: int, seconds: float | None) -> int | None:
        """The exit code of a process if it ends within so many seconds."""
        deadline = time.monotonic() + (600.0 if seconds is None else seconds)
        while time.monotonic() < deadline:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            time.sleep(0.01)
        if seconds is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("the robot is not done after ten minutes")
        return None


def _write_modules(home: Path) -> None:
    while True:
        atomic.write_json(home / "modules.json", [*sys.modules])
        time.sleep(0.5)


def patiently(ask: typing.Callable[[], typing.Any]) -> typing.Any:
    """Ask again while the server is away."""
    while True:
        try:
            return ask()
        except (ConnectionError, TimeoutError):
            time.sleep(0.05)


def _refused(ask: typing.Callable[[], typing.Any]) -> None:
    try:
        patiently(ask)
    except ValueError:
        return
    raise AssertionError("a second outcome was taken")
