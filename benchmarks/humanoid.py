"""The three levels of a humanoid: how well System 0 follows, how fast it trains and ticks.

    python -m benchmarks.humanoid [ID ...] [--policy CHECKPOINT] [--combination CHECKPOINT]

Without `--policy`, System 0 is the one that comes with rrf, and g1-tracking-ppo is trained first.
`g1_flat_walk_wall_s` trains System 0 from random weights, which takes more than an hour.
What the three levels reach together is in `python -m benchmarks.vla_rl hierarchy`.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from benchmarks import harness
from benchmarks.clock import Stopwatch
from benchmarks.harness import Bench, Measure
from benchmarks.peers import NotMeasuredError
from rrf import workspace
from rrf.envs.humanoid import body, command
from rrf.envs.humanoid.balancer import load_balancer, standing_command
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.envs.humanoid.simulated_robot import SimulatedRobot, standing_data
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.cpu_time import cpu_seconds
from rrf.evaluation.intervals import wilson
from rrf.evaluation.results import FILE_NAME, Evaluation
from rrf.hierarchy.combination import hierarchy_of
from rrf.hierarchy.play import play

_WHOLE_BODY = {
    "velocity_error": ("amo_velocity_error", "m/s"),
    "height_error": ("amo_height_error_m", "m"),
    "torso_error": ("amo_torso_error_rad", "rad"),
    "unasked_sway": ("amo_unasked_sway", "rad/s"),
}
_WALKING = {
    "tracking_error_xy": ("g1_tracking_error", "m/s"),
    "tracking_error_yaw": ("g1_tracking_error_yaw", "rad/s"),
}
_TRACKING = {
    "mpjpe": ("tracking_mpjpe_mm", "mm"),
    "velocity_error": ("tracking_velocity_error", "m/s"),
    "height_error": ("tracking_height_error_m", "m"),
}
_WARM_UP = 10


def env_steps(bench: Bench) -> dict:
    """Steps of 512 robots with random actions, exact physics, beside mjlab's G1 on flat ground,
    with mjlab's terms on native MuJoCo, too."""
    steps = bench.size(100, 2)
    ours = _steps(WholeBodyEnvCfg(num_envs=512, histories="none", first_level=1.0), steps)
    peer = "mjlab's terms of Velocity-Flat-Unitree-G1 on native MuJoCo"
    theirs = _steps(MjlabEnvCfg(task="Mjlab-Velocity-Flat-Unitree-G1", num_envs=512), steps)
    id, unit = "g1_whole_body_env_steps_per_cpu_s", "env-steps/CPU-s"
    return bench.compare(id, ours, unit, peer, theirs, seeds=[0])


def _steps(cfg: WholeBodyEnvCfg | MjlabEnvCfg, num_steps: int) -> float:
    env = cfg.build(seed=0)
    generator = torch.Generator().manual_seed(0)
    try:
        for _ in range(_WARM_UP):
            env.step(0.1 * torch.randn(env.num_envs, env.num_actions, generator=generator))
        begun = cpu_seconds()
        for _ in range(num_steps):
            env.step(0.1 * torch.randn(env.num_envs, env.num_actions, generator=generator))
        return num_steps * env.num_envs / (cpu_seconds() - begun)
    finally:
        env.close()


def whole_body(bench: Bench) -> list[dict]:
    """Errors and falls on held-out commands over their whole range: the gate's protocol."""
    policy = bench.options.policy or workspace.find(HumanoidCfg.system0)
    return _judged(bench, policy, "g1-whole-body", "g1_whole_body_falls", _WHOLE_BODY)


def walking(bench: Bench) -> list[dict]:
    """Errors and falls at ten velocities, upright, with still arms and without pushes."""
    policy = bench.options.policy or workspace.find(HumanoidCfg.system0)
    return _judged(bench, policy, "g1-walk", "g1_falls", _WALKING)


def from_scratch(bench: Bench) -> dict:
    """How long the training of System 0 takes, after which it walks at these velocities."""
    words = ["seed=0", *bench.size([], ["max_iterations=1"])]
    with tempfile.TemporaryDirectory() as scratch:
        with Stopwatch() as watch:
            result = harness.train("g1-whole-body-ppo", Path(scratch, "run"), words)
        judged = _judged(bench, result["checkpoint"], "g1-walk", "g1_falls", _WALKING)
    facts = {"env_steps": result["num_steps"], "learning_cpu_s": round(result["cpu_s"], 1)}
    row = bench.number("g1_flat_walk_wall_s", watch.wall_s, "s", seeds=[0])
    return row | facts | {each["id"]: each["value"] for each in judged}


