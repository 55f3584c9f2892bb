"""What a round played, so that a simulation can play it again with other processes.

Which episodes follow which does not depend on timing: those of a group's next stage wait for all of
its earlier ones, and a group that was drawn in place of another waits for the end of that one.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence

from rrf.envs.vec_env import InitialState
from rrf.runners.vla_rl.job_sources import GroupRound
from rrf.storage.trajectories import Job


@dataclasses.dataclass(frozen=True)
class PlayedGroup:
    """A group of a round."""

    task: str
    chunks: Sequence[int]  # of each episode that was played
    instead_of: int | None = None  # the number of the group whose end let this one begin


@dataclasses.dataclass(frozen=True)
class Workload:
    """The groups of a round, in the order in which they were drawn."""

    stages: Sequence[int]  # numbers of episodes; a group that has played so many may play on
    groups: Sequence[PlayedGroup]
    tasks: Sequence[str] = ()  # in the order in which they were given to processes

    @classmethod
    def of(cls, source: GroupRound, tasks: Sequence[str] = ()) -> "Workload":
        """What was played."""
        groups = [
            PlayedGroup(
                group.initial_state.task,
                [len(group.episodes[job_id]) for job_id in sorted(group.episodes)],
                group.instead_of,
            )
            for group in source.begun
        ]
        return cls(source.stages, groups, tasks)

    @classmethod
    def from_dict(cls, saved: Mapping[str, typing.Any]) -> "Workload":
        """The inverse of `dataclasses.asdict`."""
        groups = [PlayedGroup(**group) for group in saved["groups"]]
        return cls(saved["stages"], groups, saved["tasks"])

    @property
    def num_episodes(self) -> int:
        return sum(len(group.chunks) for group in self.groups)

    @property
    def num_chunks(self) -> int:
        return sum(sum(group.chunks) for group in self.groups)


class Replay:
    """The jobs of a workload, in the order in which they become free to play."""

    def __init__(self, workload: Workload):
        self._stages, self._groups = workload.stages, workload.groups
        self._ended = [0] * len(self._groups)  # episodes of each group
        self._waiting: list[Job] = []
        for number, group in enumerate(self._groups):
            if group.instead_of is None:
                self._begin_next_stage(number)

    def take(self) -> list[Job]:
        """New jobs that may start now."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def chunks_of(self, job: Job) -> int:
        """How many chunks its episode had."""
        return self._groups[job.group].chunks[job.id - job.group * self._stages[-1]]

    def report(self, job: Job) -> None:
        """Called when an episode has ended."""
        number = job.group
        self._ended[number] += 1
        if self._ended[number] == len(self._groups[number].chunks):
            for later, group in enumerate(self._groups):
                if group.instead_of == number:
                    self._begin_next_stage(later)
        elif self._ended[number] in self._stages:
            self._begin_next_stage(number)

    def _begin_next_stage(self, number: int) -> None:
        """Let a group play its next stage."""
        group, begin = self._groups[number], self._ended[number]
        end = next(stage for stage in self._stages if stage > begin)
        state = InitialState(group.task, 0, number)
        first = number * self._stages[-1]
        self._waiting.extend(
            Job(first + member, number, state)
            for member in range(begin, min(end, len(group.chunks)))
        )
