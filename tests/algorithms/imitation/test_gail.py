"""GAIL imitates without the task's reward, repeats, resumes, and refuses clearly."""

import dataclasses
import math
import signal

import numpy as np
import pytest
import torch
from torch import nn

from rrf.algorithms import GAILCfg
from rrf.algorithms.imitation.gail import absorbing_logit, cross_entropy, gradient_penalty, reward
from rrf.cli.trainings import training_of
from rrf.config import configclass
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.envs.gymnasium.registered import kind_of
from rrf.policies import ActorCriticPackCfg, MemoryCfg, StateIndStdActorCfg
from rrf.presets.any_task import defaults_for
from rrf.runners import ImitationRunnerCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.interruption import Interrupted, SignalWatch
from tests.algorithms.imitation.corridor import EXPERTS_RETURN, record, run_cfg, walk
from tests.algorithms.offline.corridor import SCHEMA
from tests.envs.toy import Corridor, CorridorCfg
from tests.runners.control.test_off_policy_runner import assert_same, everything
from tests.runners.control.test_offline_runner import mean_return


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return record(tmp_path_factory.mktemp("imitation") / "walks")


@configclass(builds="tests.algorithms.imitation.test_gail:Contrary")
class ContraryCfg(CorridorCfg):
    """The corridor with the opposite reward."""


class Contrary(Corridor):
    def step(self, actions):
        observations, rewards, dones, extras = super().step(actions)
        return observations, -rewards, dones, extras


def test_rewards_by_hand():
    logits = torch.tensor([math.log(3.0)])  # D = 3/4
    assert reward(logits, "gail").item() == pytest.approx(math.log(4))
    assert reward(logits, "airl").item() == pytest.approx(math.log(3))


def test_losses_by_hand():
    logits = torch.tensor([math.log(3.0), math.log(3.0)])
    # -log(3/4) for the expert's, -log(1/4) for the policy's
    assert cross_entropy(logits, logits).item() == pytest.approx(math.log(16 / 3))
    network = nn.Linear(2, 1)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[3.0, 4.0]]))
    penalty = gradient_penalty(network, torch.randn(5, 2))
    assert penalty.item() == pytest.approx(16.0)  # (5 - 1)^2
    penalty.backward()
    # d (|w| - 1)^2 / dw = 2 (|w| - 1) w / |w|
    torch.testing.assert_close(network.weight.grad, torch.tensor([[4.8, 6.4]]))


def test_an_absorbing_state_is_the_experts_as_often_as_it_was_reached():
    never, thrice = torch.tensor([0.0, 9.0]), torch.tensor([3.0, 9.0])
    assert absorbing_logit(never, thrice).item() == pytest.approx(math.log(1 / 4))
    assert absorbing_logit(thrice, thrice).item() == 0.0


def filled(runner):
    """The rollout of one iteration of `runner`, before it learns."""
    algorithm = runner.algorithm
    for _ in range(runner.cfg.num_steps_per_env):
        algorithm.observe(runner.step_env(algorithm.act(runner.observations)))
    return algorithm.rollout


@pytest.mark.parametrize("compares", ["actions", "next_states"])
def test_a_termination_also_earns_what_follows(tmp_path, dataset, compares):
    cfg = run_cfg(dataset, compares=compares, gamma=0.5)
    runner = cfg.build(tmp_path)
    rollout = filled(runner)
    rollout["dones"][3, 5], rollout["time_outs"][3, 5] = True, False
    others = rollout["dones"] & ~rollout["time_outs"]
    assert others.sum() == 1
    runner.algorithm.returns(runner.observations)
    module = runner.algorithm.discriminator.module
    second = (
        rollout["actions"][3, 5].clamp(-1, 1)
        if compares == "actions"
        else rollout["actor_obs"][4, 5]
    )
    with torch.no_grad():
        logit = module(torch.cat([rollout["actor_obs"][3, 5], second]))
    # The expert: 80 transitions, never terminated. The policy: 320, one terminated.
    afterwards = math.log1p((1 / 81) / (2 / 321))
    expected = math.log1p(math.exp(logit.item())) + afterwards
    assert rollout["rewards"][3, 5].item() == pytest.approx(expected, rel=1e-5)


