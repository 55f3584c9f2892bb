"""A worker, or the server of the flows, killed while a flow trains.

The services are those of `rrf services up`, in a copy of the checkout; all seeds have the same
ones. The flow trains as ours do, with a counter as policy, and says at which step each start began.
It goes on without the worker, asks again while the server is away, or becomes Crashed and is run
again as a user does it; then it must have trained once, to its end.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import yaml

from tests.faults.kills import Harmed, Survival, Trial
from tests.flows.conftest import ROOT, Checkout, copy_checkout
from tests.waiting import wait_for

_STEPS, _PATIENCE_S = 40, 900.0
_FINAL = ("Completed", "Crashed", "Failed", "Cancelled")
_START = """
import sys
from infra import services
port = services.prefect_port()
worker, server = services.worker_service(), services.prefect_service(port)
service = worker if sys.argv[1] == "worker" else server
services.launch(service, services.environment(port))
if service.port:
    services.wait_until_healthy(service, lambda: services.is_running(service))
"""


class WorkerKilled(Harmed):
    """The worker; the next one is started at once."""

    name = "kill -9 of the worker of the flows"
    service = "worker"

    def trial(self, folder: Path) -> "ServiceTrial":
        return ServiceTrial(self, folder)

    def prepare(self, home: Path) -> None:
        copy_checkout(home)
        file = home / "infra/prefect.yaml"
        described = yaml.safe_load(file.read_text())
        described["deployments"] = yaml.safe_load((ROOT / "tests/flows/standins.yaml").read_text())
        for deployment in described["deployments"]:
            deployment.pop("schedules", None)
        file.write_text(yaml.safe_dump(described))
        code = home / "infra/deployments.py"
        code.write_text(code.read_text().replace("SILENT_S = 240", "SILENT_S = 75"))


class ServerKilled(WorkerKilled):
    """The Prefect server, with its database; it is started again at once."""

    name = "kill -9 of the Prefect server"
    service = "prefect"


class ServiceTrial(Trial):
    """The services in a copy of the checkout, until `close`."""

    def __init__(self, case: WorkerKilled, folder: Path):
        self._service, self._runs, self._killed_cpu_s = case.service, 0, 0.0
        super().__init__(case, folder)

    def _undisturbed_s(self) -> float:
        self._live = Checkout(self.home)
        self._live.run(sys.executable, "-m", "infra.services", "up")
        began = time.monotonic()
        self._end(*self._begin())
        return time.monotonic() - began

    def close(self) -> None:
        self._live.run(sys.executable, "-m", "infra.services", "down")

    def _harm(self, rng: random.Random, survival: Survival) -> None:
        run, checkpoint = self._begin()
        after_s = rng.random() * self.usual_s
        time.sleep(after_s)
        pid = self._pid(self._service)
        self._killed_cpu_s += _cpu_s_of(pid)
        os.kill(pid, signal.SIGKILL)
        survival.moments_s, survival.kills = [round(after_s, 3)], 1
        self._live.run(sys.executable, "-c", _START, self._service)
        self._end(run, checkpoint)

    def _cpu_s(self) -> float:
        """Also of the services, and of the flows that a worker has seen end."""
        pids = [self._pid(name) for name in ("worker", "prefect")]
        return super()._cpu_s() + self._killed_cpu_s + sum(map(_cpu_s_of, pids))

    def _pid(self, service: str) -> int:
        return json.loads((self.home / f".rrf/pids/{service}.json").read_text())["pid"]

    def _begin(self) -> tuple[str, Path]:
        self._runs += 1
        checkpoint = self.home / f"checkpoint-{self._runs}.json"
        return self._live.start("training", checkpoint=str(checkpoint), steps=_STEPS), checkpoint

    def _end(self, run: str, checkpoint: Path) -> None:
        """Wait for the end of a run, again if it has crashed, and look at what it did."""
        for _ in range(3):
            self._live.wait_for_state(run, *_FINAL, timeout_s=_PATIENCE_S)
            if (name := self._live.state_of(run)) != "Crashed":
                break
            self._live.run("prefect", "flow-run", "retry", run)
        assert name == "Completed", f"the run is {name}"
        state = json.loads(checkpoint.read_text())
        assert state["step"] == _STEPS, f"it ended at step {state['step']} of {_STEPS}"
        assert state["starts"] == sorted(state["starts"]), f"it began at {state['starts']}"
        wait_for(lambda: not _trains(checkpoint), _PATIENCE_S, lambda: "it trains twice")
        assert json.loads(checkpoint.read_text()) == state, "it was trained again after its end"
        found = self._live.flow_runs("training")
        assert len(found) == self._runs, f"{len(found)} runs instead of {self._runs}"


def _cpu_s_of(pid: int) -> float:
    """CPU-seconds of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _trains(checkpoint: Path) -> bool:
    """Whether a process trains into this file."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(checkpoint).encode() in path.read_bytes().split(b"\0"):
                return True
        except OSError:  # it has ended
            continue
    return False
