"""Numbers of the walking quadruped for `benchmarks.rl`: how fast PPO trains Go1, how long it takes
until Go1 walks, and how well it walks then.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.clock import Pace, Stopwatch, median_paces
from benchmarks.harness import Bench, train
from benchmarks.peers import PEERS, NotMeasuredError
from benchmarks.record import machine
from benchmarks.rl_runs import SEED, judged, of_training, preset, protocol_of
from rrf import workspace


def go1_flat_env_steps_per_s(bench: Bench) -> list[dict]:
    """Steps per second of PPO on Go1 with exact physics, including acting and learning."""
    return _go1_rows(bench, "go1_flat", "exact")


def go1_flat_fast_env_steps_per_s(bench: Bench) -> list[dict]:
    """The same as `go1_flat_env_steps_per_s`, with fast physics."""
    return _go1_rows(bench, "go1_flat_fast", "fast")


def go1_flat_ratio_vs_mjlab_cpu(bench: Bench) -> list[dict]:
    """PPO on Go1 with exact physics, compared with mjlab's own command on a CPU."""
    return _ratio_vs_mjlab(bench, "go1_flat", "go1-flat-ppo")


def go1_quick_ratio_vs_mjlab_cpu(bench: Bench) -> list[dict]:
    """The same with the smaller networks of go1-flat-quick; mjlab's command has its own."""
    return _ratio_vs_mjlab(bench, "go1_quick", "go1-flat-quick")


def _ratio_vs_mjlab(bench: Bench, name: str, of: str) -> list[dict]:
    ours = _go1_pace(bench, "exact", of)
    words = ("--num-envs", bench.size(256, 16), "--iterations", bench.size(3, 2), "--device", "cpu")
    mjlab = f"{PEERS['mjlab'].name}, Warp on the CPU, 256 environments"
    peer = bench.pace("mjlab-ppo", *words)
    return [bench.paces(f"{name}_ratio_vs_mjlab_cpu", ours, mjlab, peer)]


def mjlab_go1_4096_gpu_steps_per_s(bench: Bench) -> list[dict]:
    """Our PPO on mjlab with 4,096 environments on a GPU, compared with rsl_rl on the same GPU."""
    import torch

    if not torch.cuda.is_available():
        raise NotMeasuredError("torch sees no GPU")
    num_envs = bench.size(4096, 256)
    overrides = [f"env.num_envs={num_envs}", "device=cuda:0", "env.backend=mjlab"]
    iterations = bench.size(30, 2)
    words = ("--device", "cuda:0", "--num-envs", num_envs, "--iterations", iterations + 5)
    ours, peer = median_paces(
        lambda: of_training(preset("go1-flat-ppo", overrides), 5, iterations),
        lambda: bench.pace("mjlab-ppo", *words),
        repeats=bench.size(2, 1),
    )
    mjlab = f"{PEERS['mjlab'].name}, the same GPU"
    row = bench.paces("mjlab_go1_4096_gpu_steps_per_s", ours, mjlab, peer)
    return [row | {"machine": f"{torch.cuda.get_device_name(0)}, {machine()}"}]


def go1_flat_walk(bench: Bench) -> list[dict]:
    """Run `rrf train go1-flat-ppo` to the end, then evaluate under the protocol of its gate."""
    return _walk_rows(bench, "go1_flat", "go1-flat-ppo")


def go1_quick_walk(bench: Bench) -> list[dict]:
    """The same with `rrf train go1-flat-quick`."""
    return _walk_rows(bench, "go1_quick", "go1-flat-quick")


def _walk_rows(bench: Bench, name: str, of: str) -> list[dict]:
    trained = _walk(bench, name.replace("_", "-"), (), of)
    seeds = [SEED]
    facts = {
        "env_steps": trained["num_steps"],
        "learning_wall_s": round(trained["wall_s"], 1),  # without start-up and saving
        "learning_cpu_s": round(trained["cpu_s"], 1),
    }
    return [
        bench.number(f"{name}_walk_wall_s", trained["command_wall_s"], "s", seeds=seeds) | facts,
        bench.number(f"{name}_tracking_error", trained["tracking_error_xy"], "m/s", seeds=seeds)
        | {"success": trained["success"]},
        bench.number(f"{name}_falls", trained["falls"], trained["of_episodes"], seeds=seeds),
    ]


def go1_flat_fast_tracking_error(bench: Bench) -> list[dict]:
    """Train with fast physics, then evaluate under the gate's protocol, which has exact physics."""
    trained = _walk(bench, "go1-flat-fast", ["env.physics=fast"])
    seeds, error = [SEED], trained["tracking_error_xy"]
    return [
        bench.number("go1_flat_fast_walk_wall_s", trained["command_wall_s"], "s", seeds=seeds),
        bench.number("go1_flat_fast_tracking_error", error, "m/s on exact physics", seeds=seeds)
        | {"success": trained["success"]},
        bench.number("go1_flat_fast_falls", trained["falls"], trained["of_episodes"], seeds=seeds),
    ]


def _go1_pace(bench: Bench, physics: str, of: str = "go1-flat-ppo") -> Pace:
    overrides = ["env.backend=native", "device=cpu", f"env.physics={physics}"]
    overrides += bench.size([], ["env.num_envs=16"])
    warm_up, iterations = bench.size((5, 20), (1, 2))
    return of_training(preset(of, overrides), warm_up, iterations)


def _go1_rows(bench: Bench, name: str, physics: str) -> list[dict]:
    pace, id, seeds = _go1_pace(bench, physics), f"{name}_env_steps_per", [SEED]
    return [
        bench.number(f"{id}_s", pace.steps_per_s, "env-steps/s", seeds=seeds),
        bench.number(f"{id}_cpu_s", pace.steps_per_cpu_s, "env-steps/CPU-s", seeds=seeds),
    ]


def _walk(bench: Bench, name: str, overrides: Sequence[str], of: str = "go1-flat-ppo") -> dict:
    """Train Go1 from scratch with the command that a user types, and evaluate the result."""
    run_dir = workspace.state() / "benchmarks" / f"{name}{bench.size('', '-small')}"
    shutil.rmtree(run_dir, ignore_errors=True)
    small = ["max_iterations=2", "env.num_envs=16"]
    words = [*overrides, f"seed={SEED}", "device=cpu", *bench.size([], small)]
    with Stopwatch() as watch:
        result = train(of, run_dir, words)
    evaluated = _evaluated(Path(result["checkpoint"]), bench)
    return result | {"command_wall_s": watch.wall_s} | evaluated


def _evaluated(checkpoint: Path, bench: Bench) -> dict:
    """Evaluate a policy under the protocol of the gate."""
    protocol = protocol_of("go1-flat")
    if bench.is_small:
        env = protocol.env.replace(num_envs=len(protocol.tasks))
        protocol = protocol.replace(episodes_per_task=1, max_episode_steps=100, env=env)
    report = judged(checkpoint, protocol)
    report.save(checkpoint.parent / "evaluation" / "evaluation.json")
    return {
        "tracking_error_xy": report.mean_metrics()["tracking_error_xy"],
        "falls": sum(episode.metrics["fall"] for episode in report.episodes),
        "of_episodes": f"of {len(report.episodes)} episodes",
        "success": report.overall.rate,
    }
