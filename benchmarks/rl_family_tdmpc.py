"""Measure plans and updates of TD-MPC2, ours in this process, the official ones in their own
(`tdmpc_peer`), with the same model of 1M parameters, in turns. For `benchmarks.rl_family`.
"""

import statistics

import torch
from tensordict import TensorDict

from benchmarks.record import ROOT, number
from benchmarks.rl_pace import SEED, Bench, NotMeasuredError, measured_apart, preset
from benchmarks.tdmpc_peer import median_cpu_s
from rrf.algorithms.planning.tdmpc2 import TDMPC2
from rrf.envs.control_env import Interface

OFFICIAL = "official TD-MPC2 e9f5932"
_ADVICE = (
    "give a checkout of github.com/nicklashansen/tdmpc2 with --source, and an interpreter that has "
    "torch and tensordict with --peers"
)
BATCH, SAMPLES, ELITES, POLICY_SAMPLES, ITERATIONS = 256, 128, 64, 24, 4
_OBSERVATIONS, _ACTIONS, _STORED, _EPISODE = 3, 1, 2000, 200


def tdmpc2_plan_ms(bench: Bench) -> list[dict]:
    """CPU-milliseconds of one plan of 128 samples and 4 iterations."""
    (plan, _), (official, _) = _in_turns(bench)
    return [_row("tdmpc2_plan_ms", 1000 * plan, "ms", 1000 * official, official / plan)]


def tdmpc2_ratio_vs_official(bench: Bench) -> list[dict]:
    """Environment steps per CPU-second, each with one plan and one update of 256 sequences."""
    ours, theirs = _in_turns(bench)
    pace, official = 1 / sum(ours), 1 / sum(theirs)
    row = _row("tdmpc2_ratio_vs_official", pace, "steps/cpu-s", official, pace / official)
    parts = {}
    for part, one, other in zip(("plan", "update"), ours, theirs, strict=True):
        parts |= {
            f"{part}_ms": round(1000 * one, 1),
            f"peer_{part}_ms": round(1000 * other, 1),
            f"{part}_ratio": round(other / one, 2),
        }
    return [row | parts]


def ours_s(bench: Bench) -> tuple[float, float]:
    """The median CPU-seconds of our plan and of our update."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    algorithm = _algorithm()
    observation = TensorDict({"policy": torch.randn(1, _OBSERVATIONS)}, [1])
    plan_s = median_cpu_s(lambda: algorithm.act(observation), bench.size(30, 1))
    return plan_s, median_cpu_s(lambda: algorithm.make_updates(1), bench.size(15, 1))


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
    source = bench.source("tdmpc2/tdmpc2.py")
    if source is None:
        raise NotMeasuredError(f"{OFFICIAL}: {_ADVICE}")
    words = ("--samples", SAMPLES, "--elites", ELITES, "--policy-samples", POLICY_SAMPLES)
    sizes = ("--plans", bench.size(30, 1), "--updates", bench.size(15, 1), "--batch", BATCH)
    peer = ROOT / "benchmarks" / "tdmpc_peer.py"
    command = [bench.python, peer, source, *words, *sizes, "--plan-iterations", ITERATIONS]
    found = measured_apart(OFFICIAL, list(map(str, command)))
    return found["plan_s"], found["update_s"]


def _in_turns(bench: Bench) -> tuple[tuple[float, float], tuple[float, float]]:
    """Median CPU-seconds of plan and update, ours and the official ones, under the same load."""
    rounds = [(ours_s(bench), _official_s(bench)) for _ in range(bench.size(3, 1))]
    ours, theirs = (
        tuple(statistics.median(one[who][what] for one in rounds) for what in (0, 1))
        for who in (0, 1)
    )
    return ours, theirs  # pyright: ignore[reportReturnType]


def _row(id: str, value: float, unit: str, theirs: float, ratio: float) -> dict:
    return number(
        id,
        value,
        unit,
        command=f"python -m benchmarks.rl_family {id} --source SOURCE",
        peer=OFFICIAL,
        peer_value=theirs,
        ratio=ratio,
        seeds=[SEED],
    )