def tracking(bench: Bench) -> list[dict]:
    """Errors and falls on the clips that rrf comes with, from held-out starts."""
    policy = bench.options.policy
    with tempfile.TemporaryDirectory() as scratch:
        if policy is None:
            words = bench.size([], ["max_iterations=1"])
            policy = harness.train("g1-tracking-ppo", Path(scratch, "run"), words)["checkpoint"]
        return _judged(bench, policy, "g1-tracking", "tracking_falls", _TRACKING)


def _judged(
    bench: Bench, policy: Path, gate: str, of_falls: str, ids: Mapping[str, tuple[str, str]]
) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        words = ("eval", str(policy), "--gate", f"configs/gates/{gate}.yaml")
        harness.run_rrf(*words, "--out", folder, "--num-videos", "0")
        episodes = Evaluation.load(Path(folder, FILE_NAME)).episodes
    falls = sum(episode.metrics["fall"] for episode in episodes)
    low, high = wilson(int(falls), len(episodes))
    print(f"{falls:.0f} of {len(episodes)} robots fell [{low:.3f}, {high:.3f}]")
    rows = [bench.number(of_falls, falls / len(episodes), "of 1", seeds=[0])]
    for name, (id, unit) in ids.items():
        errors = [e.metrics[name] for e in episodes if name in e.metrics]
        rows.append(bench.number(id, float(np.mean(errors)), unit, seeds=[0]))
    return rows


def tick(bench: Bench) -> dict:
    """What System 0 takes for a tick of one robot on one core: the 99th percentile."""
    model = body.shown_spec().compile()
    robot = SimulatedRobot(model, standing_data(model))
    policy = bench.options.policy or workspace.find(HumanoidCfg.system0)
    balancer = load_balancer(policy, body.spec().compile())
    row, wanted = np.zeros(1, np.int64), standing_command(1)
    qpos, qvel = robot.read()
    balancer.reset(row, qpos[None], qvel[None])
    took = []
    for _ in range(bench.size(2_000, 20)):
        qpos, qvel = robot.read()
        began = time.perf_counter()
        joints = balancer.targets(row, qpos[None], qvel[None], wanted)
        took.append(1000 * (time.perf_counter() - began))
        robot.drive(joints[0], wanted[0, command.HANDS])
    return bench.number("system0_tick_ms_p99", float(np.percentile(took, 99)), "ms", seeds=[0])


def hierarchy_tick(bench: Bench) -> dict:
    """What a tick of three processes takes on a real clock, with the simulation of the robot: the
    99th percentile of 20 s."""
    if bench.options.combination is None:
        raise NotMeasuredError("give --combination CHECKPOINT that rrf models join wrote")
    cfg = hierarchy_of(bench.options.combination)
    system0 = str(Path(cfg.system0.policy).resolve())
    env = HumanoidCfg(num_envs=1, chunk_length=1, system0=system0, image_size=64).build()
    try:
        env.reset([InitialState("pick-red-cube", 4242, 0)], [0])
        played = play(cfg, env.robot(0), bench.size(20.0, 1.0))
    finally:
        env.close()
    print(f"{played.late_ticks} of {played.ticks} ticks began late")
    return bench.number("hierarchy_tick_ms_p99", played.timing.p99_ms, "ms", seeds=[0])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", type=Path, help="of System 0 or g1-tracking-ppo")
    parser.add_argument("--combination", type=Path, help="a checkpoint of all three systems")


IDS: dict[str, Measure] = {
    "g1_whole_body_env_steps_per_cpu_s": env_steps,
    **dict.fromkeys(["g1_whole_body_falls", *(id for id, _ in _WHOLE_BODY.values())], whole_body),
    **dict.fromkeys(["tracking_falls", *(id for id, _ in _TRACKING.values())], tracking),
    **dict.fromkeys(["g1_falls", *(id for id, _ in _WALKING.values())], walking),
    "g1_flat_walk_wall_s": from_scratch,
    "system0_tick_ms_p99": tick,
    "hierarchy_tick_ms_p99": hierarchy_tick,
}


if __name__ == "__main__":
    harness.main("humanoid", __doc__, IDS, add_options=add_options)
