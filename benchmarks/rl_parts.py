"""Where the CPU time of a training of Go1 goes, in microseconds per step of an environment.

Six runs take turns on one thread: go1-flat-ppo with MuJoCo's own rollout (what was there before
`rrf/compiled/rollout.c`) and with ours, and go1-flat-quick, each with exact and with fast physics.
"""

import collections
import contextlib
import functools
import tempfile
import time
import typing
from collections.abc import Callable, Iterator

from benchmarks.harness import Bench
from benchmarks.rl_runs import SEED, preset

RUNS = {
    "mujoco_rollout": ("go1-flat-ppo", True),
    "rollout": ("go1-flat-ppo", False),
    "quick": ("go1-flat-quick", False),
}
"""Row -> preset, and whether it uses MuJoCo's own rollout."""
WARM_UP = 2


def go1_parts(bench: Bench) -> list[dict]:
    """CPU-microseconds per step, by part; physics, kinematics, terms, acting, learning, rest."""
    rows = []
    for physics in ("exact", "fast"):
        for name, (of, is_mujocos) in RUNS.items():
            parts = _parts(of, physics, is_mujocos, bench)
            total, outside = sum(parts.values()), sum(parts.values()) - parts["physics"]
            id = f"go1_{physics}_cpu_us_{name}"
            row = bench.number(id, total, "CPU-µs/step", seeds=[SEED])
            shares = {part: round(value, 1) for part, value in parts.items()}
            rows.append(row | {"outside_physics": round(outside, 1), "parts": shares})
    return rows


class _Parts:
    """CPU time inside of some functions, without that of other parts that they call."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = collections.defaultdict(float)
        self._inner = [0.0]

    def timed(self, part: str, function: Callable) -> Callable:
        """The function, whose time is counted as that of `part`."""

        @functools.wraps(function)
        def run(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
            begin = time.process_time()
            self._inner.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.process_time() - begin
                self.spent[part] += taken - self._inner.pop()
                self._inner[-1] += taken

        return run

    @contextlib.contextmanager
    def watching(self, places: dict[str, list[tuple[type, str]]]) -> Iterator[None]:
        """Count the time of methods, part -> [(class, name)]."""
        kept = []
        try:
            for part, methods in places.items():
                for of, name in methods:
                    kept.append((of, name, getattr(of, name)))
                    setattr(of, name, self.timed(part, getattr(of, name)))
            yield
        finally:
            for of, name, method in kept:
                setattr(of, name, method)


def _parts(of: str, physics: str, is_mujocos: bool, bench: Bench) -> dict[str, float]:
    from unittest import mock

    from rrf.algorithms.on_policy.ppo import PPO
    from rrf.compiled import rollout
    from rrf.envs.mjlab.env import MjlabEnv
    from rrf.envs.mjlab.native.rollouts import MujocoRollout

    words = [f"env.physics={physics}", "env.num_threads=1", "algorithm.learner_threads=1"]
    small = ["env.num_envs=16"] if bench.is_small else []
    cfg = preset(of, [*words, "env.backend=native", "device=cpu", *small])
    iterations = bench.size(4, 1)
    total = WARM_UP + iterations
    cfg = cfg.replace(
        max_iterations=total, save_interval=total, log_interval=1, video_interval=None, trackers=[]
    )
    parts, marks = _Parts(), []
    rollout_class = MujocoRollout if is_mujocos else rollout.Rollout
    places = {
        "physics": [(rollout_class, "step")],
        "kinematics": [(rollout_class, "measure")],
        "terms": [(MjlabEnv, "step")],
        "acting": [(PPO, "act"), (PPO, "observe")],
        "learning": [(PPO, "update")],
    }

    def on_progress(progress: typing.Any) -> None:
        marks.append((progress.num_steps, time.process_time()))
        if len(marks) == WARM_UP:
            parts.spent.clear()

    library = None if is_mujocos else rollout.library()
    with (
        mock.patch.object(rollout, "library", return_value=library),
        parts.watching(places),
        tempfile.TemporaryDirectory() as scratch,
    ):
        cfg.build(scratch).run(on_progress=on_progress)
    steps, cpu_s = (last - first for first, last in zip(marks[WARM_UP - 1], marks[-1], strict=True))
    spent = {part: parts.spent[part] for part in places}
    spent["rest"] = cpu_s - sum(spent.values())
    return {part: 1e6 * seconds / steps for part, seconds in spent.items()}
