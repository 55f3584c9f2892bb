"""Reinforcement learning of policies of real size on a GPU: `python -m benchmarks.vla_rl_gpu
[ID ...]`.

Random weights, two images of 224 px, bfloat16. For each policy: chunks per second of the rollout
role alone, rows per second of an update by GRPO, and control steps per second of rollouts in
Meta-World, with the physics in processes on the CPU, and the images and the policy on the GPU. The
last needs MuJoCo and Meta-World and is left out without them. `--small` runs the presets of laptop
size, to try the script, with `--device cpu` anywhere.
"""

import argparse
import dataclasses
import functools
import importlib.util
import math
import os
import typing

import numpy as np
import torch

from benchmarks import harness
from benchmarks.clock import Stopwatch
from benchmarks.harness import Bench
from benchmarks.vla_gpu import config_of, observation_of, stats_of, wall_s
from rrf.data.schema import ACTION, STATE, Observation
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.vec_env import InitialState
from rrf.networks.vlm.configs import LoRACfg
from rrf.orchestra.actor_role import ActorRole
from rrf.orchestra.build_roles import build_roles
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.rollout_role import RolloutRole
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from rrf.presets.openvla import ALL_LINEAR
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from rrf.runners.vla_rl.job_sources import JobList
from rrf.storage.trajectories import Job, PlayedEpisode, decisions

_CAMERAS = ["workspace", "gripperPOV"]
_TASKS = ["drawer-open-v3", "button-press-topdown-v3"]
_DIM = 4  # of Meta-World's states and actions
_DECISIONS, _GROUP = 4, 8  # of an episode; episodes of a group
_REPEATS = 5


@dataclasses.dataclass(frozen=True)
class Case:
    """A policy: the presets of real and of laptop size, and how it is trained."""

    preset: str
    tiny: str
    chunk_length: int
    tuning: typing.Any
    head: dict[str, typing.Any]
    micro_batch: int


CASES = {
    "openvla_oft": Case(
        "openvla-oft-sft",
        "openvla-oft-laptop",
        8,
        LoRACfg(rank=32, alpha=16, target=ALL_LINEAR),
        {"persistent_share": 0.3},
        16,
    ),
    "pi05": Case(
        "pi05-sft",
        "pi05-laptop",
        10,
        "full",
        {"num_denoise_steps": 4, "noise_method": "flow_sde", "stochastic_steps": "all"},
        32,
    ),
}


def measure(name: str, bench: Bench) -> list[dict]:
    """The numbers of one policy."""
    cfg, device = _config(CASES[name], bench), bench.options.device
    with torch.device(device):
        policy = cfg.policy.build({STATE: stats_of(_DIM), ACTION: stats_of(_DIM)})
    actor, rollout = build_roles(cfg, policy)
    rows = cfg.inference_batch
    observation = observation_of(cfg.policy, np.random.default_rng(0), rows)
    seconds = wall_s(lambda: rollout.act(observation, _generators(rows)), device, _REPEATS)

    def number(what: str, value: float, unit: str) -> dict:
        return bench.number(f"{name}_{what}", value, f"{unit}; {_machine(device)}")

    unit = f"chunks/s, {rows} at a time"
    numbers = [number("rollout_chunks_per_s", rows / seconds, unit)]
    groups = _groups(cfg, rollout)
    print(f"{name}: {_agreement(actor, groups, cfg)}", flush=True)
    num_rows = sum(len(episode) for group in groups for episode in group)
    horizon = cfg.env.max_episode_steps
    seconds = wall_s(lambda: actor.update(groups, horizon, 0, 1.0, 0), device, repeats=1)
    unit = f"rows/s, {cfg.micro_batch_size} at a time"
    numbers.append(number("update_rows_per_s", num_rows / seconds, unit))
    if all(map(importlib.util.find_spec, ("mujoco", "metaworld"))):
        numbers.append(number("control_steps_per_s", *_simulated(name, cfg, rollout)))
    return numbers


def _config(case: Case, bench: Bench) -> VLARLRunnerCfg:
    preset, num_workers = bench.size(case.preset, case.tiny), bench.options.workers
    policy = config_of(preset, bench.is_small, _DIM, _DIM, case.tuning, _CAMERAS).policy
    assert isinstance(policy, VLMPolicyCfg)
    policy = policy.replace(
        chunk_length=case.chunk_length,
        head=policy.head.replace(**case.head),
        backbone=policy.backbone.replace(gradient_checkpointing=True),
    )
    cfg = resolve("metaworld-grpo-compact")
    assert isinstance(cfg, VLARLRunnerCfg)
    slots = bench.size(8, 2) * num_workers
    return cfg.replace(
        policy=policy,
        env=MetaWorldCfg(
            num_envs=slots,
            chunk_length=case.chunk_length,
            max_episode_steps=_DECISIONS * case.chunk_length,
            image_size=policy.image_size[0],
            cameras=_CAMERAS,
            renderer=bench.options.renderer,
        ),
        algorithm=cfg.algorithm.replace(num_epochs=1, minibatch_size=128, group_size=_GROUP),
        tasks=_TASKS,
        device=bench.options.device,
        precision="bf16",
        ema=None,
        num_workers=num_workers,
        inference_batch=slots // 2,  # one half is simulated while actions of the other are chosen
        micro_batch_size=case.micro_batch,
    )


