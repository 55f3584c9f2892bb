"""Predicts how long a round takes with other processes, before they are started.

A simulation of events plays the round: environment processes execute chunks of their slots, ask a
rollout for the next actions, and wait for it; a rollout answers all processes that wait, as far as
a batch goes. Processes on one node share its cores. What the parts cost was measured by an earlier
run.
"""

import dataclasses
import itertools
import math
import typing
from collections.abc import Iterator, Mapping, Sequence

from rrf.runners.vla_rl.timeline import Layout, Span

_INSTANT_S = 1e-9


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds of one core, and how much there is to do in a round."""

    chunk_s: float  # physics and images of one chunk in one slot
    reset_s: float  # the begin of an episode
    inference_s: float  # one forward pass of a batch, however full it is, and what the driver does
    update_s: float  # the update, wall time
    num_chunks: Sequence[int]  # of each episode
    num_running: int | None = None  # episodes at a time; None if there are enough for all slots
    call_s: float = 0.0  # of a call that executes chunks, besides what each chunk costs

    @classmethod
    def of_run(
        cls, cfg: Mapping[str, typing.Any], metrics: Mapping[str, float], num_workers: int
    ) -> "Costs":
        """The costs that a run's config, as plain data, and the metrics of a round say.

        Raises:
            ValueError: If a metric is missing.
        """
        env, rows = cfg["env"], cfg["inference_batch"]
        asks_once = env["num_envs"] // num_workers <= rows
        workers = num_workers if asks_once else None
        return cls.of(metrics, env["chunk_length"], rows, env["max_episode_steps"], workers)

    @classmethod
    def of(
        cls,
        metrics: Mapping[str, float],
        chunk_length: int,
        batch_rows: int,
        horizon: int,
        num_workers: int | None = None,
    ) -> "Costs":
        """The costs that the metrics of a round say.

        Args:
            metrics: Of the last round, as result.json has them.
            chunk_length: Actions of a chunk.
            batch_rows: The largest batch of a rollout.
            horizon: Actions of an episode that fails. Those that succeed are taken to be equally
                long.
            num_workers: Environment processes of the run, if each asks for one batch at most. How
                full batches were then says how many episodes ran at a time: groups that are played
                in stages leave slots empty.

        Raises:
            ValueError: If a metric is missing.
        """
        names = ("physics", "rendering", "reset", "inference", "update")
        needed = [f"time/{name}" for name in names]
        needed += ["env/num_trajectories", "env/episode_len", "env/success_once"]
        if missing := [name for name in needed if name not in metrics]:
            raise ValueError(f"the run has no {', '.join(missing)}; train at least one round")
        episodes, success = round(metrics["env/num_trajectories"]), metrics["env/success_once"]
        length = metrics["env/episode_len"]
        of_failed = max(horizon, length)
        of_solved = (length - (1 - success) * of_failed) / success if success else length
        num_solved = [math.floor((number + 1) * success + 1e-9) for number in range(episodes)]
        num_chunks = [
            max(1, math.ceil((of_solved if now > before else of_failed) / chunk_length))
            for before, now in itertools.pairwise([0, *num_solved])
        ]
        rows = sum(num_chunks)
        passes = metrics.get("rollout/forward_passes") or math.ceil(rows / batch_rows)
        fixed_s, calls = metrics.get("time/env_calls", 0.0), metrics.get("rollout/env_calls", 1.0)
        return cls(
            chunk_s=(metrics["time/physics"] + metrics["time/rendering"] - fixed_s) / rows,
            reset_s=metrics["time/reset"] / episodes,
            inference_s=(metrics["time/inference"] + metrics.get("time/driver", 0.0)) / passes,
            update_s=metrics["time/update"],
            num_chunks=num_chunks,
            num_running=num_workers and math.ceil(rows / passes * num_workers),
            call_s=fixed_s / calls,
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


def predict(costs: Costs, layout: Layout, num_slots: int, batch_rows: int) -> Plan:
    """Play a round.

    Args:
        costs: What its parts cost.
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
    spans = list(_Round(costs, layout, num_slots, batch_rows).spans())
    rollout_s = max(span.end_s for span in spans)
    return Plan(rollout_s, rollout_s + costs.update_s, spans)


