"""`python -m infra.worker`: run flows on this machine, for a Prefect server here or elsewhere.

It is Prefect's own worker. The workspace of this machine may lie elsewhere than that of the
server's, and the GPUs that its runs wait for are those of this machine (`flows.slots`). Beside the
worker, a thread looks for runs that give no sign of life (`flows.leftovers`).
"""

import argparse
import os
import runpy
import sys
import threading
import time

import httpx
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.workers.base import BaseWorker

from flows import leftovers, slots
from infra import deployments
from rrf import service_guard, workspace
from rrf.prefect_plugin import refusal

LIMIT = "RRF_WORKER_LIMIT"
_LOOK_S = 15.0


def limit(spare: int) -> int:
    """How many flows run here at once: as RRF_WORKER_LIMIT says, or else one for each GPU and
    `spare`.

    Raises:
        ValueError: If the variable is no such number.
    """
    given = os.environ.get(LIMIT, "")
    if given and not (given.isdecimal() and int(given)):
        raise ValueError(f"{LIMIT}={given} is no number of runs; type, for instance: {LIMIT}=4")
    return int(given) if given else slots.num_gpus() + spare


def watch(silent_s: float) -> None:
    """Set runs that give no sign of life to Crashed, for ever."""
    runs = leftovers.SilentRuns(silent_s)
    while True:
        runs.look(time.monotonic())
        time.sleep(_LOOK_S)


def resume_after_the_process() -> None:
    """Let a run that is resumed before its suspended process has ended wait until then.

    Prefect's worker (3.8) would end with "this borrower is already holding one of this
    CapacityLimiter's tokens", and all its runs with it.
    """
    submit = BaseWorker._submit_scheduled_flow_runs

    async def submit_others(
        self: BaseWorker, flow_run_response: list[WorkerFlowRunResponse]
    ) -> list[FlowRun]:
        running = self._limiter.statistics().borrowers if self._limiter else ()
        return await submit(
            self, [each for each in flow_run_response if each.flow_run.id not in running]
        )

    BaseWorker._submit_scheduled_flow_runs = submit_others


def main() -> None:
    """Become the worker.

    Raises:
        ValueError: If a variable is wrong, none names the server, or it does not answer.
        OSError: If there is no such file of certificates.
    """
    parser = argparse.ArgumentParser("python -m infra.worker", description=main.__doc__)
    parser.add_argument(
        "--spare", type=int, default=1, help="so many runs more than GPUs, e.g. for the night"
    )
    spare = parser.parse_args().spare
    if not os.environ.get("PREFECT_API_URL"):
        raise ValueError("which server? type: export PREFECT_API_URL=http://HOST:4200/api")
    start = ["prefect", "worker", "start", "--pool", deployments.POOL, "--type", "process"]
    sys.argv = [*start, "--limit", str(limit(spare)), "--name", slots.machine()]
    service_guard.certificates(service_guard.PREFECT_CERTIFICATES)
    try:
        slots.create(slots.gpu_limit(), slots.num_gpus())
    except httpx.HTTPError as error:
        raise ValueError(refusal(error, os.environ["PREFECT_API_URL"])) from error
    home = str(workspace.home())
    os.environ.update({"RRF_HOME": home, "PYTHONPATH": home, slots.MACHINE: slots.machine()})
    os.chdir(home)
    threading.Thread(target=watch, args=(deployments.SILENT_S,), daemon=True).start()
    resume_after_the_process()
    runpy.run_module("prefect", run_name="__main__")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        raise SystemExit(str(error)) from None
