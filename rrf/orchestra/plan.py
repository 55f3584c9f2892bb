"""Predicts how long a round takes with other processes, before they are started.

A simulation of events plays the episodes of an earlier round again: environment processes execute
chunks of their slots, ask a rollout for the next actions, and wait for it; a rollout answers all
processes that wait, as far as a batch goes. Processes on one node share its cores. What the parts
cost was measured in that round.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from rrf.orchestra.dispatch import Dispatcher, num_wanted
from rrf.runners.vla_rl.timeline import Layout, Span
from rrf.runners.vla_rl.workload import Replay, Workload
from rrf.storage.trajectories import Job

_INSTANT_S = 1e-9


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds of one core."""

    chunk_s: float  # physics and images of one chunk in one slot
    reset_s: float  # the begin of an episode
    inference_s: float  # one forward pass of a batch, however full it is, and what the driver does
    update_s: float  # the update, wall time
    call_s: float = 0.0  # of a call that executes chunks, besides what each chunk costs

    @classmethod
    def of(cls, metrics: Mapping[str, float], workload: Workload) -> "Costs":
        """The costs that a round's metrics say, as result.json has them.

        Raises:
            ValueError: If a metric is missing.
        """
        names = ("time/physics", "time/rendering", "time/reset", "time/inference", "time/driver")
        needed = [*names, "time/update", "time/env_calls"]
        needed += ["rollout/env_calls", "rollout/forward_passes"]
        if missing := [name for name in needed if name not in metrics]:
            raise ValueError(f"the run has no {', '.join(missing)}; train at least one round")
        physics, rendering, reset, inference, driver = (metrics[name] for name in names)
        fixed = metrics["time/env_calls"]
        return cls(
            chunk_s=(physics + rendering - fixed) / workload.num_chunks,
            reset_s=reset / workload.num_episodes,
            inference_s=(inference + driver) / metrics["rollout/forward_passes"],
            update_s=metrics["time/update"],
            call_s=fixed / metrics["rollout/env_calls"],
        )


@dataclasses.dataclass
class Plan:
    """A predicted round."""

    rollout_s: float
    round_s: float
    spans: list[Span]  # of the rollout phase

    def busy(self, process: str) -> float:
        """The share of the rollout phase in which a process works."""
        spent = sum(span.end_s - span.begin_s for span in self.spans if span.process == process)
        return spent / self.rollout_s


def predict(
    costs: Costs, workload: Workload, layout: Layout, num_slots: int, batch_rows: int
) -> Plan:
    """Play a round.

    Args:
        costs: What its parts cost.
        workload: What is played.
        layout: The processes.
        num_slots: Of all environments.
        batch_rows: The largest batch of a rollout.

    Raises:
        ValueError: If the slots cannot be shared evenly by the environment processes.
    """
    if num_slots % len(layout.env):
        raise ValueError(
            f"{num_slots} slots cannot be shared by {len(layout.env)} environment processes"
        )
    spans = list(_Round(costs, workload, layout, num_slots, batch_rows).spans())
    rollout_s = max(span.end_s for span in spans)
    return Plan(rollout_s, rollout_s + costs.update_s, spans)


def propose(
    costs: Costs, workload: Workload, cores: Sequence[int], num_slots: int, batch_rows: int
) -> list[tuple[float, Layout]]:
    """Layouts with the seconds of their rounds, the fastest first: as many environment processes
    per node as divide the slots, and a rollout on one node or on each."""
    nodes, layouts = range(len(cores)), []
    for each, rollouts in itertools.product(range(1, max(cores) + 1), {1, len(cores)}):
        env = [node for node in nodes for _ in range(min(each, cores[node]))]
        if num_slots % len(env) == 0:
            layout = Layout(env, list(nodes)[:rollouts], cores)
            plan = predict(costs, workload, layout, num_slots, batch_rows)
            layouts.append((plan.round_s, layout))
    return sorted(layouts, key=lambda pair: (pair[0], len(pair[1].env)))


@dataclasses.dataclass
class _Env:
    """An environment process."""

    node: int
    running: dict[Job, int] = dataclasses.field(default_factory=dict)  # chunks left to execute
    queue: collections.deque[Job] = dataclasses.field(default_factory=collections.deque)
    ended: list[Job] = dataclasses.field(default_factory=list)  # in the call that it executes
    is_idle: bool = True


