"""A server that follows a registry: another champion, a canary, and where outcomes go."""

import dataclasses
import threading

import numpy as np
import pytest

from rrf.client import PolicyClient, PolicyRevokedError, RequestRefusedError
from rrf.evaluation.gates.release import ReleaseCfg, decide, rows_of
from rrf.registry.served import ReleaseState, State
from rrf.serving.book import Book
from tests.serving.conftest import Scripted, request
from tests.waiting import wait_for

SALT = "5" * 64


class Version(Scripted):
    """A policy that answers with its number."""

    def __init__(self, number):
        super().__init__()
        self.digest, self.number = str(number) * 64, float(number)

    def answer(self, rows):
        return np.full_like(super().answer(rows), self.number)


@dataclasses.dataclass
class Model:
    """A registry that a test writes."""

    name: str = "arm"
    now: State = dataclasses.field(default_factory=lambda: State("1", {}, None))
    error: Exception | None = None
    broken: frozenset = frozenset()
    reports: list = dataclasses.field(default_factory=list)

    def state(self):
        if self.error:
            raise self.error
        return self.now

    def conclude(self):
        self.reports.append("conclude")

    def fetch(self, version):
        raise AssertionError("the test loads")

    def report(self, release, version, book, rows):
        self.reports.append((release, version, book, rows))

    def load(self, version):
        if version in self.broken:
            raise RuntimeError("its weights are gone")
        return Version(int(version))


def canary(share=0.5, shadow=False, version="2", champion="1"):
    return ReleaseState(SALT, version, champion, shadow, share)


@pytest.fixture
def book(tmp_path):
    book = Book(tmp_path / "book.sqlite")
    yield book
    book.close()


@pytest.fixture
def followed(serving, book):
    """A server of `Model`, which follows it every 20 ms; returns both."""

    def start(model=None, **settings):
        model = model or Model()
        running = serving(Version(1), book=book, follow=(model, 0.02), **settings)
        return running, model

    return start


def role(id, share=0.5):
    return "canary" if canary(share).is_canary(id) else "champion"


def names(wanted, share=0.5):
    return [f"e{k}" for k in range(200) if role(f"e{k}", share) == wanted]


def acts(robot):
    return float(robot.infer(request(1, 2, 3))[0, 0])


def until_acts(running, number):
    with PolicyClient(running.url) as robot:
        wait_for(lambda: acts(robot) == number)


def test_another_champion_gets_new_episodes_and_running_ones_finish(followed):
    running, model = followed()
    with PolicyClient(running.url) as robot, PolicyClient(running.url) as plain:
        assert robot.begin_episode("a")["version"] == "1"
        assert acts(robot) == acts(plain) == 1
        model.now = State("2", {}, None)
        wait_for(lambda: acts(plain) == 2)  # who announces nothing gets the champion at once
        assert acts(robot) == 1
        robot.close()
        assert acts(robot) == 1  # also on another connection
        robot.end_episode(True)
        assert robot.begin_episode("b")["version"] == "2"
        assert acts(robot) == 2
    wait_for(lambda: {player.version for player in running.cast.players.values()} == {"2"})


def test_a_champion_that_cannot_be_loaded_leaves_the_old_one_acting(followed, caplog):
    running, model = followed(Model(broken=frozenset({"2"})))
    model.now = State("2", {}, None)
    wait_for(lambda: running.errors("load"))
    with PolicyClient(running.url) as robot:
        assert acts(robot) == 1
        assert robot.begin_episode("a")["version"] == "1"
    assert "version 2 of 'arm' cannot be loaded, version 1 goes on: its weights" in caplog.text
    assert running.errors("load") == 1  # it is not tried at every look
    model.now = State("3", {}, None)
    until_acts(running, 3)


@pytest.mark.parametrize("kind", [OSError, RuntimeError])
def test_while_the_registry_is_away_everything_stays_as_it_is(followed, caplog, kind):
    running, model = followed()
    model.error = kind("no store")
    wait_for(lambda: "the registry is not followed now: no store" in caplog.text)
    with PolicyClient(running.url) as robot:
        assert acts(robot) == 1
        model.error, model.now = None, State("2", {}, None)
        wait_for(lambda: acts(robot) == 2)
    assert caplog.text.count("no store") == 1


