"""Numbers of SAC and its replay buffer, for `benchmarks.rl`."""

import os
import typing
from collections.abc import Callable
from pathlib import Path

from benchmarks.clock import median_cpu_s, median_paces
from benchmarks.harness import Bench
from benchmarks.peers import PEERS
from benchmarks.rl_runs import SEED, TASK, of_training, preset

_OBSERVATIONS, _ACTIONS = 17, 6  # of HalfCheetah


def sac_updates_per_cpu_s(bench: Bench) -> list[dict]:
    """Gradient steps of SAC per CPU-second on one thread, each with a new batch of 256."""
    rounds, updates = bench.size((5, 300), (2, 20))
    [update_s] = median_cpu_s(_sac_update(), repeats=rounds, times=updates)
    value = 1 / update_s
    words = ("--steps", bench.size(400, 50), "--updates", bench.size(1000, 20))
    sb3, sbx = (bench.peer(f"{name}-sac", *words)["updates_per_cpu_s"] for name in ("sb3", "sbx"))
    row = bench.compare(
        "sac_updates_per_cpu_s",
        value,
        "updates/CPU-s",
        f"{PEERS['sb3'].name} SAC",
        sb3,
        seeds=[SEED],
    )
    return [row | {"sbx_updates_per_cpu_s": round(sbx, 1)}]


def sac_ratio_vs_sb3(bench: Bench) -> list[dict]:
    """SAC with one HalfCheetah and a gradient step per step, compared with SB3 and SBX."""
    overrides = [
        *("env.num_envs=1", "num_steps_per_env=100", "replay_size=1_000_000"),
        *("algorithm.updates_per_step=1.0", "algorithm.batch_size=256", "algorithm.n_steps=1"),
        *("algorithm.warmup_steps=200", f"env.task={TASK}"),
    ]
    iterations = bench.size(20, 1)
    words = ("--steps", 100 * iterations, "--updates", 0)
    ours, sb3, sbx = median_paces(
        lambda: of_training(preset("halfcheetah-sac", overrides), 4, iterations),
        lambda: bench.pace("sb3-sac", *words),
        lambda: bench.pace("sbx-sac", *words),
        repeats=bench.size(3, 1),
    )
    return [
        bench.paces(f"sac_ratio_vs_{key}", ours, f"{PEERS[key].name} SAC", peer)
        for key, peer in (("sb3", sb3), ("sbx", sbx))
    ]


def replay_1m_mb(bench: Bench) -> list[dict]:
    """Resident memory of a full replay buffer with a million transitions of HalfCheetah."""
    import torch

    from rrf.storage.replay import Replay, RowLayout

    num_envs, size = 1000, bench.size(1_000_000, 100_000)
    layout, generator = RowLayout(_OBSERVATIONS, None, _ACTIONS), torch.Generator()
    Replay(layout, num_envs, num_envs).write(**_transitions(num_envs, generator))  # loads libraries
    before = _resident_bytes()
    replay = Replay(layout, size, num_envs)
    for _ in range(replay.num_steps):
        replay.write(**_transitions(num_envs, generator))
    value = (_resident_bytes() - before) / 1e6
    peer = bench.peer("sb3-sac", "--steps", 10, "--updates", 0)["replay_mb"]
    row = bench.compare(
        "replay_1m_mb", value, "MB", f"{PEERS['sb3'].name} ReplayBuffer", peer, is_cost=True
    )
    return [row | {"bytes_per_transition": layout.width * 4}]


def _sac_update() -> Callable[[], typing.Any]:
    """A function for one gradient step of SAC, from a replay buffer of random transitions."""
    import torch

    from rrf.compiled.acceleration import accelerate
    from rrf.envs.control_env import Interface
    from rrf.policies.control.off_policy_configs import ActorQPackCfg
    from rrf.runners.control.off_policy_configs import OffPolicyRunnerCfg

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    num_envs, size = 1000, 100_000
    policy = ActorQPackCfg().build(Interface({"policy": _OBSERVATIONS}, _ACTIONS))
    cfg = typing.cast(OffPolicyRunnerCfg, preset("halfcheetah-sac", []))
    learner = cfg.algorithm.build(policy, num_envs, size, generator, "cpu")
    accelerate(learner)  # as the runner does
    for _ in range(size // num_envs):
        learner.replay.write(**_transitions(num_envs, generator))

    def update() -> None:
        for batch, noise in learner.batches(1):
            (learner.compiled or learner).learn(batch, noise)

    return update


def _transitions(num_envs: int, generator: typing.Any) -> dict[str, typing.Any]:
    """A random time step of all environments for the replay buffer, with HalfCheetah's sizes."""
    import torch

    never = torch.zeros(num_envs, dtype=torch.bool)
    return {
        "observations": torch.randn(num_envs, _OBSERVATIONS, generator=generator),
        "actions": torch.rand(num_envs, _ACTIONS, generator=generator) * 2 - 1,
        "rewards": torch.randn(num_envs, generator=generator),
        "terminated": never,
        "ended": never,
        "next_observations": torch.randn(num_envs, _OBSERVATIONS, generator=generator),
    }


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
