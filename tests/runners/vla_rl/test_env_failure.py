"""A simulator that fails in its process ends the training in one line."""

import copy

import pytest

from rrf.orchestra.actor_role import ActorRole
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.rollout_role import RolloutRole
from rrf.runners.vla_rl.runner import VLARLRunner
from tests.runners.vla_rl.conftest import runner_cfg
from tests.runners.vla_rl.crashing import CrashingCfg
from tests.runners.vla_rl.toy import STATS, make_policy


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ValueError", "the motor is gone, in round 1 of 4"),
        (
            "ZeroDivisionError",
            "environment worker 1 of 1 was restarted 3 times and failed again. The last error: "
            "environment worker 1 of 1 failed in 'start': ZeroDivisionError: the motor is gone "
            "(crashing.py, line 26), in round 1 of 4",
        ),
    ],
)
def test_a_failure_in_a_worker_is_one_line_and_its_traceback_a_file(tmp_path, kind, message):
    cfg = runner_cfg()
    policy = make_policy(cfg.policy)
    algorithm = cfg.algorithm.build(policy, None)
    actor = ActorRole(policy, algorithm, cfg.optimizer, cfg.value_lr, cfg.ema, cfg.max_grad_norm)
    env = CrashingCfg(num_envs=2, chunk_length=2, max_episode_steps=6, kind=kind)
    backend = InlineBackend(env, RolloutRole(copy.deepcopy(policy)), num_workers=1)
    runner = VLARLRunner(cfg, actor, backend, tmp_path / "run", STATS)
    with pytest.raises(ValueError, match="the motor is gone") as failure:
        runner.run()
    trace = tmp_path / "run/env_error.txt"
    assert str(failure.value) == (
        f"{message}. The traceback is in {trace}; no checkpoint was saved yet, so the same command "
        "begins anew"
    )
    assert "In the child process:" in trace.read_text()
    assert 'raise kind("the motor is gone")' in trace.read_text()
