"""`python -m infra.slurm`: run the flows of a work pool as jobs of Slurm.

It asks Prefect's server for the runs of the pool `slurm` and submits each as a job, which is called
`rrf-ID` after the run and executes it as Prefect's own workers do. So the job itself sends its log,
hears a cancellation and says how it ended. This process only looks, every few seconds, where both
sides differ:

    the run                     the job               what is done
    scheduled                                         sbatch
    taken by a killed process   there is none         sbatch
    cancelled while it waits    waits                 scancel, Cancelled
    cancelled while it runs     ends by itself        scancel and Cancelled if it does not
    not ended, or Crashed       cancelled (scancel)   Cancelled
    not ended                   time limit, out of    Crashed, with Slurm's reason
                                memory, node lost
    not ended, or Crashed       requeued              Queued; runs again and goes on from its
                                                      checkpoint

It keeps nothing: a job is found by its name, so it may be killed, started again, or run twice.
Which resources a job asks for is in `infra/slurm.yaml`.
"""

import argparse
import dataclasses
import datetime
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelled, Crashed, Pending

from flows.leftovers import server_time
from rrf import service_guard, workspace
from rrf.config import Cfg, configclass, first_error
from rrf.prefect_plugin import refusal

POOL, TYPE = "slurm", "rrf-slurm"
QUEUED = "Queued"
"""State of a run whose job waits in Slurm's queue; `flows.leftovers` lets it wait."""
FILE = Path("infra/slurm.yaml")
_PREFIX, _NO_JOB = "rrf-", "none"
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
_RUNS = ("RUNNING", "COMPLETING", "STAGE_OUT", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING")
_REASONS = {
    "TIMEOUT": "it reached its time limit",
    "DEADLINE": "it reached its deadline",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "NODE_FAIL": "its node failed",
    "PREEMPTED": "another job took its place",
    "BOOT_FAIL": "its node did not start",
    "FAILED": "it failed",
    "COMPLETED": "it ended without a word about the run",
}
_SETTLED_S = 30.0
"""For so long a run may be behind its job, whose last words are still on their way."""
_RECENT = datetime.timedelta(hours=1)
log = logging.getLogger("infra.slurm")


@configclass
class SlurmCfg(Cfg):
    """What jobs ask Slurm for."""

    options: list[str] = []
    """Options of sbatch for every job, e.g. --partition=cpu."""
    gpu_options: list[str] = ["--gres=gpu:1"]
    """More of them for the runs of deployments with the tag `gpu`."""
    poll_s: float = 5.0
    """Seconds between two looks."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A job as Slurm knows it."""

    id: str
    state: str

    @property
    def is_alive(self) -> bool:
        """Whether it waits or runs."""
        return self.state in (*_WAITS, *_RUNS)


def load() -> SlurmCfg:
    """What `infra/slurm.yaml` says. Raises ValueError for a damaged file."""
    file = workspace.home() / FILE
    if not file.is_file():
        return SlurmCfg()
    try:
        return SlurmCfg.from_dict(yaml.safe_load(file.read_text()) or {})
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: {first_error(error)}") from error


def create_pool() -> None:
    """Create the work pool unless it exists. Who asks for a run chooses nothing of its job."""
    none = {"type": "object", "properties": {}, "additionalProperties": False}
    template = {"job_configuration": {"program": "sbatch"}, "variables": none}
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(POOL)
        except ObjectNotFound:
            pool = WorkPoolCreate(name=POOL, type=TYPE, base_job_template=template)
            client.create_work_pool(pool)


def poll(client: SyncPrefectClient, cfg: SlurmCfg) -> None:
    """Look once at the runs and their jobs, and do what is to be done.

    Raises:
        httpx.HTTPError: If the server does not answer.
        OSError: If Slurm does not answer.
    """
    client.send_worker_heartbeat(POOL, socket.gethostname(), cfg.poll_s)
    now = server_time(client)
    soon = now + datetime.timedelta(seconds=cfg.poll_s)
    for answer in client.get_scheduled_flow_runs_for_work_pool(POOL, scheduled_before=soon):
        client.update_flow_run(answer.flow_run.id, infrastructure_pid=_NO_JOB)  # of a retry's first
        taken = client.set_flow_run_state(answer.flow_run.id, Pending())
        if taken.status.value == "ACCEPT":
            submit(client, cfg, answer.flow_run)
    runs = list(_unfinished(client, now))
    found = jobs()  # after the runs, so a run is never ahead of its job
    for run in runs:
        job = found.get(str(run.id))
        is_of_before = job and not job.is_alive and job.id != run.infrastructure_pid
        settle(client, cfg, run, None if is_of_before else job, now)


def submit(client: SyncPrefectClient, cfg: SlurmCfg, run: FlowRun) -> None:
    """Submit the job of a run that was taken, and write its number into the run.

    A run whose options Slurm refuses becomes Crashed, with its reason.
    """
    _queue(client, run.id, "it is being submitted")  # before its job may set another state
    state = workspace.state() / "logs"
    state.mkdir(parents=True, exist_ok=True)
    words = [
        *("--parsable", "--requeue", "--open-mode=append", f"--job-name={_PREFIX}{run.id}"),
        *(f"--output={state}/slurm-%j.log", f"--chdir={workspace.home()}"),
        *cfg.options,
        *(cfg.gpu_options if "gpu" in run.tags else ()),
    ]
    script = f"#!/bin/sh\nexec '{sys.executable}' -m infra.slurm execute {run.id}\n"
    try:
        job_id = _slurm("sbatch", *words, script=script).strip().partition(";")[0]
    except OSError as error:
        _end(client, run, Crashed(message=f"not submitted: {error}"))
        return
    client.update_flow_run(run.id, infrastructure_pid=job_id)
    log.info("run '%s' is job %s", run.name, job_id)


def settle(
    client: SyncPrefectClient,
    cfg: SlurmCfg,
    run: FlowRun,
    job: Job | None,
    now: datetime.datetime,
) -> None:
    """Do what is to be done about a run and its job, None if Slurm does not know any; `now` is the
    time by the server's clock."""
    state = run.state
    assert state
    age_s = (now - state.timestamp).total_seconds()
    requeued = job is not None and job.state in _WAITS and state.name != QUEUED
    if job and job.state == "CANCELLED":
        _end(client, run, Cancelled(message=f"job {job.id} was cancelled in Slurm (scancel)"))
    elif state.is_final() and not (state.is_crashed() and requeued):
        return
    elif state.type is StateType.CANCELLING:
        is_late = age_s > 2 * _SETTLED_S
        if job and (job.state in _WAITS or (job.is_alive and is_late)):
            _slurm("scancel", job.id)
        if not job or job.state in _WAITS or is_late:
            _end(client, run, Cancelled(message="cancelled; its job does not run"))
    elif job is None:
        if run.infrastructure_pid in (None, _NO_JOB) and age_s > 2 * cfg.poll_s:
            submit(client, cfg, run)  # who took the run was killed before it did so
        elif run.infrastructure_pid not in (None, _NO_JOB) and age_s > _SETTLED_S:
            gone = f"Slurm does not know its job {run.infrastructure_pid} any more"
            _end(client, run, Crashed(message=gone))
    elif job.is_alive:
        if run.infrastructure_pid != job.id:
            client.update_flow_run(run.id, infrastructure_pid=job.id)
        if requeued:
            _queue(client, run.id, f"job {job.id} of Slurm waits again")
    elif age_s > _SETTLED_S:
        reason = _REASONS.get(job.state, f"it is {job.state}")
        _end(client, run, Crashed(message=f"job {job.id} of Slurm ended: {reason}"))


def jobs() -> dict[str, Job]:
    """The jobs of runs that Slurm knows, by the run's id; of several for one run, the last.

    Raises:
        OSError: If Slurm does not answer.
    """
    found: dict[str, Job] = {}
    text = _slurm("squeue", "--noheader", "--states=all", "--format=%i|%T|%j")
    for line in text.splitlines():
        job_id, state, name = line.split("|", 2)
        if name.startswith(_PREFIX):
            before = found.get(name.removeprefix(_PREFIX))
            if before is None or int(job_id) > int(before.id):
                found[name.removeprefix(_PREFIX)] = Job(job_id, state)
    return found


def execute(run_id: str) -> None:
    """Execute a run in its job; a requeued job says first that the run begins again."""
    if int(os.environ.get("SLURM_RESTART_COUNT", "0")):
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(uuid.UUID(run_id)).state
            if state and (state.is_completed() or state.is_cancelled()):
                return
            _queue(client, uuid.UUID(run_id), "its job was requeued and begins again")
    os.execv(sys.executable, [sys.executable, "-m", "prefect", "flow-run", "execute", run_id])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m infra.slurm", description=__doc__)
    parser.add_argument("action", nargs="?", choices=("work", "execute"), default="work")
    parser.add_argument("run", nargs="?")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    log.setLevel(logging.INFO)
    try:
        if given.action == "execute":
            execute(given.run)
        else:
            work()
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {workspace.shown_uri(str(error))}\n")
        raise SystemExit(2) from None


def work() -> None:
    """Poll until this process is ended. A server or a Slurm that is away is asked again."""
    if missing := [name for name in ("sbatch", "squeue", "scancel") if not shutil.which(name)]:
        raise FileNotFoundError(
            f"{', '.join(missing)}: not installed; start this on a machine from which jobs are "
            "submitted (on Debian and Ubuntu: apt install slurm-client)"
        )
    cfg, is_ready = load(), False
    service_guard.certificates(service_guard.PREFECT_CERTIFICATES)
    while True:
        try:
            if not is_ready:
                create_pool()
                log.info("submits the runs of pool '%s' of %s", POOL, workspace.home())
                is_ready = True
            with get_client(sync_client=True) as client:
                poll(client, cfg)
        except httpx.HTTPError as error:
            log.warning("looks again: %s", refusal(error, PREFECT_API_URL.value()))
        except OSError as error:
            log.warning("looks again: %s", workspace.shown_uri(str(error)))
        time.sleep(cfg.poll_s)


def _unfinished(client: SyncPrefectClient, now: datetime.datetime) -> Iterator[FlowRun]:
    """The runs of the pool that have been taken and not ended, and those that crashed just now."""
    pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[POOL]))
    taken = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
    since = now - _RECENT
    for wanted in (
        FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=taken))),
        FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CRASHED])),
            end_time=FlowRunFilterEndTime(after_=since),  # type: ignore[arg-type]
        ),
    ):
        offset = 0
        while page := client.read_flow_runs(
            work_pool_filter=pool, flow_run_filter=wanted, limit=200, offset=offset
        ):
            yield from page
            offset += len(page)


def _queue(client: SyncPrefectClient, run_id: uuid.UUID, message: str) -> None:
    waits = State(type=StateType.PENDING, name=QUEUED, message=message)
    client.set_flow_run_state(run_id, waits, force=True)


def _end(client: SyncPrefectClient, run: FlowRun, state: State) -> None:
    client.set_flow_run_state(run.id, state, force=True)
    log.info("run '%s' is %s: %s", run.name, state.name, state.message)


def _slurm(program: str, *words: str, script: str | None = None) -> str:
    done = subprocess.run(
        [program, *words], input=script or "", capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OSError(f"{program}: {lines[-1].removeprefix(f'{program}: error: ')}")
    return done.stdout


if __name__ == "__main__":
    main()
