"""Runs without a sign of life become Crashed, and others do not, whatever events say and when."""

import datetime
import uuid
from typing import Any

import httpx
import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.events.schemas.events import Event, Resource
from prefect.states import AwaitingRetry, Pending, Running, State
from prefect.types._datetime import now

from flows.leftovers import SilentRuns, crash_unstarted_runs, server_time
from tests.faults.clocks import clock
from tests.waiting import wait_for


@flow
def train() -> None:
    """Nobody runs it."""


@pytest.fixture
def client(server):
    with get_client(sync_client=True) as client:
        yield client


def begun(client: SyncPrefectClient, state: State) -> uuid.UUID:
    run = client.create_flow_run(train, state=Pending())
    if state.type != StateType.PENDING:
        client.set_flow_run_state(run.id, state)
    return run.id


def heartbeat(client: SyncPrefectClient, run: uuid.UUID, age_s: float = 0) -> None:
    """Send one and wait until the server has stored it."""
    event = Event(
        occurred=now("UTC") - datetime.timedelta(seconds=age_s),
        event="prefect.flow-run.heartbeat",
        resource=Resource({"prefect.resource.id": f"prefect.flow-run.{run}"}),
        id=uuid.uuid4(),
    )
    client.request("POST", "/events", json=[event.model_dump(mode="json")])
    of_run: dict[str, Any] = {"id": {"id": [str(event.id)]}}
    ask = {"filter": of_run, "limit": 1}
    wait_for(lambda: client.request("POST", "/events/filter", json=ask).json()["events"])


def state_of(client: SyncPrefectClient, run: uuid.UUID) -> str:
    state = client.read_flow_run(run).state
    assert state
    return state.name or ""


def test_a_run_without_a_sign_of_life_becomes_crashed(client):
    killed, unstarted = begun(client, Running()), begun(client, Pending(name="Submitting"))
    within, queued = begun(client, Running()), begun(client, Pending(name="Queued"))
    client.set_flow_run_state(queued, Pending(name="Queued"), force=True)
    heartbeat(client, killed)
    runs = SilentRuns(240)
    assert runs.look(1000) == []
    assert runs.look(1239) == []
    assert set(runs.look(1240)) == {killed, unstarted}
    assert [state_of(client, run) for run in (killed, unstarted)] == ["Crashed", "Crashed"]
    assert [state_of(client, run) for run in (within, queued)] == ["Running", "Queued"]
    assert runs.look(2000) == []


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_machine_whose_clock_is_wrong_takes_no_young_run_for_an_old_one(client, hours):
    run = begun(client, Pending())
    with clock(hours):
        own = datetime.datetime.now(datetime.UTC)
        assert abs((server_time(client) - own).total_seconds() + 3600 * hours) < 600
        assert crash_unstarted_runs(3600) == 0
    assert state_of(client, run) == "Pending"
    client.delete_flow_run(run)


@pytest.mark.slow
def test_a_run_that_sends_heartbeats_late_lives(client):
    run = begun(client, Running())
    runs = SilentRuns(240)
    for now_s in range(0, 1000, 200):
        heartbeat(client, run, age_s=170 - now_s / 10)  # its clock, or the network, is behind
        assert runs.look(now_s) == []
    assert runs.look(1030) == []
    assert runs.look(1040) == [run]


def test_a_retry_is_not_crashed_for_what_was_before_it(client):
    run = begun(client, Running())
    heartbeat(client, run)
    runs = SilentRuns(240)
    assert runs.look(0) == []
    client.set_flow_run_state(run, AwaitingRetry(), force=True)
    assert runs.look(239) == []
    heartbeat(client, run, age_s=60)  # of the process before, on its way for a minute
    assert runs.look(480) == []
    assert state_of(client, run) == "AwaitingRetry"
    client.set_flow_run_state(run, Pending(), force=True)
    assert runs.look(500) == []
    assert runs.look(739) == []
    assert runs.look(740) == [run]


@pytest.mark.slow
def test_time_in_which_the_server_was_away_does_not_count(client, monkeypatch):
    run = begun(client, Running())
    heartbeat(client, run)
    runs = SilentRuns(240)
    assert runs.look(0) == []
    with monkeypatch.context() as patch:

        def away(*_: Any, **__: Any) -> None:
            raise httpx.ConnectError("nobody is there")

        patch.setattr("flows.leftovers.get_client", away)
        assert runs.look(230) == []
    assert runs.look(250) == []
    assert runs.look(489) == []
    assert runs.look(490) == [run]
