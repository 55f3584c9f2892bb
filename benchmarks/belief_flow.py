"""Belief Flow beside GRU-D, hold-last-value and full observations: `python -m
benchmarks.belief_flow [KEY ...]`.

Each is trained on the pendulum with three seeds. The last checkpoints play the episodes of a
protocol. Printed are the mean return, and the root mean squared error of the angular velocity just
before it is seen: as the policy's encoder predicts it, and of holding the last value on the same
trajectories.

The key `recorded` needs no reinforcement learning: both encoders learn to predict on recorded
episodes of random actions, and are measured on other episodes.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.clock import Stopwatch
from benchmarks.harness import chosen, parser_of, train
from benchmarks.rl_runs import judged, protocol_of
from rrf import workspace
from rrf.envs.gymnasium.configs import SlowSensorEnvCfg
from rrf.policies.control.belief_configs import BeliefFlowCfg, GRUDCfg, PredictiveEncoderCfg
from rrf.policies.control.predictive_encoder import PredictiveEncoder
from rrf.presets import PRESETS
from rrf.runners.checkpoints.control import load_control_policy

SEEDS = (0, 1, 2)
RUNS = {
    "belief-flow": ("pendulum-belief-flow", "pendulum-slow"),
    "gru-d": ("pendulum-gru-d", "pendulum-slow"),
    "hold": ("pendulum-hold", "pendulum-slow"),
    "full": ("pendulum-hidden-sac env.hidden=[] max_iterations=20", "pendulum"),
}
"""Key -> the arguments of `rrf train`, and the protocol."""
RECORDED = "recorded"
ENCODERS = {
    "belief-flow": BeliefFlowCfg(num_fast=2, num_slow=1),
    "gru-d": GRUDCfg(num_fast=2, num_slow=1),
}
_EPISODES, _STEPS = 64, 200
_BATCH, _LENGTH, _UPDATES = 32, 30, 300


def measured(checkpoint: Path, protocol_name: str) -> dict[str, float]:
    """The mean return of a checkpoint, and the errors of its predictions in rad/s."""
    protocol = protocol_of(protocol_name)
    numbers = {"return": judged(checkpoint, protocol).mean_metrics()["return"]}
    if isinstance(protocol.env, SlowSensorEnvCfg):
        env = protocol.env.build(protocol.seed)
        numbers |= errors(checkpoint, env, protocol.max_episode_steps)
    return numbers


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
    return of_predictions(policy.actor.memory, torch.stack(seen))


@torch.no_grad()
def of_predictions(encoder: torch.nn.Module | None, x_tbo: torch.Tensor) -> dict[str, float]:
    """The errors of an encoder along observations of whole episodes."""
    velocity, arrives = x_tbo[1:, :, 2], x_tbo[1:, :, 4] > 0
    error = {"hold": _rms(velocity - x_tbo[:-1, :, 2], arrives)}
    if isinstance(encoder, PredictiveEncoder):
        predicted, _ = encoder.predicted_slow(x_tbo, _unrolled(encoder, x_tbo))
        error["prediction"] = _rms(predicted[..., 0] - velocity, arrives)
        error["ratio"] = error["prediction"] / error["hold"]
    return error


def _unrolled(encoder: PredictiveEncoder, x_tbo: torch.Tensor) -> torch.Tensor:
    starts = torch.zeros(x_tbo.shape[:2], dtype=torch.bool)
    return encoder.unroll(x_tbo, None, encoder.initial_memory(x_tbo.shape[1]), starts)[0]


def _rms(error: torch.Tensor, where: torch.Tensor) -> float:
    return error[where].square().mean().sqrt().item()


def recorded(encoder_cfg: PredictiveEncoderCfg, seed: int) -> dict[str, float]:
    """Errors in rad/s on episodes of random actions, after learning on as many others."""
    generator = torch.Generator().manual_seed(seed)
    learned, others = (_episodes(generator, 2 * seed + half) for half in range(2))
    torch.manual_seed(seed)
    encoder = encoder_cfg.build(learned.shape[-1])
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3, fused=True)
    starts = torch.zeros(_LENGTH, _BATCH, dtype=torch.bool)
    for _ in range(_UPDATES):
        begin = int(torch.randint(_STEPS - _LENGTH + 1, (), generator=generator))
        which = torch.randperm(_EPISODES, generator=generator)[:_BATCH]
        x = learned[begin : begin + _LENGTH, which]
        optimizer.zero_grad()
        encoder.loss(x, _unrolled(encoder, x), starts)[0].backward()
        optimizer.step()
    return of_predictions(encoder, others)


def _episodes(generator: torch.Generator, seed: int) -> torch.Tensor:
    """Observations [T, B, O] of episodes of random actions."""
    env = PRESETS.get("pendulum-hold")().env.replace(num_envs=_EPISODES).build(seed=seed)
    rows = [env.get_observations()["policy"]]
    for _ in range(_STEPS - 1):
        actions = torch.rand(_EPISODES, 1, generator=generator) * 2 - 1
        rows.append(env.step(actions)[0]["policy"])
    return torch.stack(rows)


def _of_recorded(seed: int) -> Iterator[dict]:
    for name, encoder_cfg in ENCODERS.items():
        with Stopwatch() as watch:
            error = recorded(encoder_cfg, seed)
        yield {"encoder": name, "seed": seed, "cpu_s": watch.cpu_s, **error}


def _of_run(key: str, seed: int) -> dict:
    (preset, *overrides), protocol = RUNS[key][0].split(), RUNS[key][1]
    run_dir = workspace.state() / "benchmarks" / "belief_flow" / f"{key}-seed{seed}"
    result = train(preset, run_dir, [*overrides, f"seed={seed}", "device=cpu"])
    numbers = measured(Path(result["checkpoint"]), protocol)
    return {"policy": key, "seed": seed, "cpu_s": result["cpu_s"], **numbers}


def main() -> None:
    """Train and measure the given policies, or all of them; prints a line for each seed."""
    parser = parser_of(__doc__, SEEDS)
    keys = [*RUNS, RECORDED]
    parser.add_argument("keys", nargs="*", metavar="KEY", help=", ".join(keys))
    words = parser.parse_args()
    for key in chosen(parser, words.keys, keys):
        for seed in words.seeds:
            for row in _of_recorded(seed) if key == RECORDED else [_of_run(key, seed)]:
                rounded = {k: float(f"{v:.4g}") for k, v in row.items() if isinstance(v, float)}
                print(json.dumps(row | rounded), flush=True)


if __name__ == "__main__":
    workspace.settle_environment()
    main()
