"""Rounds of the toy simulator, which start in an instant."""

import typing

import pytest
import torch

from rrf.config import trust
from rrf.envs import ENVS
from rrf.envs.vec_env import InitialState
from rrf.lineage import Lineage
from rrf.orchestra.inline_run import build_runner
from rrf.policies.vla.configs import ValueHeadCfg
from rrf.presets import PRESETS
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import RayCfg, VLARLRunnerCfg
from rrf.runners.vla_rl.job_sources import GroupRound

with pytest.MonkeyPatch.context() as patch:
    for registry in (ENVS, PRESETS):  # other tests look at all there are
        patch.setattr(registry, "_targets", dict(registry._targets))
    from tests.toy_simulator import presets
    from tests.toy_simulator.configs import INSTRUCTIONS, ToyCfg

TASKS = list(INSTRUCTIONS)
POLICY = presets.policy().replace(value_head=ValueHeadCfg())
STATS = {
    "observation.state": {"mean": [0.0, 0.0], "std": [0.5, 0.5]},
    "action": {"min": [-1.0, -1.0], "max": [1.0, 1.0]},
}


def save_parent(folder, policy=POLICY):
    """The checkpoint of a policy with random weights."""
    trust("tests")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weights = policy.build(STATS).state_dict()
    cfg, state = SupervisedRunnerCfg(policy=policy), checkpoint.TrainerState({}, {})
    return checkpoint.save(folder, 7, cfg, weights, STATS, state, Lineage())


def run_cfg(parent, **changes) -> VLARLRunnerCfg:
    """A run of two rounds that starts from `parent`."""
    return VLARLRunnerCfg(
        init_from=str(parent),
        policy=POLICY,
        env=ToyCfg(num_envs=4, max_episode_steps=8),
        tasks=TASKS,
        inference_batch=4,
        num_groups=4,
        max_groups=8,
        max_rounds=2,
        validation_episodes=2,
        save_interval=2,
        trackers=[],
    ).replace(**changes)


def runner_of(parent, folder, placement=None, address=None, **changes) -> typing.Any:
    """A runner with the first weights loaded."""
    ray = RayCfg(address=address, placement=placement) if placement else None
    runner = build_runner(run_cfg(parent, ray=ray, **changes), folder)
    runner.backend.rollout.load(runner.actor.weights(), -1)
    return runner


def group_round():
    """Four groups of two episodes."""
    states = (InitialState(TASKS[number % 2], 42, number) for number in range(99))
    return GroupRound(states, 4, 2, 4, keeps_uniform=True)


def play(backend, on_report=lambda: None):
    """What a backend plays; `on_report` is called before each report."""
    source = group_round()
    report = source.report

    def told(episode):
        on_report()
        report(episode)

    source.report = told
    backend.play(source, (0, 7))
    return source.episodes


def inline_episodes(parent, folder):
    """What one environment process plays."""
    backend = runner_of(parent, folder, num_workers=1).backend
    try:
        return play(backend)
    finally:
        backend.close()