def test_without_absorbing_states_every_transition_earns_its_own(tmp_path, dataset):
    runner = run_cfg(dataset, use_absorbing_states=False, reward="airl").build(tmp_path)
    rollout = filled(runner)
    rollout["dones"][3, 5], rollout["time_outs"][3, 5] = True, False
    runner.algorithm.returns(runner.observations)
    inputs = torch.cat([rollout["actor_obs"][:-1], rollout["actions"].clamp(-1, 1)], -1)
    with torch.no_grad():
        expected = runner.algorithm.discriminator.module(inputs)
    torch.testing.assert_close(rollout["rewards"], expected)


def test_an_episodes_last_state_is_compared_and_not_the_next_ones_first(tmp_path, dataset):
    runner = run_cfg(dataset, compares="next_states").build(tmp_path)
    rollout = filled(runner)
    found = runner.algorithm._rollout_transitions()
    reached = found.next_states.view(20, 16)
    moved = rollout["actor_obs"][:-1, :, 0] + 0.2 * rollout["actions"][..., 0].clamp(-1, 1)
    assert rollout["dones"].sum() >= 16
    torch.testing.assert_close(reached, moved)


@pytest.mark.parametrize(
    "compares", ["actions", pytest.param("next_states", marks=pytest.mark.slow)]
)
def test_it_walks_as_the_expert_does(tmp_path, dataset, compares):
    cfg = run_cfg(dataset, compares=compares, max_iterations=40, save_interval=40)
    result = cfg.build(tmp_path).run()
    # Standing still earns about -15.
    assert mean_return(result["checkpoint"]) > EXPERTS_RETURN - 1.0


def test_cloning_before_the_first_rollout_fits_the_experts_actions(tmp_path, dataset):
    cfg = run_cfg(dataset, cloning_updates=1000)
    runner = cfg.build(tmp_path / "run")
    actor, expert = runner.policy.actor, runner.algorithm.expert

    def error():
        with torch.no_grad():
            return (actor(expert.states) - expert.actions).square().mean()

    before, std = error(), actor.log_std.clone()
    runner._begin()
    assert before > expert.actions.var()
    assert error() < 0.1 * expert.actions.var()
    assert torch.equal(actor.log_std, std)


def test_a_run_that_begins_with_weights_does_not_clone(tmp_path, dataset):
    parent = run_cfg(dataset, max_iterations=1).build(tmp_path / "parent").run()["checkpoint"]
    runner = run_cfg(dataset, cloning_updates=5, init_from=parent).build(tmp_path / "child")
    runner._begin()
    assert_same(dict(runner.policy.state_dict()), checkpoint.read_weights(parent))


def test_the_tasks_reward_changes_nothing_but_the_log(tmp_path, dataset):
    cfg = run_cfg(dataset, max_iterations=2)
    first = cfg.build(tmp_path / "as_it_is").run()
    second = cfg.replace(env=ContraryCfg(num_envs=16)).build(tmp_path / "contrary").run()
    ours, theirs = everything(first), everything(second)
    del ours["episodes"], theirs["episodes"]  # what is logged
    assert_same(ours, theirs)
    returns = [result["metrics"]["rollout/return"] for result in (first, second)]
    assert returns[0] == pytest.approx(-returns[1])
    assert returns[0] < 0


@pytest.mark.parametrize("compares", ["actions", "next_states"])
def test_a_stopped_run_continues_bit_for_bit(tmp_path, dataset, compares):
    cfg = run_cfg(dataset, compares=compares, num_trajectories=5, cloning_updates=5)
    whole = cfg.build(tmp_path / "whole").run()
    signals = SignalWatch()

    def stop(progress):
        signals.received = signal.SIGTERM if progress.iteration == 3 else None

    with pytest.raises(Interrupted):
        cfg.build(tmp_path / "stopped").run(on_progress=stop, signals=signals)
    assert_same(everything(whole), everything(cfg.build(tmp_path / "stopped").run()))
    assert any(name.startswith("discriminator/optimizer/") for name in everything(whole))


