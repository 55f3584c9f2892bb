"""What the roles of reinforcement learning cost: `python -m benchmarks.vla_rl NAME`.

`pipeline_ratio`: the rate of a round with two environment processes and one rollout, to that with
one process, which waits for every answer. The costs are simulated: environments and rollout only
sleep, as long for a row as the other.

`ray_over_inline_ratio` and `weight_sync_s`: the wall time of a round of `rrf orchestra smoke` on
Ray to that of the inline backend, which take turns, and the seconds per round for sending weights.
"""

import statistics
import time

from benchmarks import record
from benchmarks.sleeping_env import TASK, SleepingEnvCfg, SleepingRollout
from rrf.envs.vec_env import InitialState
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.smoke import smoke
from rrf.runners.vla_rl.configs import RayCfg
from rrf.runners.vla_rl.job_sources import JobList

COMMAND = "python -m benchmarks.vla_rl"
PIPELINE, RAY, SYNC = "pipeline_ratio", "ray_over_inline_ratio", "weight_sync_s"
_SLOTS, _EPISODES, _ROW_S, _REPEATS = 8, 32, 0.01, 3
_ROUNDS = 6


def pipeline_ratio() -> list[dict]:
    """How much faster two environment processes are than one, with simulated balanced costs."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(_REPEATS):
        for num_workers, found in seconds.items():
            found.append(_round_s(num_workers))
    one, two = (statistics.median(found) for found in seconds.values())
    print({"one process": round(one, 3), "two processes": round(two, 3)})
    return [
        record.number(
            PIPELINE,
            one / two,
            "x (simulated costs)",
            command=f"{COMMAND} {PIPELINE}",
            peer="one environment process, which waits for every answer",
            peer_value=1.0,
            ratio=one / two,
        )
    ]


def ray_over_inline() -> list[dict]:
    """The wall time of rounds on Ray to that of rounds of the inline backend, and of weights."""
    placement = {"env": "0:0-1", "rollout": "0", "actor": "0"}
    rounds: dict[str, list[dict]] = {"inline": [], "ray": []}
    for _ in range(_REPEATS):
        for name, where in (("inline", None), ("ray", RayCfg(placement=placement))):
            found: list[dict] = []
            smoke(where, _ROUNDS, lambda progress, found=found: found.append({**progress.metrics}))
            rounds[name] += found[1:]  # the first loads tasks
    inline, ray = (
        statistics.median(row["time/rollout"] + row["time/update"] for row in found)
        for found in rounds.values()
    )
    sync = statistics.median(row["time/weight_sync"] for row in rounds["ray"])
    print({"inline": round(inline, 3), "ray": round(ray, 3), "weight_sync": round(sync, 4)})
    command = f"{COMMAND} {RAY}"
    peer = "the inline backend"
    return [
        record.number(RAY, ray / inline, "x", command=command, peer=peer, peer_value=1.0),
        record.number(SYNC, sync, "s", command=command),
    ]


def _round_s(num_workers: int) -> float:
    """Seconds of a round, after one that starts the processes."""
    env = SleepingEnvCfg(num_envs=_SLOTS, max_episode_steps=20, chunk_s=_ROW_S)
    rollout = SleepingRollout(_ROW_S, _SLOTS // 2, env.chunk_length)  # half of the slots a pass
    backend = InlineBackend(env, rollout, num_workers)
    try:
        backend.play(_jobs(_SLOTS), (0, 0), greedy=True, keeps=False)
        begin = time.perf_counter()
        backend.play(_jobs(_EPISODES), (0, 1), greedy=True, keeps=False)
        return time.perf_counter() - begin
    finally:
        backend.close()


def _jobs(count: int) -> JobList:
    return JobList([InitialState(TASK, 0, index) for index in range(count)])
