"""What the roles of reinforcement learning cost: `python -m benchmarks.vla_rl ID`.

`pipeline_ratio` takes a minute, `plan_error` ten, `ray_over_inline_ratio` with `weight_sync_s` a
quarter of an hour.
"""

import fcntl
import os
import statistics
import tempfile
import time
import typing
from pathlib import Path

import numpy as np

from benchmarks.clock import Stopwatch
from benchmarks.harness import Bench, train
from rrf.data.schema import Observation
from rrf.envs.vec_env import InitialState
from rrf.orchestra.env_role import EnvRole
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.plan import Costs, predict
from rrf.orchestra.rollout_role import RolloutRole
from rrf.policies.policy import Sample
from rrf.runners.vla_rl.configs import RayCfg, VLARLRunnerCfg
from rrf.runners.vla_rl.job_sources import JobList
from rrf.runners.vla_rl.roles import RoundProgress
from rrf.runners.vla_rl.timeline import Layout, load
from rrf.runners.vla_rl.workload import Workload
from tests.toy_simulator import presets as toy_presets
from tests.toy_simulator.configs import ToyCfg

PIPELINE, RAY, SYNC = "pipeline_ratio", "ray_over_inline_ratio", "weight_sync_s"
PLAN = "plan_error"
_ROUNDS = 4  # the first, which loads tasks, does not count
_TURNS = 2
_RAY = RayCfg(placement={"env": "0:0-1", "rollout": "0", "actor": "0"})
_WORKERS = (2, 1, 4)  # the costs of the first predict the others
_SLOTS, _EPISODES, _CHUNKS = 16, 64, 5
_STATS = {
    "observation.state": {"mean": [0.0] * 2, "std": [1.0] * 2},
    "action": {"min": [-1.0] * 2, "max": [1.0] * 2},
}
_SLOT_S = 0.004  # simulated: what a slot's chunk costs, and what a row's inference costs


def ray_over_inline(bench: Bench) -> list[dict]:
    """Seconds of the same rounds on Ray and inline, each with two environment processes and a
    rollout on this machine: in turns, inline first and last.
    """
    with tempfile.TemporaryDirectory() as scratch:
        start = train("compact-vla-one-demo", Path(scratch, "sft"))["checkpoint"]
        rounds: dict[bool, list[dict]] = {False: [], True: []}
        for turn, on_ray in enumerate((False, True, True, False) * _TURNS):
            ray = _RAY if on_ray else None
            played = _rounds(start, Path(scratch, str(turn)), ray=ray)
            rounds[on_ray] += [metrics for metrics, _ in played]
    for on_ray, rows in rounds.items():
        print("Ray" if on_ray else "inline", [round(_seconds(row), 2) for row in rows])
    counts = {on: {row["env/num_trajectories"] for row in rows} for on, rows in rounds.items()}
    assert counts[False] == counts[True], "the same episodes are compared"
    inline, on_ray = (sum(map(_seconds, rounds[on])) for on in (False, True))
    synced = [row["time/weight_sync"] for row in rounds[True]]
    megabytes = statistics.mean(row["rollout/weight_sync_mb"] for row in rounds[True])
    numbers = [
        bench.number(
            RAY,
            on_ray / inline,
            "",
            peer="the inline backend, the same episodes",
            ratio=inline / on_ray,
        ),
        bench.number(SYNC, statistics.median(synced), "s"),
    ]
    return [numbers[0], numbers[1] | {"megabytes": round(megabytes, 2)}]


def plan_error(bench: Bench) -> list[dict]:
    """How far `rrf orchestra plan` is from the measured rollouts of the same rounds with other
    numbers of environment processes on this machine: the largest error, as a share. The runs take
    turns, forth and back."""
    rounds: dict[int, list[tuple[dict, Workload]]] = {workers: [] for workers in _WORKERS}
    with tempfile.TemporaryDirectory() as scratch:
        start = train("compact-vla-one-demo", Path(scratch, "sft"))["checkpoint"]
        for turn, workers in enumerate((*_WORKERS, *reversed(_WORKERS))):
            rounds[workers] += _rounds(start, Path(scratch, str(turn)), num_workers=workers)
    cfg = _cfg(start)
    errors = {}
    for workers, measured in rounds.items():
        layout = Layout([0] * workers, [0], [len(os.sched_getaffinity(0))])
        sizes = (cfg.env.num_envs, cfg.inference_batch)
        predicted = sum(
            predict(Costs.of(metrics, workload), workload, layout, *sizes).rollout_s
            for metrics, workload in rounds[_WORKERS[0]]
        )
        took = sum(metrics["time/rollout"] for metrics, _ in measured)
        errors[workers] = predicted / took - 1
        print(f"{workers} processes: {took:.1f} s, predicted {predicted:.1f} s")
    largest = max(map(abs, errors.values()))
    shares = {f"of_{workers}": round(error, 3) for workers, error in errors.items()}
    return [bench.number(PLAN, largest, "of 1") | shares]


