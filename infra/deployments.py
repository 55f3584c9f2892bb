"""Prepare a Prefect server so that a worker can run the flows: pool, GPU limit, deployments.

Import this module after `PREFECT_API_URL` is set, because Prefect reads its settings on import.
"""

import datetime
import subprocess
import sys
import time
from collections.abc import Callable

import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound

from flows import leftovers, slots
from infra import slurm
from rrf import workspace
from rrf.mlflow_store.store import PATIENCE_VARIABLE

POOL = "local"
ZOMBIES = "zombie-runs"
_FILE = "infra/prefect.yaml"
SILENT_S = 240
"""For so long a run may give no sign of life, of which there is one every 30 s. Those that it sends
while the server is away for a minute, and starts for another, arrive later or not at all."""
PATIENCE = {PATIENCE_VARIABLE: "240", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "7"}
"""With which a flow asks again for four minutes for an MLflow server that is away, as Prefect's
clients do for theirs (`client.max_retries` in pyproject.toml)."""


def deploy() -> list[str]:
    """Create the work pool with its queues and the limit for the GPUs of this machine, and deploy
    every flow.

    Runs whose start failed, and task runs that killed flows left Running, are set to Crashed.

    Returns:
        The names of the deployments.

    Raises:
        ValueError: If the file of deployments has job variables, or if `prefect deploy` fails; the
            message has its output.
    """
    names = deployments()
    _create_pool()
    if slurm.POOL in _pools():
        slurm.create_pool()
    create_queues()
    slots.create(slots.gpu_limit(), slots.num_gpus())
    _remove_zombie_automation()
    leftovers.crash_unstarted_runs(SILENT_S)
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
    return names


def deployments() -> list[str]:
    """The names of the deployments that are described in the workspace.

    Raises:
        ValueError: If one of them has job variables, as those of an earlier rrf have.
    """
    described = yaml.safe_load((workspace.home() / _FILE).read_text())["deployments"]
    for each in described:
        if each.get("work_pool", {}).get("job_variables"):
            raise ValueError(
                f"deployment '{each['name']}' in {_FILE} has job_variables, but how the worker "
                "starts a run is fixed in infra/deployments.py, _job_template; move them there"
            )
    return [each["name"] for each in described]


def _pools() -> set[str]:
    described = yaml.safe_load((workspace.home() / _FILE).read_text())["deployments"]
    return {each.get("work_pool", {}).get("name", POOL) for each in described}


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


def _job_template() -> dict:
    """How the worker starts a run: by Prefect's own command, in its own environment, which says
    where the workspace of its machine is.

    Who asks for a run chooses its parameters and nothing of this; a request with job variables is
    refused.
    """
    environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **PATIENCE}
    return {
        "job_configuration": {"stream_output": True, "env": environment},
        "variables": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def _create_pool() -> None:
    template = _job_template()
    with get_client(sync_client=True) as client:
        try:
            existing = client.read_work_pool(POOL)
        except ObjectNotFound:
            pool = WorkPoolCreate(name=POOL, type="process", base_job_template=template)
            client.create_work_pool(pool)
            return
        if existing.base_job_template != template:
            client.update_work_pool(POOL, WorkPoolUpdate(base_job_template=template))


def create_queues() -> None:
    """Create the queues of the pool that are missing; others stay as somebody has set them.

    Of nightly runs, one at a time is begun, so that they fill no worker.
    """
    pool = {"work_pool_name": POOL}
    with get_client(sync_client=True) as client:
        known = client.request(
            "POST", "/work_pools/{work_pool_name}/queues/filter", path_params=pool, json={}
        ).json()
        for name, priority in slots.PRIORITIES.items():
            if name not in {queue["name"] for queue in known}:
                limit = 1 if name == slots.NIGHTLY else None
                facts = {"name": name, "priority": priority, "concurrency_limit": limit}
                client.request(
                    "POST", "/work_pools/{work_pool_name}/queues", path_params=pool, json=facts
                )


def _remove_zombie_automation() -> None:
    """Remove what an earlier rrf has made. It also crashed runs that had just been retried."""
    with get_client(sync_client=True) as client:
        for automation in client.read_automations_by_name(ZOMBIES):
            client.delete_automation(automation.id)


if __name__ == "__main__":  # how the worker of infra/compose.yaml begins
    sys.stdout.write(f"deployed: {', '.join(deploy())}\n")