def test_a_share_of_the_episodes_gets_the_canary_to_its_end(followed, caplog):
    running, model = followed()
    model.now = State("1", {}, canary())
    wait_for(lambda: running.cast.canary)
    with PolicyClient(running.url) as robot:
        told = {id: robot.begin_episode(id) for id in [f"e{k}" for k in range(20)]}
        assert {id: facts["role"] for id, facts in told.items()} == {id: role(id) for id in told}
        mine = names("canary")[30]
        assert robot.begin_episode(mine)["version"] == "2"
        assert acts(robot) == 2
        model.now = State("1", {}, None)  # the release is over
        wait_for(lambda: running.cast.canary is None)
        assert "version 2 is no canary any more and gets no new episodes" in caplog.text
        assert acts(robot) == 2
        robot.end_episode(True)
        assert acts(robot) == 1
        assert robot.begin_episode(names("canary")[31])["role"] == "champion"


def test_a_canary_that_is_revoked_says_so_to_its_robots_alone(followed):
    running, model = followed()
    model.now = State("1", {}, canary())
    wait_for(lambda: running.cast.canary)
    with PolicyClient(running.url) as robot, PolicyClient(running.url) as other:
        robot.begin_episode(names("canary")[0])
        other.begin_episode(names("champion")[0])
        model.now = State("1", {"2": "it was stopped"}, None)
        wait_for(lambda: robot.request(request(1, 2, 3)).revoked)
        assert robot.revoked == "it was stopped"
        assert other.request(request(1, 2, 3)).revoked == ""
        assert robot.begin_episode(names("canary")[1])["role"] == "champion"  # it may go on
    with PolicyClient(running.url) as robot:
        model.now = State(None, {"1": "withdrawn", "2": "it was stopped"}, None)
        wait_for(lambda: robot.request(request(1, 2, 3)).revoked)
        with pytest.raises(PolicyRevokedError, match="withdrawn"):
            robot.begin_episode("new")


def test_outcomes_are_reported_when_they_change(followed, book):
    running, model = followed()
    model.now = State("1", {}, canary())
    wait_for(lambda: running.cast.canary)
    with PolicyClient(running.url) as robot:
        for k in range(4):
            robot.begin_episode(f"e{k}")
            acts(robot)
            robot.end_episode(k % 2 == 0)

    def is_complete():
        rows = model.reports[-1][3] if model.reports else []
        return len(rows) == 4 and all(row["has_ended"] for row in rows)

    wait_for(is_complete)
    release, version, name, rows = model.reports[-1]
    assert (release, version, name, len(rows)) == (SALT, "2", book.id, 4)
    number = len(model.reports)
    found = decide(
        rows_of([row | {"book": name} for row in rows]),
        ReleaseCfg(share=0.5),
        SALT,
        ("2" * 64, "1" * 64),
    )
    assert found.canary.ended + found.champion.ended == 4
    model.now = State("2", {}, None)
    until_acts(running, 2)
    assert len(model.reports) == number


def test_the_end_of_a_release_that_was_left_half_done_is_finished(followed):
    running, model = followed()
    assert model.reports == []
    model.now = State("1", {}, None, is_unfinished=True)
    wait_for(lambda: model.reports[-1:] == ["conclude"])
    model.now = State("2", {}, None)
    until_acts(running, 2)


def test_a_canary_that_cannot_be_loaded_gets_no_episode(followed, book):
    running, model = followed(Model(broken=frozenset({"2"})))
    model.now = State("1", {}, canary())
    wait_for(lambda: running.errors("load"))
    with PolicyClient(running.url) as robot:
        assert robot.begin_episode(names("canary")[0])["role"] == "champion"
    assert book.episodes(SALT) == []  # and none counts


def test_an_episode_of_a_version_that_is_gone_is_refused_by_name(followed, book):
    running, _ = followed()
    with PolicyClient(running.url) as robot:
        robot.begin_episode("a")
    book._database.execute("UPDATE episodes SET version = '7'")
    with (
        PolicyClient(running.url) as robot,
        pytest.raises(RequestRefusedError, match="'a' began with version 7"),
    ):
        robot.begin_episode("a")


def test_loading_does_not_stop_the_answers(followed):
    running, model = followed()
    entered, may_go = threading.Event(), threading.Event()

    def load(version):
        entered.set()
        assert may_go.wait(60)
        return Version(int(version))

    model.load = load
    model.now = State("2", {}, None)
    assert entered.wait(60)
    with PolicyClient(running.url) as robot:
        assert acts(robot) == 1
        may_go.set()
        wait_for(lambda: acts(robot) == 2)
