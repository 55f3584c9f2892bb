"""The inline backend: rollout and actor run in this process, environment roles in worker processes.

A worker process that dies or hangs is replaced, and its unfinished episodes are played again. An
episode depends only on its job and the weights. Therefore neither a replacement nor the number of
processes changes the played episodes.
"""

import collections
import contextlib
import dataclasses
import os
import time
import typing
from collections.abc import Callable, Sequence

import numpy as np
import torch

from rrf.data.dataset.history import HistoryBuffer, history_of
from rrf.data.schema import Observation
from rrf.envs.observations import from_plain, join, rows_of
from rrf.envs.process.child import ChildError
from rrf.envs.vec_env import check_actions
from rrf.orchestra.dispatch import Dispatcher, num_wanted
from rrf.orchestra.env_workers import LocalProcesses, Processes, Worker
from rrf.orchestra.game import Game, Playing
from rrf.policies.policy import Sample
from rrf.runners.interruption import StopRequestedError
from rrf.runners.vla_rl.call_costs import CallCosts
from rrf.runners.vla_rl.early_stop import EarlyStop
from rrf.runners.vla_rl.job_sources import JobSource
from rrf.runners.vla_rl.timeline import Layout, Timeline

ENV_ROLE = "rrf.orchestra.env_role:EnvRole"
_FIRST_ANSWER_S = 600.0  # the first image on a machine compiles kernels
_MAX_RESTARTS = 3  # consecutive restarts without a finished episode


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
    @property
    def sees_success(self) -> bool: ...
    def act(
        self, observation: Observation, generators: Sequence[torch.Generator] | None
    ) -> Sample: ...


@dataclasses.dataclass
class Asking:
    """A worker, and the episodes that it needs actions for."""

    worker: Worker
    playing: list[Playing]
    observation: Observation


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
        self.timeline, self.calls = Timeline(), CallCosts()
        self.layout = Layout([0] * num_workers, [0], [len(os.sched_getaffinity(0))])
        arguments = {
            "cfg": cfg.replace(num_envs=cfg.num_envs // num_workers).to_dict(),
            "keeps_final": rollout.sees_end,
            **({"keeps_success": True} if rollout.sees_success else {}),
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
            self._driver_since_s = time.time()
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
            self.timeline.add("driver", "bookkeeping", self._driver_since_s, time.time())
        self._bootstrap(game)
        self._driver_s += time.thread_time() - begin_s

    def _wait(self, busy: Sequence[Worker], game: Game) -> list:
        """The children of these workers that have an answer; waits up to a second for one."""
        return self._processes.ready([worker.child for worker in busy], 1.0)

    def _new_history(self) -> HistoryBuffer:
        return history_of(self.rollout.policy, self._chunk_length)

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

    def _feed_idle(self, game: Game) -> bool:
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

    def _receive(self, worker: Worker, game: Game) -> Asking | None:
        """Receive a worker's results and what it needs actions for; None if it is idle."""
        answer = worker.child.result()
        self.timeline.add_answer(f"env {worker.number}", answer["worked"], worker.asked_s)
        worker.is_new = worker.is_called = False
        if answer["results"]:
            _, _, parts = answer["worked"]
            spent_s = parts.get("physics", 0.0) + parts.get("rendering", 0.0)
            self.calls.add(len(answer["results"]), spent_s)
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
        if playing[0].history:
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
        self._send_next(
            worker, np.zeros((0, self._chunk_length, self._action_dim), np.float32), game
        )
        return None

    def _is_stopped(self, playing: Playing, observation: Observation, row: int, game: Game) -> bool:
        """Whether an episode, which is at a row of the observation, ends here without hope."""
        if not game.gives_up(playing, has_critic=self.rollout.sees_end):
            return False
        result: dict = {"success": False, "truncated": True, "stopped_early": True}
        if self.rollout.sees_end:
            result["seen"] = rows_of(observation, [row])
        game.end(playing, result, self.rollout.version)
        return True

    def _answer(self, asking: Sequence[Asking], game: Game) -> None:
        """Choose the next actions of these workers together, and send them."""
        if not asking:
            return
        observation = join([asked.observation for asked in asking])
        begin_s = time.time()
        self.timeline.add("driver", "bookkeeping", self._driver_since_s, begin_s)
        sample = self._act(observation, generators_of(asking, game))
        self._driver_since_s = time.time()
        self.timeline.add("rollout 0", "inference", begin_s, self._driver_since_s)
        self._advance(asking, observation, sample, game)

    def _act(self, observation: Observation, generators: list[torch.Generator] | None) -> Sample:
        """Choose actions; that time is the rollout's and not the driver's."""
        begin_s = time.thread_time()
        sample = self.rollout.act(observation, generators)
        self._driver_s -= time.thread_time() - begin_s
        return sample

    def _advance(
        self, asking: Sequence[Asking], observation: Observation, sample: Sample, game: Game
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
                self._send_next(asked.worker, actions[start:end], game)
            except ChildError as error:
                self._replace(asked.worker, game, error)
            start = end

    def _send_next(self, worker: Worker, actions: np.ndarray, game: Game) -> None:
        """Send a worker its next chunks, and jobs for its free slots."""
        jobs = game.take(worker.number, num_wanted(self._num_slots, len(worker.jobs)))
        if worker.jobs or jobs:
            worker.advance(actions, jobs)

    def _replace(self, worker: Worker, game: Game, error: ChildError) -> None:
        """Replace a process that died or hung; its unfinished episodes are played again."""
        self.num_restarts += 1
        if worker.num_restarts >= _MAX_RESTARTS:
            raise ChildError(
                f"{worker.name} was restarted {_MAX_RESTARTS} times and failed again. The last "
                f"error: {error}"
            ) from error
        game.put_back(worker.restart())

    def _bootstrap(self, game: Game) -> None:
        """Set what critics bootstrap from: the greedy choice in the last observation of truncated
        episodes, and its value."""
        if not game.finals:
            return
        sample = self._act(join([final for _, final in game.finals]), None)
        for row, (episode, _) in enumerate(game.finals):
            episode.final_replay = {name: values[row] for name, values in sample.replay.items()}
            if sample.value is not None:
                episode.final_value = sample.value[row, 0].item()


def generators_of(asking: Sequence[Asking], game: Game) -> list[torch.Generator] | None:
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
