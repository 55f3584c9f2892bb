"""Reinforcement learning of the compact policy: `python -m benchmarks.vla_rl [ID ...]`.

`metaworld_rl_episodes_per_s` and its shares take a minute. `headline` is the whole experiment, for
every seed in one piece: one demonstration per task, fine-tuning, evaluation, GRPO, evaluation on
held-out initial states, 50 per task. It measures `metaworld_success_before`,
`metaworld_success_after` and `metaworld_rl_wall_s`, and takes about a quarter of an hour per seed;
`headline --seeds 1` measures one seed and keeps the others' results.
The splits stand in `rrf/presets/vla_rl.py`; checkpoints are chosen on validation states only.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import record
from rrf import atomic, workspace
from rrf.evaluation.results import EvaluationReport

COMMAND = "python -m benchmarks.vla_rl"
PROTOCOL = "configs/protocols/metaworld-headline.yaml"
SEEDS = (0, 1, 2)
_ROUNDS = 4


def metaworld_rl_episodes_per_s() -> list[dict]:
    """Episodes per wall second of rollout and update together, with the shares of the time.

    The peer is what one writes without this package: Meta-World's own `env.step` and `env.render`
    through OpenGL, one episode after another, the same policy.
    """
    import torch

    from rrf.presets import resolve
    from rrf.runners.configs import VLARLRunnerCfg

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        parent = _train("compact-vla-one-demo", Path(scratch, "sft"), [])
        cfg = resolve("metaworld-grpo-compact", [f"init_from={parent['checkpoint']}"])
        assert isinstance(cfg, VLARLRunnerCfg)
        runner = cfg.replace(validation_episodes=1, max_rounds=_ROUNDS).build(Path(scratch, "rl"))
        rounds: list[dict] = []
        runner.run(on_progress=lambda progress: rounds.append(dict(progress.metrics)))
        peer = _naive_episodes_per_s(Path(parent["checkpoint"]))
    measured = rounds[1:]  # the first one loads tasks and records render graphs
    wall = sum(row["time/rollout"] + row["time/update"] for row in measured)
    rate = sum(row["env/num_trajectories"] for row in measured) / wall
    names = ("reset", "physics", "rendering", "inference", "update")
    shares = {name: sum(row[f"time/{name}"] for row in measured) for name in names}
    shares["update"] *= cfg.update_threads
    print("shares of CPU time:", {n: f"{v / sum(shares.values()):.0%}" for n, v in shares.items()})
    number = record.number(
        "metaworld_rl_episodes_per_s",
        rate,
        "episodes/s",
        command=f"{COMMAND} metaworld_rl_episodes_per_s",
        peer="a loop over Meta-World's env.step and env.render (egl), one process",
        peer_value=peer,
        ratio=None if peer is None else rate / peer,
        seeds=[cfg.seed],
    )
    total = sum(shares.values())
    return [number | {"shares": {name: round(value / total, 3) for name, value in shares.items()}}]


def headline(seeds: Sequence[int] = SEEDS, preset: str = "metaworld-grpo-compact") -> list[dict]:
    """The experiment for every seed; the table goes to `docs/benchmarks/headline/`.

    A seed that was measured before, in another call, stays in the table and in the means.
    """
    path = record.RESULTS / "headline" / f"{preset}.json"
    known = json.loads(path.read_text()) if path.is_file() else []
    results = {result["seed"]: result for result in known}
    for seed in seeds:
        results[seed] = _one_seed(seed, preset)
        path.parent.mkdir(exist_ok=True)
        atomic.write_json(path, [results[number] for number in sorted(results)])
    names = {"before": "metaworld_success_before", "after": "metaworld_success_after"}
    names["wall_s"] = "metaworld_rl_wall_s"
    return [
        record.number(
            names[name],
            statistics.mean(result[name] for result in results.values()),
            "s" if name == "wall_s" else "of 1",
            command=f"{COMMAND} headline",
            seeds=sorted(results),
        )
        for name in names
    ]


def _one_seed(seed: int, preset: str) -> dict:
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        parent = _train("compact-vla-one-demo", folder / "sft", [f"seed={seed}"])
        before = _evaluate(parent["checkpoint"], folder / "before")
        overrides = [f"seed={seed}", f"init_from={parent['checkpoint']}"]
        trained = _train(preset, folder / "rl", overrides)
        after = _evaluate(trained["checkpoint"], folder / "after")
        kept = workspace.state() / "headline" / f"{preset}-seed{seed}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder / "rl", kept / "rl")
        shutil.copytree(folder / "after", kept / "after")
    result = {
        "seed": seed,
        "commit": record.commit(),
        "before": before.overall.rate,
        "after": after.overall.rate,
        "wall_s": round(time.perf_counter() - begin, 1),
        "rl_wall_s": round(trained["wall_s"], 1),
        "episodes": trained["validations"][-1]["episodes"],
        "bounds_before": [before.overall.low, before.overall.high],
        "bounds_after": [after.overall.low, after.overall.high],
        "by_task": {
            task: {
                "before": before.per_task[task].successes,
                "after": rate.successes,
                "episodes": rate.episodes,
                "bounds_after": [rate.low, rate.high],
            }
            for task, rate in after.per_task.items()
        },
        "validations": trained["validations"],
    }
    print(json.dumps({k: v for k, v in result.items() if k != "validations"}), flush=True)
    return result


def _train(preset: str, run_dir: Path, overrides: list[str]) -> dict:
    words = [*overrides, "trackers=[]", "--run-dir", str(run_dir)]
    _rrf("train", preset, *words)
    return json.loads((run_dir / "result.json").read_text())


def _evaluate(checkpoint: str, out: Path) -> EvaluationReport:
    words = ["--protocol", PROTOCOL, "--out", str(out), "--workers", "2", "--num-videos", "0"]
    _rrf("eval", checkpoint, *words)
    return EvaluationReport.load(out)


def _rrf(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "rrf.cli", *words], check=True, cwd=workspace.home())


def _naive_episodes_per_s(checkpoint: Path, num_episodes: int = 3) -> float | None:
    from rrf.envs.rendering import probe_renderer

    if probe_renderer("egl") != "ok":
        return None
    done = subprocess.run(
        [sys.executable, "-c", _NAIVE, str(checkpoint), str(num_episodes)],
        env={**_environment(), "MUJOCO_GL": "egl"},
        check=True,
        capture_output=True,
        text=True,
        cwd=workspace.home(),
    )
    return float(done.stdout.splitlines()[-1])


def _environment() -> dict[str, str]:
    import os

    from rrf.envs.gl_platform import GL_PLATFORM

    return {name: value for name, value in os.environ.items() if name != GL_PLATFORM}


_NAIVE = """
import sys, time, warnings
warnings.filterwarnings("ignore")
import metaworld, numpy as np
from rrf.data.schema import Observation
from rrf.envs.metaworld_tasks import INSTRUCTIONS
from rrf.runners.checkpoint import load_policy
policy, task = load_policy(sys.argv[1]), "drawer-open-v3"
benchmark = metaworld.MT1(task, seed=42)
env = benchmark.train_classes[task](
    render_mode="rgb_array", camera_name="corner2", width=64, height=64
)
env.set_task(benchmark.train_tasks[0])
env.reset()
env.render()
begin = time.perf_counter()
for episode in range(int(sys.argv[2])):
    env.set_task(benchmark.train_tasks[episode])
    state, _ = env.reset()
    for decision in range(15):
        image = np.ascontiguousarray(env.render()[::-1, ::-1])
        seen = Observation(
            {"corner2": image[None]}, state[None, :4].astype(np.float32), [INSTRUCTIONS[task]]
        )
        for action in policy.sample(seen).actions[0]:
            for _ in range(5):
                state, _, _, _, info = env.step(np.clip(action, -1, 1))
        if info["success"]:
            break
print(int(sys.argv[2]) / (time.perf_counter() - begin))
"""


BENCHMARKS = {
    "metaworld_rl_episodes_per_s": metaworld_rl_episodes_per_s,
    "headline": headline,
}


def main() -> None:
    """Measure what is asked for and write `docs/benchmarks/vla_rl.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    words = parser.parse_args()
    for name in words.names or BENCHMARKS:
        numbers = headline(words.seeds) if name == "headline" else BENCHMARKS[name]()
        record.save("vla_rl", numbers)


if __name__ == "__main__":
    main()
