"""Which environment process plays which job.

Every task has a home, the process that plays it as a rule: it then loads only its share of the
tasks, draws more images of one scene in a launch, and resets an initial state once for a whole
group. A process with nothing left at home takes half of what waits for the others.
"""

from rrf.storage.trajectories import Job


class Dispatcher:
    """Remembers the homes of tasks."""

    def __init__(self, num_workers: int):
        self._num_workers = num_workers
        self._homes: dict[str, int] = {}  # task -> worker

    def pick(self, waiting: list[Job], worker: int, count: int) -> list[Job]:
        """Remove up to `count` jobs for a worker (by number) from `waiting`, the oldest first."""
        at_home = [job for job in waiting if self._home(job.initial_state.task) == worker]
        picked = (at_home or waiting[len(waiting) // 2 :])[: max(count, 0)]
        ids = {job.id for job in picked}
        waiting[:] = [job for job in waiting if job.id not in ids]
        return picked

    def _home(self, task: str) -> int:
        """New tasks go to the processes in turn."""
        return self._homes.setdefault(task, len(self._homes) % self._num_workers)
