"""A vector environment whose slots are spread over worker processes. The contract and the results
are the same as in one process.

Slots are assigned to workers in order: with 8 slots and 2 workers, 0-3 and 4-7. A call goes to all
workers concerned at the same time. Images travel through the socket with the other data: 16 images
of 64 px are 0.2 MB and take under a millisecond, against about 40 ms of rendering, so shared memory
would save nothing.
"""

import typing
from collections.abc import Sequence

import numpy as np

from rrf.config import TYPE_KEY, locate, trust
from rrf.data.schema import Observation
from rrf.envs.observations import from_plain, to_plain
from rrf.envs.process.child import Child, ChildError, close_all
from rrf.envs.slots import Slots
from rrf.envs.vec_env import InitialState, Step, VecEnv, check_actions

_SPEC = ("chunk_length", "action_dim", "state_dim", "fps", "max_episode_steps")
_MORE = ("rewards", "success_at_end")  # in the extras of a step
_METRIC = "metric/"


class WorkerVecEnv:
    """`cfg.num_envs` slots in `num_workers` processes, which run until `close`."""

    chunk_length: int
    action_dim: int
    state_dim: int
    fps: int
    max_episode_steps: int

    def __init__(self, cfg, num_workers: int, timeout_s: float = 600.0):
        """Start the worker processes.

        Args:
            cfg: Config of the environment, with the total number of slots as `num_envs`, and with
                `check_initial_state`.
            num_workers: Number of processes, limited to the number of slots.
            timeout_s: How long one call may take before its worker counts as hung. The first image
                rendered on a machine compiles kernels.
        """
        if num_workers < 1:
            raise ValueError(f"num_workers={num_workers} must be at least 1")
        self.cfg = cfg
        self.num_envs: int = cfg.num_envs
        self._slots = Slots(cfg.num_envs, cfg.ignore_terminations)
        parts = np.array_split(np.arange(cfg.num_envs), min(num_workers, cfg.num_envs))
        self._first_slots = [int(part[0]) for part in parts]
        self._workers = [
            Child(
                "rrf.envs.process.workers:Worker",
                f"environment worker {number + 1} of {len(parts)}",
                {"cfg": cfg.replace(num_envs=len(part)).to_dict()},
                timeout_s,
            )
            for number, part in enumerate(parts)
        ]
        spec = self._call([(worker, "spec", ()) for worker in self._workers])[0]
        for name in _SPEC:
            setattr(self, name, spec[name])

    def reset(
        self, initial_states: Sequence[InitialState], env_ids: Sequence[int] | None = None
    ) -> Observation:
        """Start episodes; see `VecEnv.reset`."""
        check = self.cfg.check_initial_state
        slots = self._slots.check_reset(initial_states, env_ids, check)
        self._slots.clear(slots)
        plain = [(state.task, state.seed, state.index) for state in initial_states]
        rows_of_workers = self._split(slots)
        answers = self._call(
            [
                (self._workers[worker], "reset", ([plain[row] for row in rows], local_ids))
                for worker, (rows, local_ids) in rows_of_workers.items()
            ]
        )
        self._slots.begin(slots)
        merged = _merge(answers, [rows for rows, _ in rows_of_workers.values()], len(slots))
        return from_plain(merged)

    def step(self, actions: np.ndarray, env_ids: Sequence[int] | None = None) -> Step:
        """Execute one chunk per slot; see `VecEnv.step`."""
        slots = self._slots.check(env_ids)
        actions = np.asarray(actions)
        check_actions(actions, slots, self.chunk_length, self.action_dim)
        self._slots.check_running(slots)
        rows_of_workers = self._split(slots)
        answers = self._call(
            [
                (self._workers[worker], "step", (actions[rows], local_ids))
                for worker, (rows, local_ids) in rows_of_workers.items()
            ]
        )
        merged = _merge(answers, [rows for rows, _ in rows_of_workers.values()], len(slots))
        results = (merged[name] for name in ("reward", "success", "truncated", "steps"))
        more = {name: merged.get(name) for name in _MORE}
        step = self._slots.finish_step(slots, from_plain(merged), *results, **more)
        if self.cfg.measures:
            step.extras["metrics"] = {name: merged[_METRIC + name] for name in self.cfg.measures}
        return step

    def close(self) -> None:
        """End the workers within seconds, whatever they are doing. Calling it twice is allowed."""
        self._slots.close()
        close_all(self._workers)

    def _split(self, slots: Sequence[int]) -> dict[int, tuple[list[int], list[int]]]:
        """Worker -> (rows of this call, slots as the worker numbers them)."""
        split: dict[int, tuple[list[int], list[int]]] = {}
        for row, slot in enumerate(slots):
            worker = int(np.searchsorted(self._first_slots, slot, side="right")) - 1
            rows, local_ids = split.setdefault(worker, ([], []))
            rows.append(row)
            local_ids.append(slot - self._first_slots[worker])
        return split

    def _call(self, calls: Sequence[tuple[Child, str, tuple]]) -> list[dict]:
        """The answers of all workers. A failure ends every worker."""
        try:
            for worker, method, arguments in calls:
                worker.send(method, *arguments)
            return [worker.result() for worker, _, _ in calls]
        except (ChildError, ValueError, KeyboardInterrupt):
            self.close()
            raise


class Worker:
    """The object that a worker process serves: a vector environment that takes and returns plain
    data.
    """

    def __init__(self, cfg: dict):
        self._env = built(cfg)

    def spec(self) -> dict[str, int]:
        """The contract's constants."""
        return {name: getattr(self._env, name) for name in _SPEC}

    def reset(self, initial_states: Sequence[tuple[str, int, int]], env_ids: Sequence[int]) -> dict:
        """`VecEnv.reset`."""
        return to_plain(
            self._env.reset([InitialState(*state) for state in initial_states], env_ids)
        )

    def step(self, actions: np.ndarray, env_ids: Sequence[int]) -> dict:
        """`VecEnv.step`."""
        step = self._env.step(actions, env_ids)
        return to_plain(step.observation) | {
            "reward": step.reward,
            "success": step.success,
            "truncated": step.truncated,
            "steps": step.steps,
            **{name: step.extras[name] for name in _MORE if name in step.extras},
            **{_METRIC + name: values for name, values in step.extras.get("metrics", {}).items()},
        }


def built(cfg: dict[str, typing.Any]) -> VecEnv:
    """The environment that a config describes, built in the child process."""
    return read_cfg(cfg).build()


def read_cfg(plain: dict[str, typing.Any]) -> typing.Any:
    """The config that the parent of this process sent.

    Its module is trusted here, so that a class from a plugin of the parent works too.
    """
    path = plain[TYPE_KEY]
    trust(path.partition(":")[0])
    return locate(path).from_dict(plain)


def _merge(
    answers: Sequence[dict[str, np.ndarray]], rows: Sequence[list[int]], num_rows: int
) -> dict[str, np.ndarray]:
    """Put the arrays of all workers into the order of the call's rows."""
    order = np.argsort(np.concatenate([np.asarray(part) for part in rows]))
    assert len(order) == num_rows
    return {name: np.concatenate([part[name] for part in answers])[order] for name in answers[0]}
