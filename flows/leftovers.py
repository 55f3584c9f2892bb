"""What a killed flow, or one that never started, left behind.

If a flow's process is killed, a worker sets the flow run to Crashed, but Prefect leaves its task
runs Running for ever. `crash_left_task_runs` is a pull step of every deployment
(`infra/prefect.yaml`), and `rrf services up` calls it. So they are set right at the latest when the
next flow run starts.

A run whose machine or worker was killed stays Running, and one that a worker has taken and whose
start then failed stays Submitting. Every worker (`infra.worker`) watches for such runs. What it
goes by is what the server has stored about the run, not when an event was heard of: a server that
is killed forgets events, and others arrive late.
"""

import datetime
import email.utils
import logging
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES, StateType
from prefect.states import Crashed

_MESSAGE = "its flow run ended without it"
_UNSTARTED = "its start failed: the worker, or the server, was killed meanwhile"
_SILENT = "no sign of life for {:.0f} s: its start failed, or it was killed"
_HEARTBEAT = "prefect.flow-run.heartbeat"
_QUEUED = "Queued"  # in Slurm's queue, see infra/slurm.py
log = logging.getLogger(__name__)


def server_time(client: SyncPrefectClient) -> datetime.datetime:
    """Now, by the clock of the server, which dates the states of runs; ours may be hours wrong.

    Raises:
        httpx.HTTPError: If the server does not answer.
    """
    answer = client.request("GET", "/health")
    return email.utils.parsedate_to_datetime(answer.headers["date"])


def crash_left_task_runs(settled_s: float = 60) -> int:
    """Set to Crashed what still runs in flow runs that ended; returns how many task runs it was.

    If the server cannot be reached, nothing changes.

    Args:
        settled_s: How long ago the flow runs ended at least. The last reports of their tasks may
            arrive a little after their end.
    """
    running = TaskRunFilter(
        state=TaskRunFilterState(
            type=TaskRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])
        )
    )
    try:
        with get_client(sync_client=True) as client:
            ended = server_time(client) - datetime.timedelta(seconds=settled_s)
            of_ended_flows = FlowRunFilter(
                state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[*TERMINAL_STATES])),
                end_time=FlowRunFilterEndTime(before_=ended),  # type: ignore[arg-type]
            )
            left = client.read_task_runs(flow_run_filter=of_ended_flows, task_run_filter=running)
            for task_run in left:
                client.set_task_run_state(task_run.id, Crashed(message=_MESSAGE), force=True)
    except httpx.HTTPError as error:
        log.warning("task runs of killed flows stay Running: %s", error)
        return 0
    return len(left)


class SilentRuns:
    """Runs that give no sign of life: neither their state nor their newest event changes.

    A flow sends a heartbeat every 30 s. Only time counts in which the server has answered every
    look, and it is counted by the clock of this machine.

    Args:
        silent_s: For so long a run may give none.
    """

    def __init__(self, silent_s: float):
        self._silent_s = silent_s
        self._seen: dict[UUID, tuple[tuple, float]] = {}

    def look(self, now_s: float) -> list[UUID]:
        """Set runs to Crashed that have been silent for too long; returns which.

        Args:
            now_s: The time, of a clock that only goes forward.
        """
        try:
            with get_client(sync_client=True) as client:
                return self._look(client, now_s)
        except httpx.HTTPError as error:
            log.info("no word about silent runs: %s", error)
            self._seen.clear()
            return []

    def _look(self, client: SyncPrefectClient, now_s: float) -> list[UUID]:
        begun = FlowRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING])
        found = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=begun))
        )
        before, self._seen, crashed = self._seen, {}, []
        for run in found:
            if run.state is None or run.state.name == _QUEUED:
                continue
            newest = self._newest_event(client, run.id)
            if run.state.type == StateType.RUNNING and newest is None:
                continue  # e.g. a flow in another one, which lives as long as that
            life = (run.state.id, newest)
            known, since = before.get(run.id, (None, now_s))
            self._seen[run.id] = (life, since if known == life else now_s)
            if now_s - self._seen[run.id][1] >= self._silent_s:
                client.set_flow_run_state(run.id, Crashed(message=_SILENT.format(self._silent_s)))
                crashed.append(run.id)
        return crashed

    @staticmethod
    def _newest_event(client: SyncPrefectClient, run: UUID) -> str | None:
        of_run = {"resource": {"id": [f"prefect.flow-run.{run}"]}, "order": "DESC"}
        of_run["event"] = {"name": [_HEARTBEAT]}
        answer = client.request("POST", "/events/filter", json={"filter": of_run, "limit": 1})
        events = answer.json()["events"]
        return events[0]["id"] if events else None


def crash_unstarted_runs(settled_s: float) -> int:
    """Set to Crashed the flow runs that a worker has taken `settled_s` seconds ago or earlier, and
    that have not started since; returns how many it was.
    """
    pending = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PENDING]))
    )
    with get_client(sync_client=True) as client:
        taken = server_time(client) - datetime.timedelta(seconds=settled_s)
        found = client.read_flow_runs(flow_run_filter=pending)
        left = [
            run
            for run in found
            if run.state and run.state.name != _QUEUED and run.state.timestamp < taken
        ]
        for run in left:
            client.set_flow_run_state(run.id, Crashed(message=_UNSTARTED))
    return len(left)
