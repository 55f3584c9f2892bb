"""Runners over the toy task."""

import pytest

from rrf.algorithms import GRPOCfg, VLAPPOCfg
from rrf.orchestra.build_roles import build_roles
from rrf.policies.vla.configs import ValueHeadCfg
from rrf.runners import AdamWCfg, EMACfg
from rrf.runners.configs import ScheduleCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from rrf.runners.vla_rl.runner import VLARLRunner
from tests.runners.vla_rl.toy import ENV, STATS, TASKS, ToyBackend, make_policy, policy_cfg


def runner_cfg(head=None, ppo=False, **changes) -> VLARLRunnerCfg:
    """A config whose training takes about a second."""
    algorithm = (
        VLAPPOCfg(minibatch_size=64, critic_warmup_rounds=1)
        if ppo
        else GRPOCfg(minibatch_size=64, group_size=8)
    )
    cfg = VLARLRunnerCfg(
        experiment_name="toy",
        policy=policy_cfg(head, value_head=ValueHeadCfg() if ppo else None),
        env=ENV,
        tasks=TASKS,
        algorithm=algorithm,
        num_groups=96 if ppo else 12,
        max_groups=96 if ppo else 36,
        max_rounds=4,
        validation_episodes=8,
        validation_interval=2,
        save_interval=1,
        optimizer=AdamWCfg(lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0),
        value_lr=3e-3,
        schedule=ScheduleCfg(kind="constant"),
        ema=EMACfg(decay=0.9),
        update_threads=1,
        trackers=[],
    )
    return cfg.replace(**changes) if changes else cfg


def build(cfg: VLARLRunnerCfg, run_dir, prepare=lambda policy: None) -> VLARLRunner:
    """A runner; `prepare` may change the policy that it starts from."""
    policy = make_policy(cfg.policy, cfg.seed)
    prepare(policy)
    actor, rollout = build_roles(cfg, policy)
    backend = ToyBackend(rollout.policy)
    backend.rollout = rollout
    return VLARLRunner(cfg, actor, backend, run_dir, STATS)


@pytest.fixture
def run(tmp_path):
    """Train a config in a fresh directory; returns the runner, its result in `.result`."""

    def start(cfg, name="run"):
        runner = build(cfg, tmp_path / name)
        runner.result = runner.run()
        return runner

    return start
