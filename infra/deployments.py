"""Prepare a Prefect server so that a worker can run the flows: pool, GPU limit, deployments.

Import this module after `PREFECT_API_URL` is set, because Prefect reads its settings on import.
"""

import datetime
import subprocess
import sys
import time
from collections.abc import Callable

import yaml
from prefect.automations import AutomationCore
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from flows import leftovers, slots
from rrf import workspace

POOL = "local"
ZOMBIES = "zombie-runs"
_FILE = "infra/prefect.yaml"
_ZOMBIE_S = 240
"""Seconds without a heartbeat. A flow sends one every 30 s. Those that it sends while the server is
away for a minute, and starts for another, arrive later or not at all."""
_ENDINGS = ("Completed", "Failed", "Cancelled", "Crashed", "Paused", "Suspended")


def deploy() -> list[str]:
    """Create the work pool, the GPU limit and the automation, and deploy every flow.

    Task runs that killed flows left Running are set to Crashed.

    Returns:
        The names of the deployments.

    Raises:
        ValueError: If `prefect deploy` fails; the message has its output.
    """
    _create_pool()
    slots.create(slots.GPU, slots.num_gpus())
    _create_zombie_automation()
    leftovers.crash_left_task_runs()
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy"]
    result = subprocess.run(
        [*command, "--prefect-file", _FILE, "--all"],
        cwd=workspace.home(),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise ValueError(f"`prefect deploy` failed:\n{(result.stdout + result.stderr)[-2000:]}")
    described = yaml.safe_load((workspace.home() / _FILE).read_text())
    return [deployment["name"] for deployment in described["deployments"]]


def wait_for_worker(is_alive: Callable[[], bool], timeout_s: float) -> None:
    """Wait until a worker that was just started has reported to the pool.

    Raises:
        ValueError: If the worker ends or does not report in time; the message names its log.
    """
    began, deadline = datetime.datetime.now(datetime.UTC), time.monotonic() + timeout_s
    with get_client(sync_client=True) as client:
        while is_alive() and time.monotonic() < deadline:
            workers = client.read_workers_for_work_pool(POOL)
            if any((worker.last_heartbeat_time or began) > began for worker in workers):
                return
            time.sleep(0.5)
    raise ValueError(f"the worker did not start; see {workspace.state() / 'logs' / 'worker.log'}")


def _create_pool() -> None:
    template = ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=POOL, type="process", base_job_template=template)
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(POOL)
        except ObjectNotFound:
            client.create_work_pool(pool)


def _create_zombie_automation() -> None:
    """Create an automation that sets runs without heartbeats to Crashed.

    A run stops sending heartbeats when its machine or worker is killed. Without the automation, it
    would stay Running for ever and keep the concurrency slot of its deployment.
    """
    heartbeat = "prefect.flow-run.heartbeat"
    trigger = EventTrigger(
        after={heartbeat},
        expect={heartbeat, *(f"prefect.flow-run.{ending}" for ending in _ENDINGS)},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=datetime.timedelta(seconds=_ZOMBIE_S),
    )
    crash = ChangeFlowRunState(
        state=StateType.CRASHED,
        name="Crashed",
        message=f"no heartbeat for {_ZOMBIE_S} s",
        force=False,
    )
    wanted = AutomationCore(name=ZOMBIES, trigger=trigger, actions=[crash])
    with get_client(sync_client=True) as client:
        existing = client.read_automations_by_name(ZOMBIES)
        if not existing:
            client.create_automation(wanted)
        elif existing[0].actions != wanted.actions:  # made by an earlier version
            client.update_automation(existing[0].id, wanted)
