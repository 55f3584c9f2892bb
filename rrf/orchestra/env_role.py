"""The environment role: plays jobs in the slots of one vector environment.

Its inputs and outputs are builtins and NumPy arrays, so that it can run in another process or on
another machine. Between two calls, every slot with a job waits for an action. A slot whose episode
ended takes the next job from the queue by itself, so that one call does the physics and rendering
of all slots.

Legend: B running episodes, H steps in an action chunk, A action dimension.
"""

import collections
import time
import typing
from collections.abc import Sequence

import numpy as np

from rrf.data.schema import Observation
from rrf.envs.observations import join, rows_of, to_plain
from rrf.envs.process.workers import built
from rrf.envs.vec_env import InitialState, Step

PlainJob = tuple[int, str, int, int]  # id, task, seed, index


class EnvRole:
    """Serves `start`, `advance` and `cpu_s`."""

    def __init__(self, cfg: dict, keeps_final: bool = False, keeps_success: bool = False):
        """
        Args:
            cfg: The config of a vector environment, as plain data.
            keeps_final: Whether answers contain the last observation of truncated episodes, from
                which a critic bootstraps.
            keeps_success: With `keeps_final`, also that of solved ones.
        """
        self._env = built(cfg)
        self._keeps_final, self._keeps_success = keeps_final, keeps_success
        self._queue: collections.deque[PlainJob] = collections.deque()
        self._running: dict[int, int] = {}  # slot -> job id
        self._rows: dict[int, Observation] = {}  # slot -> current observation

    def spec(self) -> dict[str, int]:
        """num_envs, chunk_length, action_dim, max_episode_steps."""
        names = ("num_envs", "chunk_length", "action_dim", "max_episode_steps")
        return {name: getattr(self._env, name) for name in names}

    def start(self, jobs: Sequence[PlainJob]) -> dict[str, typing.Any]:
        """Drop all earlier jobs and begin with these; answers like `advance`, without results."""
        begun = self._clocks()
        self._queue.clear()
        self._running.clear()
        return self._answer([], jobs, begun)

    def advance(
        self, jobs: Sequence[PlainJob], actions: np.ndarray, stopped: Sequence[int] = ()
    ) -> dict[str, typing.Any]:
        """Execute a chunk in every running episode and take more jobs.

        Args:
            jobs: New jobs. They are queued behind the waiting ones.
            actions: float32 [B, H, A], in the order of the last answer's `ids`, without those that
                are stopped.
            stopped: Jobs whose episodes end here; nothing more is said about them.

        Returns:
            results: One dict per episode of `actions`: id, reward, steps, is_over, success,
                success_at_end, truncated, where the environment tells it rewards (float32 [steps],
                of each action), and, with `keeps_final`, final (an observation) of truncated
                episodes. What `_of_ended` adds is in the results of episodes that are over.
            worked: When this call began and ended, by `time.time`, and seconds by activity.
            ids: The jobs that now wait for an action.
            image/<camera>, state, instruction, …: Their observations, in the same order.
        """
        begun = self._clocks()
        for slot, job_id in list(self._running.items()):
            if job_id in stopped:
                del self._running[slot]
        slots = list(self._running)
        if not slots:
            return self._answer([], jobs, begun)
        step = self._execute(slots, actions)
        results, at_end = [], solved_at_end(step)
        for row, slot in enumerate(slots):
            is_over = bool(step.terminated[row] or step.truncated[row])
            result = {
                "id": self._running[slot],
                "reward": float(step.reward[row]),
                "steps": int(step.steps[row]),
                "is_over": is_over,
                "success": bool(step.success[row]),
                "success_at_end": bool(at_end[row]),
                "truncated": bool(step.truncated[row]),
            }
            if "rewards" in step.extras:
                result["rewards"] = step.extras["rewards"][row, : result["steps"]]
            is_seen = step.truncated[row] or (is_over and self._keeps_success)
            if self._keeps_final and is_seen:
                result["final"] = to_plain(rows_of(step.observation, [row]))
            results.append(result | (self._of_ended(slot) if is_over else {}))
            if is_over:
                del self._running[slot]
            else:
                self._rows[slot] = rows_of(step.observation, [row])
        return self._answer(results, jobs, begun)

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds spent so far, by purpose, as far as the environment counts them."""
        return dict(getattr(self._env, "cpu_s", {}))

    def _execute(self, slots: Sequence[int], actions: np.ndarray) -> Step:
        """Execute chunks, float32 [B, H, A], in running slots."""
        return self._env.step(actions, env_ids=slots)

    def _on_begin(self, slot: int, initial_state: InitialState) -> None:
        """Called when an episode has begun in a slot."""

    def _of_ended(self, slot: int) -> dict[str, typing.Any]:
        """More results of an episode that has just ended."""
        return {}

    def _clocks(self) -> tuple[float, dict[str, float]]:
        return time.time(), self.cpu_s()

    def _answer(
        self,
        results: list[dict],
        jobs: Sequence[PlainJob],
        begun: tuple[float, dict[str, float]],
    ) -> dict[str, typing.Any]:
        self._queue.extend(jobs)
        free = [slot for slot in range(self._env.num_envs) if slot not in self._running]
        taken = [(slot, self._queue.popleft()) for slot in free[: len(self._queue)]]
        if taken:
            states = [InitialState(task, seed, index) for _, (_, task, seed, index) in taken]
            observation = self._env.reset(states, env_ids=[slot for slot, _ in taken])
            for row, (slot, (job_id, *_)) in enumerate(taken):
                self._running[slot] = job_id
                self._rows[slot] = rows_of(observation, [row])
                self._on_begin(slot, states[row])
        answer: dict[str, typing.Any] = {"results": results, "ids": list(self._running.values())}
        if self._running:
            answer |= to_plain(join([self._rows[slot] for slot in self._running]))
        begin_s, before = begun
        end_s, after = self._clocks()
        parts = {name: spent - before.get(name, 0.0) for name, spent in after.items()}
        answer["worked"] = (begin_s, end_s, parts or {"simulation": 1.0})
        return answer


def solved_at_end(step: Step) -> np.ndarray:
    """Bool [B]: solved where the chunk ended."""
    return step.extras.get("success_at_end", step.success)