def test_a_rollback_slows_the_discriminator_down(tmp_path, dataset):
    first, second = (run_cfg(dataset).build(tmp_path / name).algorithm for name in "ab")
    first.slow_down(0.5)
    second.load_state(*first.state())
    assert second.discriminator.optimizer.param_groups[0]["lr"] == 1.5e-3


def test_so_many_episodes_are_drawn_with_the_seed(tmp_path, dataset):
    def states(seed):
        cfg = run_cfg(dataset, num_trajectories=3, seed=seed)
        return cfg.build(tmp_path).algorithm.expert.states

    assert len(states(0)) == 3 * 10
    assert torch.equal(states(0), states(0))
    assert not torch.equal(states(0), states(1))
    whole = run_cfg(dataset).build(tmp_path).algorithm.expert
    assert len(whole.states) == 8 * 10
    torch.testing.assert_close(whole.states + 0.2 * whole.actions, whole.next_states)


def test_rewards_need_not_be_recorded(tmp_path):
    episode = dataclasses.replace(walk(np.random.default_rng(0), 0), reward=None)
    schema = dataclasses.replace(SCHEMA, has_reward=False)
    write_dataset(tmp_path / "walks", schema, iter([episode]))
    runner = run_cfg(tmp_path / "walks").build(tmp_path / "run")
    assert len(runner.algorithm.expert.states) == 10


def test_the_dataset_is_part_of_the_lineage(dataset):
    lineage, inputs = training_of(run_cfg(dataset)).depends_on(None, None)
    assert lineage.dataset_names == [str(dataset)]
    assert inputs["dataset"]


def test_what_cannot_be_imitated_is_refused(tmp_path, dataset):
    with pytest.raises(ValueError, match=r"no expert trajectories to imitate; .* dataset=NAME"):
        run_cfg("").build(tmp_path)
    with pytest.raises(ValueError, match=r"num_trajectories is 9, but the dataset .* 8 episodes"):
        run_cfg(dataset, num_trajectories=9).build(tmp_path)
    with pytest.raises(ValueError, match="num_trajectories is 0, allowed: 1 or more"):
        run_cfg(dataset, num_trajectories=0)
    with pytest.raises(ValueError, match="has 1 state dimensions, but Pendulum-v1 has 3"):
        run_cfg(dataset, env=GymnasiumEnvCfg(task="Pendulum-v1")).build(tmp_path)
    discrete = ImitationRunnerCfg(dataset=str(dataset), env=GymnasiumEnvCfg(task="CartPole-v1"))
    with pytest.raises(ValueError, match="CartPole-v1 has 2 discrete actions; GAIL imitates"):
        discrete.build(tmp_path)
    recurrent = ActorCriticPackCfg(actor_cfg=StateIndStdActorCfg(memory=MemoryCfg()))
    with pytest.raises(ValueError, match=r"cloning_updates is 9, but an actor with a memory"):
        run_cfg(dataset, policy=recurrent, cloning_updates=9).build(tmp_path)
    with pytest.raises(ValueError, match="gamma is 1, so the reward after a termination"):
        GAILCfg(gamma=1.0)


def test_any_task_with_real_actions_has_defaults():
    choice = defaults_for("Hopper-v5", kind_of("Hopper-v5"), "gail")
    assert isinstance(choice.cfg, ImitationRunnerCfg)
    assert choice.cfg.env.task == "Hopper-v5"
    with pytest.raises(ValueError, match="2 discrete actions, which GAIL does not support"):
        defaults_for("CartPole-v1", kind_of("CartPole-v1"), "gail")
