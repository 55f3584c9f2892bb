"""Two machines that share a store and change one model at once; one of them may be killed, or the
database is restarted. Each has a workspace of its own.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
import traceback
import typing
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import postgres
from tests.faults.attacks import Attacked, AttackTrial
from tests.faults.registry_cases import champions, prepare_registry
from tests.registry.conftest import NAME
from tests.registry.processes import arm

_VERSIONS, _CHANGES, _PATIENCE = ("1", "2", "3", "4"), 3, 2000
_ARRIVALS = ("gate", "register")
_URI = "MLFLOW_TRACKING_URI"


class TwoSites(Attacked):
    """Both promote and roll back what they like; one is killed in the middle, in every other seed.

    What a machine was told is in the ledger, nothing else is, and there is one champion.
    """

    name = "two sites change a model at once (SQLite)"

    def prepare(self, home: Path) -> None:
        from rrf.registry import promotion

        prepare_registry(home, map(int, _VERSIONS))
        promotion.promote(NAME, "1")

    def play(self, home: Path, rng: random.Random) -> int:
        os.environ.setdefault(_URI, f"sqlite:///{home}/.rrf/mlflow.db")
        kill_at = rng.choice([None, rng.randint(1, 20)])
        seeds = [rng.random() for _ in range(2)]
        sites = [
            _started(home / f"site-{n}", lambda n=n: _change(seeds[n], kill_at if n else None))
            for n in range(2)
        ]
        return 1 + self.check(sites)

    def check(self, sites: "list[Site]", may_be_untold: bool = False) -> int:
        """Compare the ledger with what the sites were told; returns how many were killed.

        Args:
            may_be_untold: Whether a change may have been written of which nobody was told.
        """
        from rrf.mlflow_store import store
        from rrf.registry import changes, listing

        killed = [site.ended() == -signal.SIGKILL for site in sites]
        told = {hash for site in sites for hash in site.told()}
        client = store.connect()
        ledger = changes.finish_and_correct(client, NAME)  # as the next change does
        assert changes.agreed(client, NAME) == ledger
        written = {e.hash for e in ledger.entries if e.action not in (*_ARRIVALS, "unrevoke")}
        assert told <= written, "a change that a site was told of is lost"
        if not any(killed) and not may_be_untold:
            more = [e.action for e in ledger.entries if e.hash in written - told][1:]
            assert not more, f"nobody was told of {more}"  # but of the first promotion
        left = [m.name for m in client.search_registered_models() if changes.CLAIM in m.tags]
        assert left == [], f"claims are left: {left}"
        assert champions() == [v for v in [ledger.champion] if v], champions()
        assert {v.version for v in listing.versions(NAME)} == {*_VERSIONS}, "a version is lost"
        return sum(killed)


class Site:
    """A process that changes the model, in a workspace of its own."""

    def __init__(self, home: Path, pid: int):
        self._home, self.pid = home, pid
        self._code: int | None = None

    def ended(self) -> int:
        """Wait for its end; returns the exit code. Raises AssertionError if it failed."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        error = self._home / "error.txt"
        assert self._code in (0, -signal.SIGKILL), error.read_text() if error.exists() else ""
        return self._code

    def told(self) -> list[str]:
        """The hashes of the entries that it was told were written."""
        file = self._home / "told.jsonl"
        return [json.loads(line) for line in file.open()] if file.exists() else []


def _started(home: Path, work: Callable[[], typing.Any]) -> Site:
    (home / ".rrf").mkdir(parents=True)
    pid = os.fork()
    if pid:
        return Site(home, pid)
    try:
        os.environ["RRF_HOME"] = str(home)
        os.chdir(home)
        work()
        os._exit(0)
    except BaseException:
        (home / "error.txt").write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        os._exit(1)


def _change(seed: float, kill_at: int | None = None) -> None:
    """Promote and roll back what a seed draws, and write down what was said; while the database is
    away, again."""
    if kill_at:
        arm(kill_at)
    rng = random.Random(seed)
    with Path("told.jsonl").open("a") as told:
        for _ in range(_CHANGES):
            version = rng.choice(_VERSIONS) if rng.random() < 0.6 else None
            for _ in range(_PATIENCE):
                with contextlib.suppress(OSError):
                    if hash := _changed(version):
                        told.write(json.dumps(hash) + "\n")
                        told.flush()
                    break
                time.sleep(0.05)
            else:
                raise AssertionError("the database does not come back")


def _changed(version: str | None) -> str:
    """The hash of the entry for a promotion, or a rollback; "" if none was written."""
    from rrf.registry import promotion

    before = {entry.hash for entry in promotion.ledger_of(NAME).entries}
    try:
        if version:
            entry = promotion.promote(NAME, version, unrevoke="tried again")
        else:
            entry = promotion.rollback(NAME, "worse")
    except ValueError:  # a refusal is part of the game
        return ""
    return "" if entry.hash in before else entry.hash


class PostgresTrial(AttackTrial):
    """A case whose store is on a PostgreSQL server of its own; each seed has a fresh database."""

    def __init__(self, case: "OnPostgres", folder: Path):
        self._stack = contextlib.ExitStack()
        self.server = case.server = self._stack.enter_context(postgres.running())
        postgres.create(self.server.uri, "start", "trial")
        self._patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        self._patch.setenv(_URI, postgres.named(self.server.uri, "start"))
        self._patch.setenv("RRF_ARTIFACT_ROOT", str(folder / "home/artifacts"))
        try:
            super().__init__(case, folder)
        except BaseException:
            self.close()
            raise

    def _again(self) -> None:
        super()._again()
        postgres.query(self.server.uri, "postgres", "DROP DATABASE trial WITH (FORCE)")
        postgres.query(self.server.uri, "postgres", "CREATE DATABASE trial TEMPLATE start")
        self._patch.setenv(_URI, postgres.named(self.server.uri, "trial"))

    def close(self) -> None:
        self._stack.close()


class OnPostgres(TwoSites):
    """The same on PostgreSQL."""

    name = "two sites change a model at once (PostgreSQL)"
    server: postgres.Server

    def trial(self, folder: Path) -> PostgresTrial:
        return PostgresTrial(self, folder)


class Restart(OnPostgres):
    """The database ends at once and is started again, in the middle of the changes of two sites.

    A change then fails with a line, or goes on; what was said to be written is there.
    """

    name = "restart of the database (PostgreSQL) while two sites change a model"

    def play(self, home: Path, rng: random.Random) -> int:
        seeds = [rng.random() for _ in range(2)]
        sites = [_started(home / f"site-{n}", lambda n=n: _change(seeds[n])) for n in range(2)]
        time.sleep(rng.random() * 4)
        self.server.restart()
        return 1 + self.check(sites, may_be_untold=True)
