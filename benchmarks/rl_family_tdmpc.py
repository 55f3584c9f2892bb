"""Measure plans and updates of TD-MPC2, ours in this process, the official ones in their own
(`tdmpc_peer`), with the same model of 1M parameters, in turns. For `benchmarks.rl_family`.
"""

import statistics

import torch
from tensordict import TensorDict

from benchmarks.clock import in_turns, median_cpu_s
from benchmarks.harness import Bench
from benchmarks.peers import PEERS
from benchmarks.rl_runs import SEED, preset
from rrf.algorithms.planning.tdmpc2 import TDMPC2
from rrf.envs.control_env import Interface

BATCH, SAMPLES, ELITES, POLICY_SAMPLES, ITERATIONS = 256, 128, 64, 24, 4
_OBSERVATIONS, _ACTIONS, _STORED, _EPISODE = 3, 1, 2000, 200


def tdmpc2_plan_ms(bench: Bench) -> list[dict]:
    """CPU-milliseconds of one plan of 128 samples and 4 iterations."""
    (plan, _), (official, _) = _in_turns(bench)
    return [_row(bench, "tdmpc2_plan_ms", 1000 * plan, "ms", 1000 * official, is_cost=True)]


def tdmpc2_ratio_vs_official(bench: Bench) -> list[dict]:
    """Environment steps per CPU-second, each with one plan and one update of 256 sequences."""
    ours, peer = _in_turns(bench)
    pace, official = 1 / sum(ours), 1 / sum(peer)
    row = _row(bench, "tdmpc2_ratio_vs_official", pace, "steps/cpu-s", official)
    parts = {}
    for part, ours_s, peer_s in zip(("plan", "update"), ours, peer, strict=True):
        parts |= {
            f"{part}_ms": round(1000 * ours_s, 1),
            f"peer_{part}_ms": round(1000 * peer_s, 1),
            f"{part}_ratio": round(peer_s / ours_s, 2),
        }
    return [row | parts]


def _ours_s(bench: Bench) -> tuple[float, float]:
    """The median CPU-seconds of our plan and of our update."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    algorithm = _algorithm()
    observation = TensorDict({"policy": torch.randn(1, _OBSERVATIONS)}, [1])
    plans, updates = bench.size((30, 15), (1, 1))
    [plan_s] = median_cpu_s(lambda: algorithm.act(observation), repeats=plans, warm_up=3)
    [update_s] = median_cpu_s(lambda: algorithm.make_updates(1), repeats=updates, warm_up=3)
    return plan_s, update_s


def _algorithm() -> TDMPC2:
    """TD-MPC2 past its warm-up, with a replay of random transitions."""
    planner = f"num_samples={SAMPLES} num_elites={ELITES} iterations={ITERATIONS}"
    words = [f"policy.actor_cfg.planner.{word}" for word in planner.split()]
    words.append(f"policy.actor_cfg.planner.num_policy_samples={POLICY_SAMPLES}")
    cfg = preset("pendulum-tdmpc2", [*words, f"algorithm.batch_size={BATCH}"])
    policy = cfg.policy.build(Interface({"policy": _OBSERVATIONS}, _ACTIONS))  # pyright: ignore[reportAttributeAccessIssue]
    generator = torch.Generator().manual_seed(SEED)
    algorithm = cfg.algorithm.build(policy, 1, _STORED, generator)  # pyright: ignore[reportAttributeAccessIssue]
    for step in range(_STORED):
        algorithm.replay.write(
            observations=torch.randn(1, _OBSERVATIONS),
            actions=torch.rand(1, _ACTIONS) * 2 - 1,
            rewards=torch.randn(1),
            terminated=torch.zeros(1, dtype=torch.bool),
            ended=torch.tensor([step % _EPISODE == _EPISODE - 1]),
            next_observations=torch.randn(1, _OBSERVATIONS),
        )
    algorithm.num_observed = cfg.algorithm.warmup_steps  # pyright: ignore[reportAttributeAccessIssue]
    return algorithm


def _official_s(bench: Bench) -> tuple[float, float]:
    """The median CPU-seconds of the official plan and update, measured in a process of its own."""
    words = ("--samples", SAMPLES, "--elites", ELITES, "--policy-samples", POLICY_SAMPLES)
    words += ("--plans", bench.size(30, 1), "--updates", bench.size(15, 1), "--batch", BATCH)
    printed = bench.peer("tdmpc2", *words, "--plan-iterations", ITERATIONS)
    return printed["plan_s"], printed["update_s"]


def _in_turns(bench: Bench) -> list[tuple[float, float]]:
    """Median CPU-seconds of plan and update, ours and the official ones."""
    rounds = in_turns(lambda: _ours_s(bench), lambda: _official_s(bench), repeats=bench.size(3, 1))
    return [
        (statistics.median(plan_s for plan_s, _ in side), statistics.median(s for _, s in side))
        for side in rounds
    ]


def _row(
    bench: Bench, id: str, value: float, unit: str, official: float, is_cost: bool = False
) -> dict:
    name, seeds = PEERS["tdmpc2"].name, [SEED]
    row = bench.compare(id, value, unit, name, official, is_cost=is_cost, seeds=seeds)
    return row | {"command": f"{bench.command} --source SOURCE"}
