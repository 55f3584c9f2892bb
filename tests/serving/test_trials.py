"""A study is played: the real policy server, a real client, and the operator's answers."""

import asyncio
import threading

import numpy as np
import pytest

from rrf.client import PolicyClient
from rrf.client.connection import RequestRefusedError
from rrf.evaluation.trials.record import ConflictError, Record, hold
from rrf.evaluation.trials.results import standing
from rrf.serving.book import open_book
from rrf.serving.configs import ServingCfg
from rrf.serving.player import Player
from rrf.serving.requests import RequestReader
from rrf.serving.standing import Standing
from rrf.serving.trials import Session, TrialCast, serve_arms
from tests.evaluation.trials.studies import play, study
from tests.serving.conftest import Scripted, request
from tests.waiting import wait_for


class Sign(Scripted):
    """Answers its sign times the state."""

    def __init__(self, sign):
        super().__init__()
        self.sign, self.digest = sign, f"digest of {sign}"

    def answer(self, rows):
        return self.sign * super().answer(rows)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    study()
    return tmp_path / "trials/s"


def players():
    made = {"old": Sign(-1), "new": Sign(1)}
    return {
        arm: Player(policy, RequestReader(policy.signature).row) for arm, policy in made.items()
    }


@pytest.fixture
def robot(folder):
    """A client of the study's policy server, and its session."""
    ready, loop, told = threading.Event(), asyncio.new_event_loop(), []
    stop = asyncio.Event()

    def is_ready(url, _):
        told.append(url)
        ready.set()

    with hold(folder) as record, open_book("trial-s") as book:
        session = Session(record, serves=True)
        session.asked = Standing("s", "", 0.01, lambda *_: WHY if (folder / "bad").exists() else "")
        serving = serve_arms(players(), session, ServingCfg(port=0), None, book, stop, is_ready)
        thread = threading.Thread(target=loop.run_until_complete, args=(serving,))
        thread.start()
        assert ready.wait(60)
        with PolicyClient(told[0]) as client:
            yield client, session
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


WHY = "no trial of 's' begins, because of its arm 'new': version 2 of 'arm' was withdrawn"


def said(answer, **more):
    return {"id": f"answer-{answer:04d}", "success": True, "stage": "done", **more}


def test_the_arm_of_the_trial_answers_and_nothing_says_which_one_it_is(robot, folder):
    client, session = robot
    acted = {}
    for number in range(4):
        view = session.view()
        turn = view["trial"]["id"]
        with pytest.raises(RequestRefusedError, match="press Start"):
            client.begin_episode(id=f"early-{number}")
        session.start(turn, {})
        with pytest.raises(RequestRefusedError, match="begin an episode"):
            client.infer(request(1, 2, 3))
        told = client.begin_episode(id=f"e{number}", task="left")
        with pytest.raises(ConflictError, match="not the one of the moment"):
            session.score("99", said(99))
        assert told == {"id": f"e{number}", "version": "", "digest": "", "role": "trial"}
        actions = client.infer(request(1, 2, 3))
        acted[turn] = int(np.sign(actions[0, 0]))
        client.end_episode(success=False)  # what the robot thinks decides nothing
        with pytest.raises(RequestRefusedError, match="has had its episode"):
            client.begin_episode(id=f"again-{number}")
        session.score(turn, said(number))
    assert not {"old", "new"} & set(str(client.metadata).split("'"))
    state = Record(folder).state
    arms = {trial.turn.id: trial.turn.slot.arm for trial in state.trials}
    assert acted == {turn: {"old": -1, "new": 1}[arm] for turn, arm in arms.items()}
    assert all(trial.answer["success"] for trial in state.trials)
    assert [trial.episodes for trial in state.trials] == [(f"e{n}",) for n in range(4)]


def test_once_an_arm_is_revoked_the_trial_that_runs_is_scored_and_no_other_begins(robot, folder):
    client, session = robot
    session.start("1", {})
    client.begin_episode(id="e1")
    assert client.request(request(1, 2, 3)).revoked == ""
    (folder / "bad").touch()
    wait_for(lambda: session.refused, 30, lambda: "the registry was not asked")
    answer = client.request(request(1, 2, 3))
    assert answer.actions.any()
    assert answer.revoked == WHY  # whichever arm acts
    session.score("1", said(1))
    turn = session.view()["trial"]["id"]
    with pytest.raises(ConflictError, match=f"{WHY}; what was scored is kept"):
        session.start(turn, {})
    assert len(Record(folder).state.trials) == 1
    (folder / "bad").unlink()  # somebody has allowed it
    wait_for(lambda: not session.refused, 30, lambda: "the registry was not asked")
    session.start(turn, {})
    (folder / "bad").touch()
    wait_for(lambda: session.refused, 30, lambda: "the registry was not asked")
    with PolicyClient(client.url) as other, pytest.raises(RequestRefusedError, match="withdrawn"):
        other.begin_episode(id="e2")
    assert not Record(folder).state.episodes


def test_a_trial_in_which_no_policy_has_acted_is_not_scored(robot):
    client, session = robot
    session.start("1", {})
    with pytest.raises(ConflictError, match="no policy has acted"):
        session.score("1", said(1))
    client.begin_episode(id="e1")
    session.score("1", said(1))
    assert session.view()["last"]["said"] == "solved"


def test_after_a_correction_no_robot_begins_for_the_corrected_trial(robot):
    client, session = robot
    session.start("1", {})
    client.begin_episode(id="e1")
    session.score("1", said(1))
    session.start("2", {})
    session.undo("1", {"id": "undo-0001"})
    with pytest.raises(RequestRefusedError, match="was undone; answer it again"):
        client.begin_episode(id="e2")
    session.score("1", said(2, success=False, stage=""))
    client.begin_episode(id="e2")
    assert session.view()["trial"]["played"]


def test_no_view_differs_when_the_arms_change_places(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    views = []
    for name, arms in (("s1", ("old", "new")), ("s2", ("new", "old"))):
        study(name, arms=arms)
        with hold(tmp_path / "trials" / name) as record:
            session = Session(record, serves=False)
            views.append([{**session.view(), "study": ""}])
            play(record, {"old": 0.2, "new": 0.9}, most=8)
            assert {"old", "new"}.isdisjoint(str(session.view()).replace("'", " ").split())
    assert views[0] == views[1]


def test_arms_that_a_robot_could_tell_apart_by_their_inputs_are_refused(folder):
    made = players()
    made["new"].metadata["inputs"]["observation.state"] = {"dtype": "float32", "shape": [7]}
    with pytest.raises(ValueError, match=r"arm 'new' takes observation.state as .*\[7\]"):
        TrialCast(made, Session(Record(folder), serves=True))


def test_a_study_that_is_over_takes_no_more_trials(folder):
    with hold(folder) as record:
        play(record, {"old": 0.0, "new": 1.0})
        session = Session(record, serves=False)
        assert standing(record).is_over
        assert session.view()["trial"] is None
        with pytest.raises(ConflictError, match="the study is over"):
            session.start(record.state.turn.id, {})
