"""State-based reinforcement learning: `python -m benchmarks.rl [ID ...] [--peers PYTHON]`.

By default all ids are measured. Those with walk, tracking_error or return in their names train to
the end; the others take minutes.

Peers run in the same call, in separate processes (`benchmarks.rl_peers`) with the interpreter of
`--peers`, which needs their packages: `uv pip install stable-baselines3==2.9.2 sbx-rl==0.28.0`.
Ratios are of wall seconds; the rows also hold the ratios of CPU-seconds, with all threads counted.
`--small` only checks that everything runs, and saves nothing.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks import rl_curves, rl_go1, rl_other_trainers, rl_sac
from benchmarks.record import number
from benchmarks.rl_pace import (
    SB3,
    SBX,
    SEED,
    TASK,
    Bench,
    NotMeasuredError,
    Pace,
    alternating,
    command,
    measure_ids,
    of_training,
    preset,
    ratio_row,
)
from rrf import atomic, workspace


def ppo_halfcheetah_ratio_vs_sb3(bench: Bench) -> list[dict]:
    """PPO with 8 environments of HalfCheetah, compared with Stable-Baselines3 and SBX."""
    iterations, id = bench.size(20, 2), "ppo_halfcheetah_ratio_vs_sb3"
    words = ("--steps", 2048 * iterations)
    ours, (sb3, sbx) = alternating(
        lambda: of_training(preset("halfcheetah-ppo", ["env.num_envs=8"]), 2, iterations),
        [lambda: bench.peer("sb3-ppo", *words), lambda: bench.peer("sbx-ppo", *words)],
        repeats=bench.size(3, 1),
    )
    return [
        ratio_row(id, ours, f"{SB3} PPO", sb3, id),
        ratio_row("ppo_halfcheetah_ratio_vs_sbx", ours, f"{SBX} PPO", sbx, id),
    ]


def ppo_halfcheetah_return_1m(bench: Bench) -> list[dict]:
    """Greedy returns after a million steps, from the curves of `rl_curves` and of the peer."""
    curves = rl_curves.known("halfcheetah-ppo")
    if not curves and not bench.is_small:
        raise NotMeasuredError(
            "there are no curves of halfcheetah-ppo yet; type: python -m benchmarks.rl_curves "
            "halfcheetah-ppo"
        )
    ours = [rows[-1].return_greedy_mean for rows in curves.values()] or [0.0]
    theirs = [_sb3_return(bench, seed) for seed in curves or [SEED]]
    value, peer = statistics.fmean(ours), statistics.fmean(theirs)
    id = "ppo_halfcheetah_return_1m"
    row = number(
        id,
        value,
        "return",
        command=command(id),
        peer=f"{SB3} PPO",
        peer_value=peer,
        ratio=value / peer,
        seeds=list(curves),
    )
    return [row | {"by_seed": ours, "peer_by_seed": [round(found, 2) for found in theirs]}]


def envpool_ratio(bench: Bench) -> list[dict]:
    """Steps per second of EnvPool through our adapter, with 8 environments on two threads."""
    steps, id = bench.size(80_000, 4000), "envpool_ratio"
    words = ("--steps", steps)
    ours, (raw, gymnasium) = alternating(
        lambda: _envpool_pace(steps),
        [lambda: bench.peer("envpool", *words), lambda: bench.peer("gymnasium", *words)],
        repeats=bench.size(3, 1),
    )
    beside = "Gymnasium SyncVectorEnv"
    return [
        ratio_row(id, ours, "EnvPool itself", raw, id),
        ratio_row("envpool_ratio_vs_gymnasium", ours, beside, gymnasium, id),
    ]


def _sb3_return(bench: Bench, seed: int) -> float:
    """Greedy return of Stable-Baselines3's PPO after a million steps.

    The training takes minutes, so its result is kept for later calls.
    """
    words = ("--seed", seed, "--steps", bench.size(1_000_000, 2048))
    words = (*words, "--episodes", bench.size(rl_curves.NUM_EPISODES, 1))
    path = workspace.state() / "benchmarks" / f"sb3-ppo-halfcheetah-seed{seed}.json"
    if path.is_file() and not bench.is_small:
        return json.loads(path.read_text())["return"]
    found = bench.peer("sb3-ppo", *words)
    if not bench.is_small:
        atomic.write_json(path, found)
    return found["return"]


def _envpool_pace(num_steps: int) -> Pace:
    import torch

    from rrf.envs.gymnasium.configs import EnvPoolEnvCfg

    torch.set_num_threads(1)
    num_envs = 8
    env = EnvPoolEnvCfg(task=TASK, num_envs=num_envs, num_threads=2).build(seed=SEED)
    actions = torch.rand(
        16, num_envs, env.num_actions, generator=torch.Generator().manual_seed(SEED)
    )
    actions = actions * 2 - 1
    rounds = num_steps // num_envs
    for index in range(rounds // 10):
        env.step(actions[index % 16])
    begin = time.perf_counter(), time.process_time()
    for index in range(rounds):
        env.step(actions[index % 16])
    wall_s, cpu_s = time.perf_counter() - begin[0], time.process_time() - begin[1]
    env.close()
    return Pace(rounds * num_envs / wall_s, rounds * num_envs / cpu_s)


IDS: dict[str, Callable[[Bench], list[dict]]] = {
    "go1_flat_env_steps_per_s": rl_go1.go1_flat_env_steps_per_s,
    "go1_flat_fast_env_steps_per_s": rl_go1.go1_flat_fast_env_steps_per_s,
    "go1_flat_ratio_vs_mjlab_cpu": rl_go1.go1_flat_ratio_vs_mjlab_cpu,
    "ppo_halfcheetah_ratio_vs_sb3": ppo_halfcheetah_ratio_vs_sb3,
    "sac_updates_per_cpu_s": rl_sac.sac_updates_per_cpu_s,
    "sac_ratio_vs_sb3": rl_sac.sac_ratio_vs_sb3,
    "replay_1m_mb": rl_sac.replay_1m_mb,
    "envpool_ratio": envpool_ratio,
    "go1_as_gymnasium_ratio": rl_other_trainers.go1_as_gymnasium_ratio,
    "go1_other_trainer_return": rl_other_trainers.go1_other_trainer_return,
    "mjlab_go1_4096_gpu_steps_per_s": rl_go1.mjlab_go1_4096_gpu_steps_per_s,
    "go1_flat_walk_wall_s": rl_go1.go1_flat_walk,
    "go1_flat_tracking_error": rl_go1.go1_flat_walk,  # measured by the same run
    "go1_flat_fast_tracking_error": rl_go1.go1_flat_fast_tracking_error,
    "ppo_halfcheetah_return_1m": ppo_halfcheetah_return_1m,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the given ids, or all of them; write each number to `docs/benchmarks/rl.json`."""
    measure_ids(IDS, __doc__, arguments)


if __name__ == "__main__":
    workspace.settle_environment()
    main()
