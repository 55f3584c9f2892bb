"""Episodes of a real server in the log of the robot: the same ids, and outcomes that survive it."""

import pytest

from rrf.client import EpisodeLogger, PolicyClient, ServerUnreachableError
from rrf.data import episode_log
from rrf.serving.book import Book, Outcome
from tests.serving.conftest import Scripted, request


@pytest.fixture
def book(tmp_path):
    book = Book(tmp_path / "book.sqlite")
    yield book
    book.close()


def summary(logs, name):
    return episode_log.check_episode(logs / name)["summary"]


def test_server_and_log_know_an_episode_by_one_id_and_end_it_alike(serving, book, tmp_path):
    logs = tmp_path / "logs"
    with (
        EpisodeLogger(logs, "arm-1") as log,
        PolicyClient(serving(Scripted(), book=book).url, log=log) as robot,
    ):
        name = robot.begin_episode(task="drawer-open", fps=10)["id"]
        log.step(request(1, 2, 3), robot.infer(request(1, 2, 3))[0])
        robot.end_episode(success=True, reason="by hand")
        log.flush()
        about = summary(logs, name)
    assert (about["outcome"], about["how"], about["steps"]) == ("success", "by hand", 1)
    assert about["policy"] | {"digest": "none", "role": "champion"} == about["policy"]
    assert about["latency_ms"]["max"] > 0
    assert book.find(name).outcome == Outcome(True, "by hand", 0)


def test_what_an_operator_has_solved_the_policy_has_not(serving, book, tmp_path):
    running = serving(Scripted(), book=book)
    with (
        EpisodeLogger(tmp_path / "logs", "arm-1") as log,
        PolicyClient(running.url, log=log, connect_s=0.5) as robot,
    ):
        names = []
        for by in (episode_log.OPERATOR, None):
            names.append(robot.begin_episode(task="drawer-open", fps=10)["id"])
            log.step(request(1, 2, 3), robot.infer(request(1, 2, 3))[0], by=by)
            log.step(request(1, 2, 3), robot.infer(request(1, 2, 3))[0])
            robot.end_episode(success=True)
        log.flush()
    assert [summary(tmp_path / "logs", name)["outcome"] for name in names] == ["success"] * 2
    assert [book.find(name).outcome.success for name in names] == [False, True]
    assert book.find(names[0]).outcome.reason == "an operator corrected it"


def test_an_outcome_is_on_the_robots_disk_although_the_server_went_away(serving, book, tmp_path):
    logs, running = tmp_path / "logs", serving(Scripted(), book=book)
    with (
        EpisodeLogger(logs, "arm-1") as log,
        PolicyClient(running.url, log=log, connect_s=0.5) as robot,
    ):
        name = robot.begin_episode(task="drawer-open", fps=10)["id"]
        log.step(request(1, 2, 3), robot.infer(request(1, 2, 3))[0])
        running.stop()
        assert running.stopped()
        for _ in range(2):  # said again, it is logged once
            with pytest.raises(ServerUnreachableError):
                robot.end_episode(success=False, reason="dropped")
        log.flush()
        about = summary(logs, name)
    assert (about["outcome"], about["how"]) == ("failure", "dropped")
    assert list(logs.iterdir()) == [logs / name]