def _generators(rows: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(row) for row in range(rows)]


def _groups(cfg: VLARLRunnerCfg, rollout: RolloutRole) -> list[list[PlayedEpisode]]:
    """Groups of episodes whose rows are samples of one batch of observations."""
    observation = observation_of(cfg.policy, np.random.default_rng(0), _DECISIONS * _GROUP)
    episodes: list[PlayedEpisode] = []
    while len(episodes) % _GROUP or len(episodes) * _DECISIONS < cfg.algorithm.minibatch_size:
        sample = rollout.act(observation, _generators(len(observation)))
        for start in range(0, len(observation), _DECISIONS):
            rows, number_of = slice(start, start + _DECISIONS), len(episodes)
            assert sample.log_prob is not None
            episodes.append(
                PlayedEpisode(
                    job=Job(number_of, number_of // _GROUP, InitialState(_TASKS[0], 42, 0)),
                    observation=_rows(observation, rows),
                    replay={key: values[rows] for key, values in sample.replay.items()},
                    log_prob=sample.log_prob[rows],
                    value=torch.full((_DECISIONS, 1), torch.nan),
                    reward=np.zeros(_DECISIONS, np.float32),
                    steps=np.full(_DECISIONS, cfg.env.chunk_length),
                    success=number_of % 2 == 0,
                    truncated=False,
                    final_value=math.nan,
                    policy_version=0,
                    reset_digest="",
                )
            )
    return [episodes[start : start + _GROUP] for start in range(0, len(episodes), _GROUP)]


def _rows(observation: Observation, rows: slice) -> Observation:
    images = {name: values[rows] for name, values in observation.images.items()}
    return Observation(images, observation.state[rows], observation.instruction[rows])


def _agreement(actor: ActorRole, groups: list[list[PlayedEpisode]], cfg: VLARLRunnerCfg) -> str:
    """How far an update's own log-probabilities are from those of the rollout."""
    episodes = [episode for group in groups for episode in group][:4]
    observation, replay, old, mask = decisions(episodes, cfg.policy.chunk_length)
    replay = {name: values.to(cfg.device) for name, values in replay.items()}
    with torch.no_grad(), torch.autocast(torch.device(cfg.device).type, torch.bfloat16):
        new = actor.algorithm.policy.evaluate(observation, replay).log_prob.float().cpu()
    log_ratio = (new - old).double()[mask]
    kl = (torch.expm1(log_ratio) - log_ratio).mean().item()
    error = (log_ratio.exp() - 1).abs().max().item()
    return f"ratio error {error:.2g}, approximate KL {kl:.2g} before the first update"


def _simulated(name: str, cfg: VLARLRunnerCfg, rollout: RolloutRole) -> tuple[float, str]:
    """Control steps per second of rollouts, and their unit; the first episodes, which load tasks,
    do not count."""
    backend = InlineBackend(cfg.env, rollout, cfg.num_workers, timeout_s=300)
    try:
        count = 2 * cfg.env.num_envs
        _play(backend, cfg.env.num_envs)
        before = backend.timings()
        with Stopwatch() as watch:
            steps = sum(episode.num_steps for episode in _play(backend, count))
        spent = {key: seconds - before.get(key, 0.0) for key, seconds in backend.timings().items()}
    finally:
        backend.close()
    rounded = {key: round(seconds, 2) for key, seconds in spent.items()}
    print(f"{name}: of {watch.wall_s:.1f} s, {rounded}", flush=True)
    share = spent["inference"] / watch.wall_s
    unit = f"control steps/s, {cfg.num_workers} processes, inference {share:.0%} of the time"
    return steps * cfg.env.action_repeat / watch.wall_s, unit


def _play(backend: InlineBackend, count: int) -> list[PlayedEpisode]:
    states = [InitialState(_TASKS[i % len(_TASKS)], 42 + i // 50, i % 50) for i in range(count)]
    source = JobList(states)
    backend.play(source, (0, 0, 0), keeps=False)
    return source.episodes


def _machine(device: str) -> str:
    if torch.device(device).type != "cuda":
        return "CPU"
    gigabytes = torch.cuda.max_memory_allocated() / 1e9
    return f"{torch.cuda.get_device_name()}, {os.cpu_count()} cores, {gigabytes:.1f} GB at most"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--renderer", default="egl")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) - 2))


IDS = {name: functools.partial(measure, name) for name in CASES}


if __name__ == "__main__":
    harness.main("vla_rl_gpu", __doc__, IDS, add_options=add_options)
