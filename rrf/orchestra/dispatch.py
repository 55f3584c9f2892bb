"""Distributes jobs to environment worker processes.

Every task has a home, the process that normally plays it. Each process therefore loads only its
share of the tasks, renders more images of the same scene in one launch, and resets an initial state
only once for a whole group. A process without waiting jobs of its own takes up to half of the jobs
that wait for the others.
"""

from collections.abc import Sequence

from rrf.storage.trajectories import Job

_SPARE_SHARE = 4  # a process gets one spare job per four slots, so that no slot stays empty


class Dispatcher:
    """Assigns tasks to home processes and picks jobs for each process."""

    def __init__(self, num_workers: int, tasks: Sequence[str] = ()):
        """
        Args:
            num_workers: Number of processes.
            tasks: Tasks to assign already now.
        """
        self._num_workers = num_workers
        self._homes: dict[str, int] = {}  # task -> worker
        for task in tasks:
            self._home(task)

    def pick(self, waiting: list[Job], worker: int, count: int) -> list[Job]:
        """Remove up to `count` jobs from `waiting`, the oldest first, for a worker (a number)."""
        at_home = [job for job in waiting if self._home(job.initial_state.task) == worker]
        picked = (at_home or waiting[len(waiting) // 2 :])[: max(count, 0)]
        ids = {job.id for job in picked}
        waiting[:] = [job for job in waiting if job.id not in ids]
        return picked

    def _home(self, task: str) -> int:
        """The home of a task. New tasks are assigned to the processes in turn."""
        return self._homes.setdefault(task, len(self._homes) % self._num_workers)


def num_wanted(num_slots: int, num_jobs: int) -> int:
    """How many more jobs a busy process should get that has some."""
    return num_slots + num_slots // _SPARE_SHARE - num_jobs
