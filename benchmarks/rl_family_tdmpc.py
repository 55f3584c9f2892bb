"""Measure plans and updates of TD-MPC2, ours in this process, the official ones in their own
(`tdmpc_peer`), with the same model of 1M parameters, in turns.

`python -m benchmarks.rl_family_tdmpc --source SOURCE [ID ...]`, with SOURCE a checkout of
github.com/nicklashansen/tdmpc2, prints the rows.
"""

import argparse
import json
import statistics
import subprocess
from pathlib import Path

import torch
from tensordict import TensorDict

from benchmarks.record import ROOT, number
from benchmarks.rl_pace import SEED, Bench, NotMeasuredError, preset
from benchmarks.tdmpc_peer import median_cpu_s
from rrf.algorithms.planning.tdmpc2 import TDMPC2
from rrf.envs.control_env import Interface

OFFICIAL = "official TD-MPC2 e9f5932"
BATCH, SAMPLES, ELITES, POLICY_SAMPLES, ITERATIONS = 256, 128, 64, 24, 4
_OBSERVATIONS, _ACTIONS, _STORED, _EPISODE = 3, 1, 2000, 200


def tdmpc2_plan_ms(bench: Bench, source: Path) -> list[dict]:
    """CPU-milliseconds of one plan of 128 samples and 4 iterations."""
    (plan, _), (official, _) = _in_turns(bench, source)
    return [_row("tdmpc2_plan_ms", 1000 * plan, "ms", 1000 * official, official / plan)]


def tdmpc2_ratio_vs_official(bench: Bench, source: Path) -> list[dict]:
    """Environment steps per CPU-second, each with one plan and one update of 256 sequences."""
    ours, theirs = _in_turns(bench, source)
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


IDS = {one.__name__: one for one in (tdmpc2_plan_ms, tdmpc2_ratio_vs_official)}


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


def _official_s(bench: Bench, source: Path) -> tuple[float, float]:
    """The median CPU-seconds of the official plan and update, measured in a process of its own."""
    words = ("--samples", SAMPLES, "--elites", ELITES, "--policy-samples", POLICY_SAMPLES)
    sizes = ("--plans", bench.size(30, 1), "--updates", bench.size(15, 1), "--batch", BATCH)
    peer = ROOT / "benchmarks" / "tdmpc_peer.py"
    command = [bench.python, peer, source, *words, *sizes, "--plan-iterations", ITERATIONS]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise NotMeasuredError(
            f"{OFFICIAL}: {said[-1]}; give a checkout of github.com/nicklashansen/tdmpc2 with "
            "--source, and an interpreter that has torch and tensordict with --peers"
        )
    found = json.loads(done.stdout.splitlines()[-1])
    return found["plan_s"], found["update_s"]


def _in_turns(bench: Bench, source: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    """Median CPU-seconds of plan and update, ours and the official ones, under the same load."""
    rounds = [(ours_s(bench), _official_s(bench, source)) for _ in range(bench.size(3, 1))]
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
        command=f"python -m benchmarks.rl_family_tdmpc --source SOURCE {id}",
        peer=OFFICIAL,
        peer_value=theirs,
        ratio=ratio,
        seeds=[SEED],
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure the named numbers and print their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", choices=list(IDS), default=list(IDS))
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--peers", default=Bench.python, help="the peer's interpreter")
    parser.add_argument("--small", action="store_true")
    words = parser.parse_args(arguments)
    for id in words.ids:
        for row in IDS[id](Bench(words.peers, words.small), words.source):
            print(json.dumps(row, indent=2))


if __name__ == "__main__":
    main()
