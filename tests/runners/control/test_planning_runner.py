"""Runs of planning algorithms: resumable, deployable, with one clear line for what cannot work."""

import pytest
import torch

from rrf.policies import WorldModelPackCfg
from rrf.policies.control.world_model import PlanningPolicy
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.checkpoints.deployed_control import DeployedControl
from rrf.runners.checkpoints.onnx_export import export
from tests.algorithms.planning.toy import ALGORITHMS, MODEL, run_cfg
from tests.envs.toy import CorridorCfg
from tests.runners.control.test_off_policy_runner import (
    assert_same,
    everything,
    stopped_amid_an_iteration,
)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_stopped_in_the_middle_of_an_iteration_continues_bit_for_bit(tmp_path, name):
    cfg = run_cfg(name)
    whole = cfg.build(tmp_path / "whole").run()
    stopped = stopped_amid_an_iteration(cfg, tmp_path / "stopped")
    assert stopped.algorithm.plans.any(), "the plans at hand are part of the state"
    resumed = cfg.build(tmp_path / "stopped").run()
    assert_same(everything(whole), everything(resumed))
    # The warm-up makes 10 gradient steps due, and each of the 120 transitions after it a tenth.
    assert resumed["metrics"]["train/num_updates"] == 10 + 12


def test_a_checkpoint_holds_a_policy_that_plans(tmp_path):
    runner = run_cfg("tdmpc2").build(tmp_path)
    path = runner.run()["checkpoint"]
    policy, _ = load_control_policy(path)
    assert isinstance(policy, PlanningPolicy)
    assert policy.actor.discount.item() == pytest.approx(0.9), "plans discount as values do"
    expected = runner.policy.deployable().act(runner.observations)
    assert torch.equal(policy.act(runner.observations), expected)
    served = DeployedControl(path)
    assert served.has_memory
    groups = {"policy": runner.observations["policy"].numpy()}
    assert torch.equal(torch.from_numpy(served.act(groups)), expected)


def test_a_policy_that_plans_is_not_written_as_onnx(tmp_path):
    policy = run_cfg("tdmpc2").build(tmp_path).policy.deployable()
    with pytest.raises(ValueError, match=r"plans with random numbers.*load_policy"):
        export(policy.actor, tmp_path / "policy.onnx")


def test_a_plan_is_forgotten_where_an_episode_ends(tmp_path):
    policy = run_cfg("tdmpc2").build(tmp_path).policy.deployable()
    observations = CorridorCfg(num_envs=3).build(seed=0, device="cpu").get_observations()
    policy.act(observations)
    policy.reset(torch.tensor([False, True, False]))
    assert policy._memory is not None
    assert policy._memory.abs().amax((0, 2)).bool().tolist() == [True, False, True]


def test_a_task_that_terminates_needs_a_model_that_says_so(tmp_path):
    pack = WorldModelPackCfg(actor_cfg=MODEL.replace(predicts_termination=False))
    runner = run_cfg("tdmpc2", policy=pack).build(tmp_path)
    runner.env.position[1] = -2.1
    with pytest.raises(ValueError, match=r"set policy.actor_cfg.predicts_termination=true"):
        runner.run()


def test_a_horizon_beyond_the_episodes_is_refused_in_one_line(tmp_path):
    cfg = run_cfg("tdmpc2", env=CorridorCfg(num_envs=4, length=2))
    with pytest.raises(ValueError, match=r"hardly any begins 3 steps.*planner.horizon"):
        cfg.build(tmp_path).run()
    assert not list(tmp_path.glob("not_finite*"))
