"""The processes of environment roles as the driver sees them: their jobs, and their answers."""

import multiprocessing.connection
import time
import typing
from collections.abc import Sequence

import numpy as np

from rrf.envs.process.child import Child, ChildError, close_all
from rrf.storage.trajectories import Job

_FIRST_ANSWER_S = 600.0  # the first image on a machine compiles kernels


class Processes(typing.Protocol):
    """Where environment roles run."""

    def start(
        self, number: int, name: str, role: str, arguments: dict, timeout_s: float
    ) -> typing.Any:
        """Start process `number`; returns what has the methods of `Child`."""
        ...

    def ready(self, children: Sequence, timeout_s: float) -> list:
        """Those of the children, each in a call, that have an answer, at the latest after
        `timeout_s`."""
        ...

    def close(self, children: Sequence) -> None:
        """End the children. Calling it twice is allowed."""
        ...


class LocalProcesses:
    """Children of this process."""

    def start(self, number: int, name: str, role: str, arguments: dict, timeout_s: float) -> Child:
        """See `Processes.start`."""
        return Child(role, name, arguments, timeout_s)

    def ready(self, children: Sequence[Child], timeout_s: float) -> list[Child]:
        """See `Processes.ready`."""
        connections = [child.connection for child in children]
        ready = multiprocessing.connection.wait(connections, timeout=timeout_s)
        return [child for child in children if child.connection in ready]

    def close(self, children: Sequence[Child]) -> None:
        """See `Processes.close`."""
        close_all(children)


class Worker:
    """An environment process and its jobs."""

    def __init__(
        self,
        processes: Processes,
        number: int,
        num_workers: int,
        role: str,
        arguments: dict,
        timeout_s: float,
    ):
        self.number = number
        self._processes = processes
        self.name = f"environment worker {number + 1} of {num_workers}"
        self.num_restarts = 0
        self._role, self._arguments = role, arguments
        self._timeout_s = timeout_s
        self._spawn()

    def start(self, jobs: Sequence[Job]) -> None:
        """Give jobs to an idle process, which drops all earlier ones."""
        self._stopped = []
        self._send("start", jobs)

    def stop(self, jobs: Sequence[Job]) -> None:
        """End the episodes of these jobs with the next call."""
        self._stopped = [job.id for job in jobs]
        self.ids = [job_id for job_id in self.ids if job_id not in self._stopped]
        for job_id in self._stopped:
            del self.jobs[job_id]

    def advance(self, actions: np.ndarray, jobs: Sequence[Job]) -> None:
        """Send the next chunk for the jobs in `ids`, and new jobs."""
        stopped, self._stopped = self._stopped, []
        self._send("advance", jobs, actions, stopped)

    def restart(self) -> list[Job]:
        """Start a new process; returns the unfinished jobs of the old one."""
        lost = list(self.jobs.values())
        self.child.kill()
        self.num_restarts += 1
        self._spawn()
        return lost

    def check_alive(self) -> None:
        """Raise ChildError if an answer is overdue."""
        limit = max(self._timeout_s, _FIRST_ANSWER_S) if self.is_new else self._timeout_s
        if time.monotonic() - self._sent_at > limit:
            raise ChildError(
                f"{self.name} (pid {self.child.pid}) gave no answer within {limit:.0f} s"
            )

    def _spawn(self) -> None:
        self.child = self._processes.start(
            self.number, self.name, self._role, self._arguments, self._timeout_s
        )
        self.is_new, self.is_called = True, False
        self.ids: list[int] = []  # ids of the jobs that get the next actions, in order
        self.jobs: dict[int, Job] = {}  # unfinished jobs of this process, by id
        self._stopped: list[int] = []  # ids of those whose episodes the next call ends
        self._sent_at = time.monotonic()

    def _send(self, method: str, jobs: Sequence[Job], *arguments) -> None:
        self.jobs |= {job.id: job for job in jobs}  # before sending, so that a failure returns them
        plain = [
            (job.id, job.initial_state.task, job.initial_state.seed, job.initial_state.index)
            for job in jobs
        ]
        self._sent_at, self.asked_s = time.monotonic(), time.time()
        self.child.send(method, plain, *arguments)
        self.is_called = True
