"""The state of a round of play: which episodes are unfinished, and what they have been through.

Who plays them, and where, does not matter here.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch

from rrf.data.dataset.history import HistoryBuffer
from rrf.data.dataset.sampling import mixed_seed
from rrf.data.schema import Observation
from rrf.envs.observations import digest, from_plain, join, rows_of
from rrf.orchestra.dispatch import Dispatcher
from rrf.policies.policy import Sample
from rrf.runners.vla_rl.early_stop import EarlyStop
from rrf.runners.vla_rl.job_sources import JobSource
from rrf.storage.trajectories import Job, PlayedEpisode


@dataclasses.dataclass
class Playing:
    """An unfinished episode."""

    job: Job
    generator: torch.Generator
    reset_digest: str
    history: HistoryBuffer
    decisions: list[tuple[Observation | None, Sample, int]] = dataclasses.field(
        default_factory=list
    )  # the observations of a batch, the sample for it, the row of this episode
    rewards: list[float] = dataclasses.field(default_factory=list)
    steps: list[int] = dataclasses.field(default_factory=list)
    step_rewards: list[np.ndarray] = dataclasses.field(default_factory=list)
    steps_to_success: int | None = None
    was_tested: bool = False  # for hope
    weight: float = 1.0


class Game:
    """The state of one call of `play`."""

    def __init__(
        self,
        source: JobSource,
        dispatcher: Dispatcher,
        stream: tuple[int, ...],
        greedy: bool,
        keeps: bool,
        new_history: Callable[[], HistoryBuffer],
        early_stop: EarlyStop | None,
    ):
        self._new_history, self._early_stop = new_history, early_stop
        self.greedy, self.keeps = greedy, keeps
        self.finals: list[tuple[PlayedEpisode, Observation]] = []
        self._source, self._dispatcher, self._stream = source, dispatcher, stream
        self._waiting: list[Job] = []
        self._playing: dict[int, Playing] = {}  # by job id

    def take(self, worker: int, count: int) -> list[Job]:
        """Up to `count` jobs that a worker shall start now."""
        self._waiting += self._source.take()
        return self._dispatcher.pick(self._waiting, worker, count)

    @property
    def has_waiting(self) -> bool:
        """Whether jobs wait for a worker."""
        return bool(self._waiting)

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Drop the unfinished episodes of these jobs and play them again, before other jobs."""
        for job in jobs:
            self._playing.pop(job.id, None)
        self._waiting[:0] = jobs

    def playing_of(self, job: Job, observation: Observation, row: int) -> Playing:
        """The unfinished episode of a job; a new one if this is its first observation."""
        if job.id not in self._playing:
            self._playing[job.id] = Playing(
                job=job,
                generator=torch.Generator().manual_seed(mixed_seed(*self._stream, job.id)),
                reset_digest=digest(observation, row),
                history=self._new_history(),
            )
        return self._playing[job.id]

    def note_result(self, result: dict, version: int) -> None:
        """Record the result of an episode's last chunk."""
        playing = self._playing[result["id"]]
        playing.rewards.append(result["reward"])
        playing.steps.append(result["steps"])
        if "rewards" in result:
            playing.step_rewards.append(result["rewards"])
        if result["success"] and playing.steps_to_success is None:
            playing.steps_to_success = sum(playing.steps)
        if result["is_over"]:
            if "final" in result:
                result["seen"] = playing.history.seen(from_plain(result["final"]))
            self.end(playing, result, version)

    def gives_up(self, playing: Playing, has_critic: bool) -> bool:
        """Whether an episode that needs its next actions is to end instead."""
        early_stop, job = self._early_stop, playing.job
        if early_stop is None or playing.was_tested or not playing.steps:
            return False
        if not early_stop.is_hopeless(job.initial_state.task, len(playing.steps)):
            return False
        playing.was_tested = True
        if early_stop.goes_on(self._stream, job.id):
            playing.weight = 1.0 if has_critic else 1 / early_stop.cfg.continued
            return False
        return True

    def end(self, playing: Playing, result: dict, version: int) -> None:
        """Report a finished episode; `seen` of the result is the observation that it ended in."""
        episode = _finished(self._playing.pop(playing.job.id), result, version)
        if "seen" in result:
            self.finals.append((episode, result["seen"]))
        self._source.report(episode)


def _finished(playing: Playing, result: dict, version: int) -> PlayedEpisode:
    """The record of a finished episode."""
    observations = [
        rows_of(observation, [row])
        for observation, _, row in playing.decisions
        if observation is not None
    ]
    samples = [(sample, row) for _, sample, row in playing.decisions]
    num_rows = len(samples)
    log_probs = [s.log_prob[row] for s, row in samples if s.log_prob is not None]
    values = [s.value[row] for s, row in samples if s.value is not None]
    return PlayedEpisode(
        job=playing.job,
        observation=join(observations) if observations else None,
        replay={
            name: torch.stack([sample.replay[name][row] for sample, row in samples])
            for name in samples[0][0].replay
        },
        log_prob=torch.stack(log_probs) if log_probs else torch.zeros(num_rows, 0),
        value=torch.stack(values) if values else torch.full((num_rows, 1), torch.nan),
        reward=np.array(playing.rewards, np.float32),
        steps=np.array(playing.steps, np.int64),
        success=result["success"],
        truncated=result["truncated"],
        final_value=float("nan"),
        policy_version=version,
        reset_digest=playing.reset_digest,
        recording=result.get("recording"),
        stopped_early=result.get("stopped_early", False),
        weight=playing.weight,
        step_reward=np.concatenate(playing.step_rewards) if playing.step_rewards else None,
        success_at_end=result.get("success_at_end", result["success"]),
        steps_to_success=playing.steps_to_success,
    )
