"""The inline backend: rollout and actor run in this process, environment roles in worker processes.

A worker process that dies or hangs is replaced, and its unfinished episodes are played again. An
episode depends only on its job and the weights. Therefore neither a replacement nor the number of
processes changes the played episodes.
"""

import collections
import contextlib
import dataclasses
import multiprocessing.connection
import os
import time
import typing
from collections.abc import Callable, Sequence

import numpy as np
import torch

from rrf.data.history import HistoryBuffer, past_of
from rrf.data.sampling import mixed_seed
from rrf.data.schema import Observation
from rrf.envs.observations import digest, join, rows_of
from rrf.envs.process.child import Child, ChildError, close_all
from rrf.envs.vec_env import check_actions
from rrf.orchestra.dispatch import Dispatcher
from rrf.orchestra.env_role import from_plain
from rrf.policies.policy import Sample
from rrf.runners.interruption import StopRequestedError
from rrf.runners.vla_rl.early_stop import EarlyStop
from rrf.runners.vla_rl.job_sources import JobSource
from rrf.runners.vla_rl.timeline import Layout, Timeline
from rrf.storage.trajectories import Job, PlayedEpisode

ENV_ROLE = "rrf.orchestra.env_role:EnvRole"
_FIRST_ANSWER_S = 600.0  # the first image on a machine compiles kernels
_MAX_RESTARTS = 3  # consecutive restarts without a finished episode
_SPARE_SHARE = 4  # a process gets one spare job per four slots, so that no slot stays empty


class Rollout(typing.Protocol):
    """Chooses actions; see `rrf.orchestra.rollout_role.RolloutRole`."""

    policy: typing.Any
    batch_rows: int
    version: int
    sync_bytes: int
    num_passes: int
    inference_s: float

    @property
    def sees_end(self) -> bool: ...
    def act(
        self, observation: Observation, generators: Sequence[torch.Generator] | None
    ) -> Sample: ...


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
        found = multiprocessing.connection.wait(connections, timeout=timeout_s)
        return [child for child in children if child.connection in found]

    def close(self, children: Sequence[Child]) -> None:
        """See `Processes.close`."""
        close_all(children)


