"""Numbers of `rrf.envs.as_gymnasium` for `benchmarks.rl`: what it costs to step a Go1 through it,
and whether a trainer that knows only Gymnasium learns on it.
"""

import math
import runpy
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.clock import Pace, Stopwatch, median_paces
from benchmarks.harness import Bench
from benchmarks.record import ROOT
from benchmarks.rl_runs import SEED, preset
from rrf.envs import as_gymnasium

EXAMPLE = ROOT / "docs" / "how-to" / "other_trainers" / "ppo.py"
_ACTION_SETS = 16


def go1_as_gymnasium_ratio(bench: Bench) -> list[dict]:
    """Steps per second of Go1 as a `gymnasium.vector.VectorEnv`, beside the environment itself.

    Both are one environment, stepped in short turns with the same actions, so that both meet the
    same load.
    """
    cfg = preset("go1-flat-ppo", bench.size([], ["env.num_envs=16"])).env
    env, rounds = as_gymnasium(cfg, seed=SEED), bench.size(4, 2)
    env.reset()
    draws = np.random.default_rng(SEED)
    shape = (_ACTION_SETS, cfg.num_envs, env.env.num_actions)
    actions = draws.normal(0.0, 0.5, shape).astype(np.float32)
    tensors = torch.from_numpy(actions)
    _stepped(lambda index: env.env.step(tensors[index]), 5 * rounds, cfg.num_envs)  # a warm-up
    ours, native = median_paces(
        lambda: _stepped(lambda index: env.step(actions[index]), rounds, cfg.num_envs),
        lambda: _stepped(lambda index: env.env.step(tensors[index]), rounds, cfg.num_envs),
        repeats=bench.size(21, 1),
    )
    env.close()
    return [bench.paces("go1_as_gymnasium_ratio", ours, "the environment itself", native)]


def go1_other_trainer_return(bench: Bench) -> list[dict]:
    """Mean return of the last hundred episodes of Go1, by the PPO of the guide to other trainers.

    The peer is the same policy at the beginning.
    """
    cfg = preset("go1-flat-ppo", []).env.replace(num_envs=bench.size(512, 8))
    updates = bench.size(150, 2)
    torch.set_num_threads(1)
    train = runpy.run_path(str(EXAMPLE))["train"]
    curve = train(as_gymnasium(cfg, seed=SEED), updates, seed=SEED)
    returns = [value for value in curve if math.isfinite(value)] or [0.0]
    row = bench.number(
        "go1_other_trainer_return",
        returns[-1],
        f"return after {24 * cfg.num_envs * updates:,} steps",
        peer="its first episodes",
        peer_value=returns[0],
        seeds=[SEED],
    )
    return [row | {"curve": [round(value, 3) for value in returns[:: max(1, len(returns) // 25)]]}]


def _stepped(step: Callable[[int], object], rounds: int, num_envs: int) -> Pace:
    with Stopwatch() as watch:
        for index in range(rounds):
            step(index % _ACTION_SETS)
    return watch.pace(rounds * num_envs)