@dataclasses.dataclass
class _Task:
    process: str
    activity: str
    node: int
    left_s: float
    begin_s: float
    envs: list[int]  # whom it is for


class _Round:
    def __init__(
        self, costs: Costs, workload: Workload, layout: Layout, num_slots: int, batch_rows: int
    ):
        self._costs, self._layout = costs, layout
        self._batch_rows, self._num_slots = batch_rows, num_slots // len(layout.env)
        self._source = Replay(workload)
        self._dispatcher = Dispatcher(len(layout.env), workload.tasks)
        self._waiting: list[Job] = []
        self._envs = [_Env(node) for node in layout.env]
        self._asking: list[int] = []  # processes that need actions, in order
        self._free = list(range(len(layout.rollout)))
        self._tasks: list[_Task] = []
        self._now_s = 0.0

    def spans(self) -> Iterator[Span]:
        self._feed_idle()
        while self._tasks:
            for task in self._next():
                yield Span(task.process, task.activity, task.begin_s, self._now_s)
                if task.process.startswith("env"):
                    self._receive(*task.envs)
                else:
                    self._free.append(int(task.process.removeprefix("rollout ")))
                    for env in task.envs:
                        self._simulate(env)
            self._feed_idle()
            self._infer()

    def _feed_idle(self) -> None:
        for number, env in enumerate(self._envs):
            if env.is_idle:
                self._simulate(number)

    def _receive(self, number: int) -> None:
        """A process has executed what it was asked."""
        env = self._envs[number]
        for job in env.ended:
            self._source.report(job)
        if env.running:
            self._asking.append(number)
        else:
            env.is_idle = True

    def _simulate(self, number: int) -> None:
        """Execute the chunks that were chosen, and begin episodes in free slots."""
        env = self._envs[number]
        wanted = num_wanted(self._num_slots, len(env.running) + len(env.queue))
        most = self._num_slots if env.is_idle else wanted
        self._waiting += self._source.take()
        env.queue.extend(self._dispatcher.pick(self._waiting, number, most))
        num_chunks = len(env.running)
        env.running = {job: left - 1 for job, left in env.running.items()}
        env.ended = [job for job, left in env.running.items() if not left]
        for job in env.ended:
            del env.running[job]
        begun = 0
        while env.queue and len(env.running) < self._num_slots:
            job = env.queue.popleft()
            env.running[job] = self._source.chunks_of(job)
            begun += 1
        if num_chunks or begun:
            seconds = num_chunks * self._costs.chunk_s + begun * self._costs.reset_s
            seconds += self._costs.call_s if num_chunks else 0.0
            env.is_idle = False
            self._start(f"env {number}", "simulation", env.node, seconds, [number])

    def _infer(self) -> None:
        while self._free and self._asking:
            envs, rows = [], 0
            while self._asking and (
                not envs or rows + len(self._envs[self._asking[0]].running) <= self._batch_rows
            ):
                envs.append(self._asking.pop(0))
                rows += len(self._envs[envs[-1]].running)
            number = self._free.pop(0)
            passes = math.ceil(rows / self._batch_rows)
            seconds = passes * self._costs.inference_s
            node = self._layout.rollout[number]
            self._start(f"rollout {number}", "inference", node, seconds, envs)

    def _start(
        self, process: str, activity: str, node: int, seconds: float, envs: list[int]
    ) -> None:
        self._tasks.append(_Task(process, activity, node, seconds, self._now_s, envs))

    def _next(self) -> list[_Task]:
        """Let time pass until tasks are done, and remove them."""
        active = [0] * len(self._layout.cores)
        for task in self._tasks:
            active[task.node] += 1
        speed = [min(1.0, c / max(a, 1)) for c, a in zip(self._layout.cores, active, strict=True)]
        passed = min(task.left_s / speed[task.node] for task in self._tasks)
        for task in self._tasks:
            task.left_s -= passed * speed[task.node]
        self._now_s += passed
        done = [task for task in self._tasks if task.left_s < _INSTANT_S]
        self._tasks = [task for task in self._tasks if task.left_s >= _INSTANT_S]
        return done