class InlineBackend:
    """Plays jobs with `num_workers` environment processes, which run until `close`."""

    in_process: typing.ClassVar[tuple[str, ...]] = ("inference", "driver")
    """Those of `timings` that this process spends."""

    def __init__(
        self,
        cfg,
        rollout: Rollout,
        num_workers: int,
        timeout_s: float = 60.0,
        role: str = ENV_ROLE,
        processes: Processes | None = None,
        **role_arguments,
    ):
        """
        Args:
            cfg: Config of the vector environment; `num_envs` is the total number of slots.
            rollout: Chooses the actions.
            num_workers: Number of processes; `num_envs` must be divisible by it.
            timeout_s: Time limit for one chunk; a process that takes longer counts as hung. The
                first answer may take ten minutes, because kernels are compiled once per machine.
            role: The environment role of the processes, "module:Class".
            processes: Where the roles run; None for child processes.
            role_arguments: More arguments of the role, as JSON data.

        Raises:
            ValueError: If the slots cannot be divided evenly among the processes.
        """
        check_division(cfg.num_envs, num_workers)
        self.rollout: typing.Any = rollout
        self._driver_s = 0.0
        self.num_restarts = 0
        self.timeline = Timeline()
        self.layout = Layout([0] * num_workers, [0], [len(os.sched_getaffinity(0))])
        arguments = {
            "cfg": cfg.replace(num_envs=cfg.num_envs // num_workers).to_dict(),
            "keeps_final": rollout.sees_end,
            **role_arguments,
        }
        self._num_slots = cfg.num_envs // num_workers
        self._processes = processes or LocalProcesses()
        self._workers = [
            Worker(self._processes, number, num_workers, role, arguments, timeout_s)
            for number in range(num_workers)
        ]
        self._dispatcher = Dispatcher(num_workers)
        self._chunk_length, self._action_dim = cfg.chunk_length, rollout.policy.action_dim

    def play(
        self,
        source: JobSource,
        stream: Sequence[int],
        *,
        greedy: bool = False,
        keeps: bool = True,
        should_stop: Callable[[], bool] = lambda: False,
        early_stop: EarlyStop | None = None,
    ) -> None:
        """Play the jobs of `source` until it has none left, and report every episode to it.

        Args:
            source: Decides which jobs are played.
            stream: Numbers that, together with a job's id, seed the randomness of its episode.
            greedy: Act with the policy's mode.
            keeps: Whether episodes keep their observations. Without them, episodes need little
                memory, but cannot be trained on.
            should_stop: Called about once a second, and after every answer of a process.
            early_stop: Ends episodes that have no hope; None plays all to their ends.

        Raises:
            StopRequestedError: If `should_stop()` returned true. Afterwards the backend can only be
                closed.
            ValueError: For an action that is NaN or Inf, or for a job that the environment refuses.
            ChildError: If a process dies or hangs repeatedly.
        """
        begin_s = time.thread_time()
        game = Game(
            source, self._dispatcher, tuple(stream), greedy, keeps, self._new_history, early_stop
        )
        while self._feed_idle(game):
            if should_stop():
                raise StopRequestedError
            busy = [worker for worker in self._workers if worker.is_called]
            ready = self._wait(busy, game)
            self._awake_s = time.time()
            asking: list[Asking] = []
            for worker in busy:
                try:
                    if worker.child not in ready:
                        worker.check_alive()
                    elif asked := self._receive(worker, game):
                        asking.append(asked)
                except ChildError as error:
                    self._replace(worker, game, error)
                if sum(len(a.playing) for a in asking) >= self.rollout.batch_rows:
                    self._answer(asking, game)
                    asking = []
            self._answer(asking, game)
            self.timeline.add("driver", "bookkeeping", self._awake_s, time.time())
        self._bootstrap(game)
        self._driver_s += time.thread_time() - begin_s

    def _wait(self, busy: "Sequence[Worker]", game: "Game") -> list:
        """The children of these workers that have an answer; waits up to a second for one."""
        return self._processes.ready([worker.child for worker in busy], 1.0)

    def _new_history(self) -> HistoryBuffer:
        return HistoryBuffer(past_of(self.rollout.policy), self._chunk_length)

    def close(self) -> None:
        """End the processes. Calling it twice is allowed."""
        self._processes.close([worker.child for worker in self._workers])

    def timings(self) -> dict[str, float]:
        """Seconds spent so far. Must not be called while playing.

        "inference" is the time for choosing actions; see `RolloutRole.inference_s`. "driver" is the
        CPU time for everything else in this process while it plays. The others (resets, physics,
        rendering) are CPU times, summed over the environment processes that are alive.
        """
        spent = {"inference": self.rollout.inference_s, "driver": self._driver_s}
        total = collections.defaultdict[str, float](float, spent)
        for worker in self._workers:
            with contextlib.suppress(ChildError):  # the next round replaces it
                worker.child.send("cpu_s")
                for name, seconds in worker.child.result().items():
                    total[name] += seconds
        return dict(total)

    def pids(self) -> list[int]:
        """The process ids of the environment processes."""
        return [worker.child.pid for worker in self._workers]

    def _feed_idle(self, game: "Game") -> bool:
        """Give jobs to idle workers; returns whether any job is waiting or running."""
        for worker in self._workers:
            if not worker.jobs:
                jobs = game.take(worker.number, self._num_slots)
                if jobs:
                    try:
                        worker.start(jobs)
                    except ChildError as error:
                        self._replace(worker, game, error)
        return game.has_waiting or any(worker.jobs for worker in self._workers)

    def _receive(self, worker: "Worker", game: "Game") -> "Asking | None":
        """Receive a worker's results and what it needs actions for; None if it is idle."""
        answer = worker.child.result()
        self.timeline.add_answer(f"env {worker.number}", answer["worked"], worker.asked_s)
        worker.is_new = worker.is_called = False
        for result in answer["results"]:
            if result["is_over"]:
                del worker.jobs[result["id"]]
                worker.num_restarts = 0
            game.note_result(result, self.rollout.version)
        worker.ids = answer["ids"]
        if not worker.ids:
            assert not worker.jobs, "a worker forgot jobs"
            return None
        observation = from_plain(answer)
        playing = [
            game.playing_of(worker.jobs[job_id], observation, row)
            for row, job_id in enumerate(worker.ids)
        ]
        if past_of(self.rollout.policy):
            rows = (rows_of(observation, [row]) for row in range(len(playing)))
            seen = zip(playing, rows, strict=True)
            observation = join([episode.history.seen(row) for episode, row in seen])
        kept = [
            row
            for row, episode in enumerate(playing)
            if not self._is_stopped(episode, observation, row, game)
        ]
        if len(kept) < len(playing):
            worker.stop([playing[row].job for row in range(len(playing)) if row not in kept])
            playing = [playing[row] for row in kept]
            observation = rows_of(observation, kept)
        if playing:
            return Asking(worker, playing, observation)
        self._go_on(worker, np.zeros((0, self._chunk_length, self._action_dim), np.float32), game)
        return None

    def _is_stopped(
        self, playing: "Playing", observation: Observation, row: int, game: "Game"
    ) -> bool:
        """Whether an episode, which is at a row of the observation, ends here without hope."""
        if not game.gives_up(playing, has_critic=self.rollout.sees_end):
            return False
        result: dict = {"success": False, "truncated": True, "stopped_early": True}
        if self.rollout.sees_end:
            result["seen"] = rows_of(observation, [row])
        game.end(playing, result, self.rollout.version)
        return True

    def _answer(self, asking: "Sequence[Asking]", game: "Game") -> None:
        """Choose the next actions of these workers together, and send them."""
        if not asking:
            return
        observation = join([asked.observation for asked in asking])
        begin_s, spent_s = time.time(), time.thread_time()
        self.timeline.add("driver", "bookkeeping", self._awake_s, begin_s)
        sample = self.rollout.act(observation, generators_of(asking, game))
        self._awake_s = time.time()
        self.timeline.add("rollout 0", "inference", begin_s, self._awake_s)
        self._driver_s -= time.thread_time() - spent_s
        self._advance(asking, observation, sample, game)

    def _advance(
        self, asking: "Sequence[Asking]", observation: Observation, sample: Sample, game: "Game"
    ) -> None:
        """Send the chosen actions."""
        playing = [episode for asked in asking for episode in asked.playing]
        actions = sample.actions[:, : self._chunk_length]
        ids = [job_id for asked in asking for job_id in asked.worker.ids]
        check_actions(actions, ids, self._chunk_length, self._action_dim)
        for row, episode in enumerate(playing):
            episode.decisions.append((observation if game.keeps else None, sample, row))
        start = 0
        for asked in asking:
            end = start + len(asked.playing)
            try:
                self._go_on(asked.worker, actions[start:end], game)
            except ChildError as error:
                self._replace(asked.worker, game, error)
            start = end

    def _go_on(self, worker: "Worker", actions: np.ndarray, game: "Game") -> None:
        """Send a worker its next chunks, and jobs for its free slots."""
        wanted = self._num_slots + self._num_slots // _SPARE_SHARE - len(worker.jobs)
        jobs = game.take(worker.number, wanted)
        if worker.jobs or jobs:
            worker.advance(actions, jobs)

    def _replace(self, worker: "Worker", game: "Game", error: ChildError) -> None:
        """Replace a process that died or hung; its unfinished episodes are played again."""
        self.num_restarts += 1
        if worker.num_restarts >= _MAX_RESTARTS:
            raise ChildError(
                f"{worker.name} was restarted {_MAX_RESTARTS} times and failed again. The last "
                f"error: {error}"
            ) from error
        game.put_back(worker.restart())

    def _bootstrap(self, game: "Game") -> None:
        """Set what critics bootstrap from: the greedy choice in the last observation of truncated
        episodes, and its value."""
        if not game.finals:
            return
        sample = self.rollout.act(join([final for _, final in game.finals]), None)
        for row, (episode, _) in enumerate(game.finals):
            episode.final_replay = {name: values[row] for name, values in sample.replay.items()}
            if sample.value is not None:
                episode.final_value = sample.value[row, 0].item()


def generators_of(asking: "Sequence[Asking]", game: "Game") -> list[torch.Generator] | None:
    """The random generators of the rows; None if actions are greedy."""
    if game.greedy:
        return None
    return [episode.generator for asked in asking for episode in asked.playing]


def check_division(num_envs: int, num_workers: int, name: str = "num_workers") -> None:
    """Check that every worker gets the same number of slots.

    Args:
        num_envs: Slots.
        num_workers: Workers.
        name: What the number of workers is called in the error.

    Raises:
        ValueError: If not. The message suggests numbers that fit.
    """
    if num_workers >= 1 and num_envs % num_workers == 0:
        return
    below = num_envs // max(num_workers, 1) * num_workers
    fitting = [number for number in (below, below + num_workers) if number > 0]
    raise ValueError(
        f"num_envs={num_envs} cannot be divided evenly among {name}={num_workers}; set "
        f"num_envs={' or '.join(map(str, fitting)) or 2}"
    )


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
    was_tested: bool = False  # for hope
    weight: float = 1.0


@dataclasses.dataclass
class Asking:
    """A worker, and the episodes that it needs actions for."""

    worker: "Worker"
    playing: list[Playing]
    observation: Observation


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
        """Give jobs to an idle process."""
        self._send("start", jobs)

    def stop(self, jobs: Sequence[Job]) -> None:
        """End the episodes of these jobs with the next call."""
        self._stopped = [job.id for job in jobs]
        self.ids = [job_id for job_id in self.ids if job_id not in self._stopped]
        for job_id in self._stopped:
            del self.jobs[job_id]

    def advance(self, actions: np.ndarray, jobs: Sequence[Job]) -> None:
        """Send the next chunk for the jobs in `ids`, and new jobs."""
        self._send("advance", jobs, actions)

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
        stopped, self._stopped = self._stopped, []
        self.child.send(method, *arguments, plain, *([stopped] if stopped else []))
        self.is_called = True


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
    )