def pipeline_ratio(bench: Bench) -> dict:
    """Chunks per second of two environment processes over those of one, which share a simulated
    core, beside a simulated inference that takes as long as the simulation.

    With one process, simulation and inference take turns. With two, one simulates while actions
    are chosen for the other. The costs are simulated (waiting), and balanced.
    """
    rates = {workers: _chunks_per_s(workers) for workers in (1, 2)}
    print({workers: round(rate) for workers, rate in rates.items()}, "chunks/s")
    return bench.number(
        PIPELINE,
        rates[2] / rates[1],
        "",
        peer="one environment process on the same core; simulated, balanced costs",
        ratio=rates[2] / rates[1],
    )


def _cfg(start: str) -> VLARLRunnerCfg:
    from rrf.presets import resolve

    cfg = resolve("metaworld-grpo-compact", [f"init_from={start}"])
    assert isinstance(cfg, VLARLRunnerCfg)
    return cfg.replace(validation_episodes=1, max_rounds=_ROUNDS)


def _rounds(start: str, run_dir: Path, **changes) -> list[tuple[dict, Workload]]:
    """The metrics of the rounds that count, and what they played."""
    import torch

    torch.set_num_threads(1)
    rounds: list[tuple[dict, Workload]] = []

    def note(progress: RoundProgress) -> None:
        if progress.round > 1:
            workload = load(run_dir).workload
            assert workload is not None
            rounds.append((dict(progress.metrics), workload))

    _cfg(start).replace(**changes).build(run_dir).run(on_progress=note)
    return rounds


def _seconds(metrics: dict) -> float:
    return metrics["time/rollout"] + metrics["time/update"]


class WaitingRole(EnvRole):
    """An environment role whose simulation takes `_SLOT_S` per slot of the core that all share."""

    def __init__(self, cfg: dict, keeps_final: bool, core: str):
        super().__init__(cfg, keeps_final)
        self._core = Path(core).open("w")  # noqa: SIM115 (as long as the process lives)

    def _execute(self, slots: typing.Sequence[int], actions: np.ndarray) -> typing.Any:
        fcntl.flock(self._core, fcntl.LOCK_EX)
        time.sleep(_SLOT_S * len(slots))
        fcntl.flock(self._core, fcntl.LOCK_UN)
        return super()._execute(slots, actions)


class WaitingRollout(RolloutRole):
    """A rollout that takes `_SLOT_S` longer per row."""

    def act(self, observation: Observation, generators: typing.Any) -> Sample:
        time.sleep(_SLOT_S * len(observation))
        return super().act(observation, generators)


def _chunks_per_s(num_workers: int) -> float:
    policy = toy_presets.policy().build(_STATS).eval()
    env = ToyCfg(num_envs=_SLOTS, max_episode_steps=_CHUNKS * policy.chunk_length)
    states = [InitialState(task, 42, n) for n in range(_EPISODES // 2) for task in env.tasks]
    with tempfile.NamedTemporaryFile() as core:
        backend = InlineBackend(
            env,
            WaitingRollout(policy, _SLOTS),
            num_workers,
            role="benchmarks.vla_rl_roles:WaitingRole",
            core=core.name,
        )
        try:
            backend.play(JobList(states[:2]), (0,), keeps=False)  # the processes start
            jobs = JobList(states)
            with Stopwatch() as watch:
                backend.play(jobs, (0,), keeps=False)
        finally:
            backend.close()
    return sum(len(episode.steps) for episode in jobs.episodes) / watch.wall_s