def propose(
    costs: Costs, cores: Sequence[int], num_slots: int, batch_rows: int
) -> list[tuple[float, Layout]]:
    """Layouts with the seconds of their rounds, the fastest first: as many environment processes
    per node as divide the slots, and a rollout on one node or on each."""
    nodes, found = range(len(cores)), []
    for each, rollouts in itertools.product(range(1, max(cores) + 1), {1, len(cores)}):
        env = [node for node in nodes for _ in range(min(each, cores[node]))]
        if num_slots % len(env) == 0:
            layout = Layout(env, list(nodes)[:rollouts], cores)
            plan = predict(costs, layout, num_slots, batch_rows)
            found.append((plan.round_s, layout))
    return sorted(found, key=lambda pair: (pair[0], len(pair[1].env)))


@dataclasses.dataclass
class _Task:
    process: str
    activity: str
    node: int
    left_s: float
    begin_s: float
    envs: list[int]  # whom it is for


class _Round:
    def __init__(self, costs: Costs, layout: Layout, num_slots: int, batch_rows: int):
        self._costs, self._layout = costs, layout
        self._batch_rows = batch_rows
        num_running, count = min(num_slots, costs.num_running or num_slots), len(layout.env)
        self._slots = [(num_running + env) // count for env in range(count)]
        self._waiting = list(reversed(costs.num_chunks))  # of episodes that are not yet begun
        self._running = [[] for _ in layout.env]  # of each process: chunks left of its episodes
        self._asking: list[int] = []  # processes that need actions, in order
        self._free = list(range(len(layout.rollout)))
        self._tasks: list[_Task] = []
        self._now = 0.0

    def spans(self) -> Iterator[Span]:
        for env in range(len(self._layout.env)):
            self._simulate(env)
        while self._tasks:
            for task in self._next():
                yield Span(task.process, task.activity, task.begin_s, self._now)
                if task.process.startswith("env"):
                    self._asking += [env for env in task.envs if self._running[env]]
                else:
                    self._free.append(int(task.process.removeprefix("rollout ")))
                    for env in task.envs:
                        self._running[env] = [left - 1 for left in self._running[env]]
                        self._simulate(env)
            self._infer()

    def _simulate(self, env: int) -> None:
        """Execute the chunks that were chosen, and begin episodes in free slots."""
        chunks = len(self._running[env])
        alive = [left for left in self._running[env] if left > 0]
        free = max(self._slots[env], 1) - len(alive)
        begun = [self._waiting.pop() for _ in range(min(free, len(self._waiting)))]
        self._running[env] = alive + begun
        seconds = chunks * self._costs.chunk_s + len(begun) * self._costs.reset_s
        seconds += self._costs.call_s if chunks else 0.0
        if chunks or begun:
            self._start(f"env {env}", "simulation", self._layout.env[env], seconds, [env])

    def _infer(self) -> None:
        while self._free and self._asking:
            envs, rows = [], 0
            while self._asking and (
                not envs or rows + len(self._running[self._asking[0]]) <= self._batch_rows
            ):
                envs.append(self._asking.pop(0))
                rows += len(self._running[envs[-1]])
            number = self._free.pop(0)
            passes = math.ceil(rows / self._batch_rows)
            seconds = passes * self._costs.inference_s
            node = self._layout.rollout[number]
            self._start(f"rollout {number}", "inference", node, seconds, envs)

    def _start(
        self, process: str, activity: str, node: int, seconds: float, envs: list[int]
    ) -> None:
        self._tasks.append(_Task(process, activity, node, seconds, self._now, envs))

    def _next(self) -> list[_Task]:
        """Let time pass until tasks are done, and remove them."""
        active = [0] * len(self._layout.cores)
        for task in self._tasks:
            active[task.node] += 1
        speed = [min(1.0, c / max(a, 1)) for c, a in zip(self._layout.cores, active, strict=True)]
        passed = min(task.left_s / speed[task.node] for task in self._tasks)
        for task in self._tasks:
            task.left_s -= passed * speed[task.node]
        self._now += passed
        done = [task for task in self._tasks if task.left_s < _INSTANT_S]
        self._tasks = [task for task in self._tasks if task.left_s >= _INSTANT_S]
        return done
