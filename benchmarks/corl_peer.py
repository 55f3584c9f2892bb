"""Run CORL's IQL or CQL: `PYTHON -m benchmarks.corl_peer SOURCE iql|cql [--data FILE ...]
[--task ID] [--updates N] [--seed N] [--episodes N] [--starts SEED ...] [--points N]
[--device cpu]`.

SOURCE is a checkout of github.com/tinkoff-ai/CORL, and PYTHON any interpreter that has torch, h5py
and gymnasium. Their `train` runs unchanged, on files of D4RL or, without `--data`, on random
transitions of HalfCheetah's sizes. Four modules that it imports are replaced: gym by gymnasium
behind the old interface, d4rl by a reader of the given files, pyrallis and wandb by nothing.

The last line of output is JSON: `updates_per_cpu_s`, without the first 20, and `return`, the mean
of the episodes that CORL plays at the end; null without `--data`. With `--points`, they are played
that often, and `curve` has the steps and mean returns.
"""

import argparse
import importlib.util
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

from benchmarks.rl_peers import scaled_task, scaled_transitions, starts

_WARM_UP = 20


def main() -> None:
    """Train, and print the numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("algorithm", choices=("iql", "cql"))
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--task", default="HalfCheetah-v5")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--starts", nargs="*", type=int, default=[], help="seeds of these episodes")
    parser.add_argument("--points", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    words = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    marks: list[float] = []
    scores: list[float] = []
    modules = _modules(words, marks, scores)
    sys.modules |= modules
    corl = _load(words.source / "algorithms" / "offline" / f"{words.algorithm}.py")
    options: dict[str, Any] = {"q_n_hidden_layers": 2} if words.algorithm == "cql" else {}
    if words.data:
        options["normalize_reward"] = words.algorithm == "iql"  # as in their configs
    interval = (words.updates + _WARM_UP) // words.points
    corl.train(
        corl.TrainConfig(
            device=words.device,
            env=words.task.lower(),
            seed=words.seed,
            max_timesteps=words.updates + _WARM_UP,
            eval_freq=interval if words.data else 10**9,
            n_episodes=len(starts(words)),
            buffer_size=2_000_000 if words.data else 50_000,
            **options,
        )
    )
    pace = words.updates / (marks[-1] - marks[_WARM_UP - 1])
    curve = [(interval * (k + 1), value) for k, value in enumerate(scores)]
    last = scores[-1] if scores else None
    print(json.dumps({"updates_per_cpu_s": pace, "return": last, "curve": curve}))


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("corl", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules["corl"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _modules(words: argparse.Namespace, marks: list[float], scores: list[float]) -> dict:
    """The replaced modules. `marks` receives the CPU-seconds at the end of each update, `scores`
    the mean return of the episodes that are played."""
    gym = types.ModuleType("gym")
    gym.__dict__.update(
        Env=object,
        make=lambda task: _OldEnv(words.task, scores, starts(words)),
        wrappers=types.SimpleNamespace(TransformObservation=_Transformed),
    )
    d4rl = types.ModuleType("d4rl")
    d4rl.__dict__["qlearning_dataset"] = lambda env: _with_next(scaled_transitions(words))
    pyrallis = types.ModuleType("pyrallis")
    pyrallis.__dict__["wrap"] = lambda: lambda function: function
    wandb = types.ModuleType("wandb")
    wandb.__dict__.update(
        init=lambda **options: None,
        run=types.SimpleNamespace(save=lambda: None),
        log=lambda metrics, step: len(metrics) > 1 and marks.append(time.process_time()),
    )
    return {"gym": gym, "d4rl": d4rl, "pyrallis": pyrallis, "wandb": wandb}


def _with_next(recorded: dict[str, Any]) -> dict[str, Any]:
    """As d4rl.qlearning_dataset: without the last transition of an episode that ran out of time,
    whose next observation D4RL does not have."""
    keeps = ~(recorded["timeouts"] & ~recorded["terminals"].astype(bool))
    keeps[-1] = False
    after = recorded["observations"][1:][keeps[:-1]]
    names = ("observations", "actions", "rewards", "terminals")
    kept = {name: recorded[name][keeps].astype("float32") for name in names}
    return kept | {"next_observations": after.astype("float32")}


class _OldEnv:
    """A task of gymnasium behind the interface that gym had before it."""

    def __init__(self, task: str, scores: list[float], starts: list[int]):
        self.env, self.scores = scaled_task(task), scores
        self.starts, self.left = starts, iter(starts)
        self.observation_space, self.action_space = (
            self.env.observation_space,
            self.env.action_space,
        )

    def seed(self, seed: int) -> None:
        self.left = iter(self.starts)

    def reset(self) -> Any:
        return self.env.reset(seed=next(self.left))[0]

    def step(self, action: Any) -> tuple:
        observation, reward, terminated, truncated, facts = self.env.step(action)
        return observation, reward, terminated or truncated, facts

    def get_normalized_score(self, value: float) -> float:
        self.scores.append(value)
        return value


class _Transformed:
    """gym.wrappers.TransformObservation."""

    def __init__(self, env: Any, function: Any):
        self.env, self.function = env, function

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self) -> Any:
        return self.function(self.env.reset())

    def step(self, action: Any) -> tuple:
        observation, *rest = self.env.step(action)
        return (self.function(observation), *rest)


if __name__ == "__main__":
    main()
