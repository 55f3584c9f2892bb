"""mjlab's arm that lifts a cube: steps and images per CPU-second, and how often it is lifted.

`python -m benchmarks.platforms yam_lift_success` trains; `--policy CHECKPOINT` evaluates one.
"""

import tempfile
from pathlib import Path

import torch

from benchmarks import harness
from benchmarks.harness import Bench, Measure
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.evaluation.cpu_time import cpu_seconds
from rrf.evaluation.results import FILE_NAME, Evaluation

_TASK = "Mjlab-Lift-Cube-Yam"
_WARM_UP = 10
_FINER = ["algorithm.learning_rate=3e-4", "algorithm.beta=0", "max_iterations=38"]


def env_steps(bench: Bench) -> dict:
    """Steps of 256 environments with random actions, beside mjlab's own on Warp's CPU device."""
    ours = _steps(MjlabEnvCfg(task=_TASK, num_envs=256, backend="native"), bench.size(100, 2))
    theirs = _steps(MjlabEnvCfg(task=_TASK, num_envs=256, backend="mjlab"), bench.size(3, 1), 1)
    peer, unit = "mjlab, Warp on the CPU, 256 environments", "env-steps/CPU-s"
    return bench.compare("yam_env_steps_per_cpu_s", ours, unit, peer, theirs, seeds=[0])


def depth_images(bench: Bench) -> dict:
    """Steps of 64 environments, each with an image of 32 x 32 pixels."""
    cfg = MjlabEnvCfg(task=f"{_TASK}-Depth", num_envs=64, backend="native")
    rate = _steps(cfg, bench.size(100, 2), bench.size(60, 2))  # graphs are recorded after 50
    return bench.number("yam_depth_images_per_cpu_s", rate, "images/CPU-s", seeds=[0])


def _steps(cfg: MjlabEnvCfg, num_steps: int, warm_up: int = _WARM_UP) -> float:
    env = cfg.build(seed=0)
    generator = torch.Generator().manual_seed(0)
    try:
        for _ in range(warm_up):
            env.step(torch.randn(env.num_envs, env.num_actions, generator=generator))
        begun = cpu_seconds()
        for _ in range(num_steps):
            env.step(torch.randn(env.num_envs, env.num_actions, generator=generator))
        return num_steps * env.num_envs / (cpu_seconds() - begun)
    finally:
        env.close()


def lift(bench: Bench) -> dict:
    """Imitation of the scripted expert, then smaller steps of it; the gate's protocol."""
    with tempfile.TemporaryDirectory() as scratch:
        policy = bench.options.policy or _teacher(bench, Path(scratch))
        return _success(bench, "yam_lift_success", policy, "yam-lift-cube", Path(scratch))


def lift_by_ppo(bench: Bench) -> dict:
    """PPO alone, whose episodes begin where the script has been; the gate's protocol."""
    with tempfile.TemporaryDirectory() as scratch:
        policy = bench.options.policy
        if policy is None:
            folder = Path(scratch, "ppo")
            policy = harness.train("yam-lift-cube-ppo-shown", folder, _short(bench))["checkpoint"]
        return _success(bench, "yam_lift_ppo_success", policy, "yam-lift-cube", Path(scratch))


def lift_by_depth(bench: Bench) -> dict:
    """The same, and a student that sees the cube by the depth camera at the wrist."""
    with tempfile.TemporaryDirectory() as scratch:
        policy = bench.options.policy
        if policy is None:
            teacher = _teacher(bench, Path(scratch))
            words = [f"teacher={teacher}", *_short(bench)]
            run = harness.train("yam-lift-cube-depth", Path(scratch, "student"), words)
            policy = run["checkpoint"]
        id = "yam_lift_depth_success"
        return _success(bench, id, policy, "yam-lift-cube-depth", Path(scratch))


def _teacher(bench: Bench, scratch: Path) -> str:
    imitated = harness.train("yam-lift-cube-imitation", scratch / "imitation", _short(bench))
    words = [f"init_from={imitated['checkpoint']}", *_FINER, *_short(bench)]
    return harness.train("yam-lift-cube-imitation", scratch / "finer", words)["checkpoint"]


def _short(bench: Bench) -> list[str]:
    return bench.size([], ["max_iterations=1"])  # the last of two entries counts


def _success(bench: Bench, id: str, policy: Path | str, gate: str, scratch: Path) -> dict:
    folder = scratch / "evaluation"
    words = ("eval", str(policy), "--gate", f"configs/gates/{gate}.yaml", "--out", str(folder))
    harness.run_rrf(*words, "--num-videos", "0")
    evaluation = Evaluation.load(folder / FILE_NAME)
    solved = sum(episode.success for episode in evaluation.episodes)
    print(f"{solved} of {len(evaluation.episodes)} cubes within 5 cm of their goals after 8 s")
    share = solved / len(evaluation.episodes)
    return bench.number(id, share, "of 1", seeds=[0])


IDS: dict[str, Measure] = {
    "yam_env_steps_per_cpu_s": env_steps,
    "yam_depth_images_per_cpu_s": depth_images,
    "yam_lift_success": lift,
    "yam_lift_ppo_success": lift_by_ppo,
    "yam_lift_depth_success": lift_by_depth,
}
