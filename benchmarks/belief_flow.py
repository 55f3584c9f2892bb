"""Belief Flow beside GRU-D, hold-last-value and full observations: `python -m
benchmarks.belief_flow [KEY ...]`.

Each is trained on the pendulum with three seeds. The last checkpoints play the episodes of a
protocol. Printed are the mean return, and the root mean squared error of the angular velocity just
before it is seen: as the policy's encoder predicts it, and of holding the last value on the same
trajectories.
"""

import argparse
import json
from pathlib import Path

import torch

from benchmarks.rl_pace import judged, protocol_of
from benchmarks.vla_experiments import train
from rrf import workspace
from rrf.config import did_you_mean
from rrf.envs.gymnasium.configs import SlowSensorEnvCfg
from rrf.policies.control.predictive_encoder import PredictiveEncoder
from rrf.runners.checkpoints.control import load_control_policy

SEEDS = (0, 1, 2)
RUNS = {
    "belief-flow": ("pendulum-belief-flow", "pendulum-slow"),
    "gru-d": ("pendulum-gru-d", "pendulum-slow"),
    "hold": ("pendulum-hold", "pendulum-slow"),
    "full": ("pendulum-hidden-sac env.hidden=[] max_iterations=20", "pendulum"),
}
"""Key -> the arguments of `rrf train`, and the protocol."""


def measured(checkpoint: Path, protocol_name: str) -> dict[str, float]:
    """The mean return of a checkpoint, and the errors of its predictions in rad/s."""
    protocol = protocol_of(protocol_name)
    found = {"return": judged(checkpoint, protocol).mean_metrics()["return"]}
    if isinstance(protocol.env, SlowSensorEnvCfg):
        found |= errors(checkpoint, protocol.env.build(protocol.seed), protocol.max_episode_steps)
    return found


@torch.no_grad()
def errors(checkpoint: Path, env, num_steps: int) -> dict[str, float]:
    """Root mean squared errors of velocities that arrive in the first episode of each environment.

    "prediction" is absent for a policy that predicts nothing.
    """
    policy, _ = load_control_policy(checkpoint)
    observations, seen = env.get_observations(), []
    for _ in range(num_steps):
        seen.append(observations["policy"])
        observations, *_ = env.step(policy.act(observations))
    x = torch.stack(seen)
    velocity, arrives = x[1:, :, 2], x[1:, :, 4] > 0
    found = {"hold": _rms(velocity - x[:-1, :, 2], arrives)}
    encoder = policy.actor.memory
    if isinstance(encoder, PredictiveEncoder):
        starts = torch.zeros(x.shape[:2], dtype=torch.bool)
        beliefs, _ = encoder.unroll(x, None, encoder.initial_memory(x.shape[1]), starts)
        found["prediction"] = _rms(
            encoder.predicted_slow(x, beliefs)[0][..., 0] - velocity, arrives
        )
        found["ratio"] = found["prediction"] / found["hold"]
    return found


def _rms(error: torch.Tensor, where: torch.Tensor) -> float:
    return error[where].square().mean().sqrt().item()


def main() -> None:
    """Train and measure the given policies, or all of them; prints a line for each seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("keys", nargs="*", metavar="KEY", help=", ".join(RUNS))
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    words = parser.parse_args()
    for key in words.keys:
        if key not in RUNS:
            parser.error(f"no policy '{key}'{did_you_mean(key, RUNS)}")
    for key in words.keys or RUNS:
        (preset, *overrides), protocol = RUNS[key][0].split(), RUNS[key][1]
        for seed in words.seeds:
            run_dir = workspace.state() / "benchmarks" / "belief_flow" / f"{key}-seed{seed}"
            result = train(preset, run_dir, [*overrides, f"seed={seed}", "device=cpu"])
            row = {"policy": key, "seed": seed, "cpu_s": round(result["cpu_s"], 1)}
            found = measured(Path(result["checkpoint"]), protocol)
            row |= {name: float(f"{value:.4g}") for name, value in found.items()}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    workspace.settle_environment()
    main()
