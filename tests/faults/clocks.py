"""Machines whose clocks are hours wrong, and jump: they ask for, give and use approvals, keep
books of episodes and store nights.
"""

import contextlib
import datetime
import os
import random
import re
import time
import typing
from collections.abc import Iterator
from pathlib import Path

from tests.faults.attacks import Attacked
from tests.faults.forgeries import acting, approve, prepare_signed, read_champion, signing
from tests.faults.messages import prepare_release
from tests.faults.registry_cases import champions
from tests.registry.conftest import NAME, make_evaluation

_MOST_H = 40.0
_REFUSED = re.compile("waits for|expired|no version does")


class _AnyTime(type):
    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, _TRUE)


_TRUE = datetime.datetime


@contextlib.contextmanager
def clock(hours: float) -> Iterator[None]:
    """Let the clock of this process be wrong by so many hours."""

    class Wrong(_TRUE, metaclass=_AnyTime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return _TRUE.now(tz) + datetime.timedelta(hours=hours)

        @classmethod
        def utcnow(cls) -> datetime.datetime:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    true, true_ns = time.time, time.time_ns
    time.time = lambda: true() + 3600 * hours
    time.time_ns = lambda: true_ns() + int(3.6e12 * hours)
    datetime.datetime = Wrong
    try:
        yield
    finally:
        time.time, time.time_ns, datetime.datetime = true, true_ns, _TRUE


@contextlib.contextmanager
def machine(home: Path, person: str, hours: float) -> Iterator[None]:
    """Be somebody at a machine whose clock is wrong, in a workspace of its own on one store."""
    own = home / f"machine-{person}"
    if not own.exists():
        (own / ".rrf").mkdir(parents=True)
        for name in ("configs", "checkpoints"):
            (own / name).symlink_to(home / name)
    with acting(person):
        uri = f"sqlite:///{home}/.rrf/mlflow.db"
        os.environ |= {"RRF_HOME": str(own), "MLFLOW_TRACKING_URI": uri}
        with clock(hours):
            yield


class SkewedApprovals(Attacked):
    """Three people at three machines promote one version after the other; each clock is wrong by
    another number of hours. Requests hold for one hour, or for three days.

    Nothing is promoted without another's approval in time, by the times in the ledger; what is
    refused says so in a line; and with right clocks the same people get on.
    """

    name = "clocks hours wrong: approvals and the ledger"

    def prepare(self, home: Path) -> None:
        prepare_signed(home, approvals=1, approval_hours=1.0)

    def play(self, home: Path, rng: random.Random) -> int:
        from rrf.identity import trust
        from rrf.registry import promotion

        with signing(home):
            cfg = trust.load()
            hours = rng.choice([1.0, 72.0])
            rules = cfg.models[NAME].replace(approval_hours=hours)
            trust.save(cfg.replace(models={NAME: rules}))
            for version in rng.sample(["1", "3", "1", "3"], 3):
                skews = [rng.uniform(-_MOST_H, _MOST_H) for _ in range(3)]
                self._promote(home, version, skews)
                self._look(home, skews, hours)
            version = "3" if read_champion() != "3" else "1"
            self._promote(home, version, [0.0, 0.0, 0.0])
            assert champions() == [version], "with right clocks nobody gets on"
            self._look(home, [0.0], hours)
            assert promotion.ledger_of(NAME).champion == version
        return 9

    def _promote(self, home: Path, version: str, skews: list[float]) -> None:
        from rrf.registry import promotion

        def promote() -> None:
            promotion.promote(NAME, version, unrevoke="tried again")

        steps = (("alice", promote), ("bob", lambda: approve("bob", version)), ("carol", promote))
        for (person, step), hours in zip(steps, skews, strict=True):
            said = ""
            try:
                with machine(home, person, hours):
                    step()
            except ValueError as error:
                said = str(error).splitlines()[0]
            assert not said or _REFUSED.search(said), said

    def _look(self, home: Path, skews: list[float], hours: float) -> None:
        from rrf.registry import promotion

        found = set()
        for person, skew in zip(("alice", "bob", "carol"), skews, strict=False):
            with machine(home, person, skew):
                found.add(read_champion())
        ledger = promotion.ledger_of(NAME)
        assert found == {ledger.champion} == {*champions()}, (found, champions())
        assert [e.index for e in ledger.entries] == [*range(1, len(ledger.entries) + 1)]
        asked: typing.Any = None
        given: typing.Any = None
        for entry in ledger.entries:
            if entry.action == "stage":
                asked, given = entry, None
            elif entry.action == "approve":
                given = entry
            elif entry.action == "promote":
                assert given.approval["stage"] == asked.hash
                assert asked.actor != given.actor
                end = _TRUE.fromisoformat(asked.time) + datetime.timedelta(hours=hours)
                assert max(_TRUE.fromisoformat(e.time) for e in (given, entry)) <= end


class SkewedOutcomes(Attacked):
    """Two servers with wrong clocks, which jump between episodes, and nights of machines whose
    clocks are wrong: every episode and every night counts once, in its order."""

    name = "clocks hours wrong: outcomes of a release, and nights"

    def prepare(self, home: Path) -> None:
        prepare_release(home)

    def play(self, home: Path, rng: random.Random) -> int:
        from rrf.evaluation.gates.release import is_canary
        from rrf.registry import promotion, releases
        from rrf.registry.releases import running_in
        from rrf.registry.served import ServedModel
        from rrf.serving.book import Actor, Outcome, open_book
        from rrf.serving.following import row_of

        ledger = promotion.ledger_of(NAME)
        release, model = running_in(ledger), ServedModel(NAME)
        assert release is not None
        digests = [ledger.checkpoint_of(version) for version in ("1", "2")]
        skews, told, jumps = [rng.uniform(-_MOST_H, _MOST_H) for _ in range(2)], {}, 0
        with open_book(NAME) as first, open_book(NAME) as second:
            for number in range(400):
                site = rng.randrange(2)
                if rng.random() < 0.1:  # somebody sets the clock
                    skews[site], jumps = rng.uniform(-_MOST_H, _MOST_H), jumps + 1
                book, id = (first, second)[site], f"episode-{number}"
                acts = is_canary(id, release.hash, release.rules.share)
                actor = Actor("12"[acts], digests[acts], ("champion", "canary")[acts], release.hash)
                with clock(skews[site]):
                    book.begin(id, "", lambda actor=actor: actor)
                    book.end(id, Outcome(not acts))
                    told[id] = acts
                    if number % 10 == 9:
                        rows = [row_of(episode) for episode in book.episodes(release.hash)]
                        begun = [row["begun"] for row in rows]
                        assert begun == sorted(begun), "the order of a book changes"
                        model.report(release.hash, "2", book.id, rows)
                        if "2" in model.state().revoked:
                            break
            counted = [len(book.episodes(release.hash)) for book in (first, second)]
        assert sum(counted) == len(told)
        (status,) = releases.statuses(NAME)
        assert status.decision is not None
        assert status.decision.verdict == "bad", status.decision
        canary, champion = status.decision.canary, status.decision.champion
        assert (canary.solved, champion.solved) == (0, champion.ended), "an outcome was changed"
        assert canary.ended <= sum(told.values()), "an episode was counted twice"
        assert champion.ended <= len(told) - sum(told.values()), "an episode was counted twice"
        return 2 + jumps + self._nights(home, rng)

    def _nights(self, home: Path, rng: random.Random) -> int:
        """Store nights, some of them twice; their times are those of Prefect's server."""
        from rrf.registry import night_record, nights

        times = [f"2026-11-{day:02d}T020000Z" for day in range(1, 6)]
        for day, when in enumerate(times):
            folder = home / f"nights/{day}"
            make_evaluation(folder, home / "checkpoints/1", 18)
            for _ in range(rng.randint(1, 2)):
                with clock(rng.uniform(-_MOST_H, _MOST_H)):
                    night_record.record(NAME, "1", folder, when, f"flow run {day}")
        (series,) = nights.series_of(NAME)
        assert [point.night.time for point in series.points] == times, "nights in another order"
        return len(times)
