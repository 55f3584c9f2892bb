"""State-based reinforcement learning: `python -m benchmarks.rl [ID ...] [--peers PYTHON]`.

By default all ids are measured. Those with walk, tracking_error or return in their names train to
the end; the others take minutes.

Peers run in the same call, in processes of their own; `python -m benchmarks.peers` says how each of
them is installed. Ratios are of wall seconds; the rows also hold the ratios of CPU-seconds, with
all threads counted. `--small` only checks that everything runs, and saves nothing.
"""

import json
import statistics
from collections.abc import Sequence

from benchmarks import harness, rl_curves, rl_go1, rl_other_trainers, rl_parts, rl_sac
from benchmarks.clock import Pace, Stopwatch, median_paces
from benchmarks.harness import Bench, Measure
from benchmarks.peers import PEERS, NotMeasuredError
from benchmarks.rl_runs import SEED, TASK, of_training, preset
from rrf import atomic, workspace


def ppo_halfcheetah_ratio_vs_sb3(bench: Bench) -> list[dict]:
    """PPO with 8 environments of HalfCheetah, compared with Stable-Baselines3 and SBX."""
    iterations = bench.size(20, 2)
    words = ("--steps", 2048 * iterations)
    ours, sb3, sbx = median_paces(
        lambda: of_training(preset("halfcheetah-ppo", ["env.num_envs=8"]), 2, iterations),
        lambda: bench.pace("sb3-ppo", *words),
        lambda: bench.pace("sbx-ppo", *words),
        repeats=bench.size(3, 1),
    )
    return [
        bench.paces(f"ppo_halfcheetah_ratio_vs_{key}", ours, f"{PEERS[key].name} PPO", peer)
        for key, peer in (("sb3", sb3), ("sbx", sbx))
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
    sb3 = [_sb3_return(bench, seed) for seed in curves or [SEED]]
    value, peer = statistics.fmean(ours), statistics.fmean(sb3)
    row = bench.compare(
        "ppo_halfcheetah_return_1m",
        value,
        "return",
        f"{PEERS['sb3'].name} PPO",
        peer,
        seeds=list(curves),
    )
    return [row | {"by_seed": ours, "peer_by_seed": [round(value, 2) for value in sb3]}]


def envpool_ratio(bench: Bench) -> list[dict]:
    """Steps per second of EnvPool through our adapter, with 8 environments on two threads."""
    steps = bench.size(80_000, 4000)
    ours, raw, gymnasium = median_paces(
        lambda: _envpool_pace(steps),
        lambda: bench.pace("envpool", "--steps", steps),
        lambda: bench.pace("gymnasium", "--steps", steps),
        repeats=bench.size(3, 1),
    )
    return [
        bench.paces("envpool_ratio", ours, PEERS["envpool"].name, raw),
        bench.paces("envpool_ratio_vs_gymnasium", ours, PEERS["gymnasium"].name, gymnasium),
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
    result = bench.peer("sb3-ppo", *words)
    if not bench.is_small:
        atomic.write_json(path, result)
    return result["return"]


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
    with Stopwatch() as watch:
        for index in range(rounds):
            env.step(actions[index % 16])
    env.close()
    return watch.pace(rounds * num_envs)


IDS: dict[str, Measure] = {
    "go1_flat_env_steps_per_s": rl_go1.go1_flat_env_steps_per_s,
    "go1_flat_fast_env_steps_per_s": rl_go1.go1_flat_fast_env_steps_per_s,
    "go1_flat_ratio_vs_mjlab_cpu": rl_go1.go1_flat_ratio_vs_mjlab_cpu,
    "go1_quick_ratio_vs_mjlab_cpu": rl_go1.go1_quick_ratio_vs_mjlab_cpu,
    "go1_parts": rl_parts.go1_parts,
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
    "go1_quick_walk_wall_s": rl_go1.go1_quick_walk,
    "ppo_halfcheetah_return_1m": ppo_halfcheetah_return_1m,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the given ids, or all of them; write each number to `docs/benchmarks/rl.json`."""
    harness.main("rl", __doc__, IDS, arguments)


if __name__ == "__main__":
    main()
