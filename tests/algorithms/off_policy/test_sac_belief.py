"""SAC whose encoders learn to predict: its losses, its state, its runs."""

import signal

import pytest
import torch

from rrf.algorithms import SACBeliefCfg, SACSeqCfg
from rrf.envs.gymnasium.configs import SlowSensorEnvCfg
from rrf.policies import BeliefFlowCfg, GRUDCfg
from rrf.presets import PRESETS
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.interruption import Interrupted, SignalWatch
from rrf.storage.rollout import ControlStep
from tests.algorithms.off_policy.toy import COMMON, GRU, pack, run_cfg
from tests.runners.control.test_off_policy_runner import assert_same, everything

ENV = SlowSensorEnvCfg(
    task="Pendulum-v1", num_envs=4, slow=[2], slow_interval=3, max_episode_steps=9
)
SIZES = {"num_fast": 2, "num_slow": 1, "hidden_size": 8}
FLOW = BeliefFlowCfg(consistency_coef=0.5, consistency_steps=2, **SIZES)
GRU_D = GRUDCfg(**SIZES)
ALGORITHM = SACBeliefCfg(batch_size=4, sequence_length=6, burn_in=2, stride=4, **COMMON)
ENCODERS = pytest.mark.parametrize("encoder", [FLOW, GRU_D], ids=["flow", "gru_d"])


def belief_run(encoder, **changes):
    return run_cfg("sac", env=ENV, policy=pack(encoder=encoder), algorithm=ALGORITHM, **changes)


def trained(algorithm, encoder, num_steps: int = 30):
    """An algorithm after so many steps of four environments, and the metrics of the last one."""
    env = ENV.build(seed=0)
    torch.manual_seed(0)
    policy = pack(encoder=encoder).build(env.interface)
    learner = algorithm.build(policy, 4, 400, torch.Generator().manual_seed(0))
    observations, metrics = env.get_observations(), {}
    for _ in range(num_steps):
        actions = learner.act(observations)
        step = ControlStep.of(observations, actions, env.step(actions))
        learner.observe(step)
        observations, metrics = step.next_observations, learner.update()
    return learner, metrics


@ENCODERS
def test_a_stopped_run_continues_bit_for_bit(tmp_path, encoder):
    cfg = belief_run(encoder)
    whole = cfg.build(tmp_path / "whole").run()
    signals, stopped = SignalWatch(), cfg.build(tmp_path / "stopped")

    def stop(progress):
        signals.received = signal.SIGTERM if progress.iteration == 3 else None

    with pytest.raises(Interrupted):
        stopped.run(on_progress=stop, signals=signals)
    resumed = cfg.build(tmp_path / "stopped").run()
    assert_same(everything(whole), everything(resumed))
    assert any(name.endswith("memory/actor") for name in everything(whole))
    assert any("target_actor" in name for name in everything(whole)) == (encoder is FLOW)


@ENCODERS
def test_the_checkpoint_holds_a_policy_that_acts(tmp_path, encoder):
    runner = belief_run(encoder, max_iterations=2).build(tmp_path)
    policy, _ = load_control_policy(runner.run()["checkpoint"])
    own, observations = runner.policy.deployable(), runner.observations
    actions = [[one.act(observations) for one in (policy, own)] for _ in range(2)]
    assert torch.equal(*actions[0])
    assert torch.equal(*actions[1])
    assert not torch.equal(actions[0][0], actions[1][0])  # the belief has moved


@ENCODERS
def test_predictions_train_the_encoders_of_actor_and_critic(encoder):
    learner, metrics = trained(ALGORITHM, encoder)
    for network in (learner.policy.actor, learner.policy.critic):
        for decoder in (network.memory.slow_decoder, network.memory.fast_decoder):
            assert all(p.grad.abs().max() > 0 for p in decoder.parameters())
    names = {"slow_nll", "fast_nll", "slow_mse", "hold_mse"}
    assert {f"belief/{name}" for name in names} <= metrics.keys()
    assert ("belief/consistency" in metrics) == (encoder is FLOW)


def test_the_policy_gradient_flows_into_the_belief():
    encoder = FLOW.replace(fast_coef=0.0, slow_coef=0.0, consistency_coef=0.0)
    learner, _ = trained(ALGORITHM, encoder)
    memory = learner.policy.actor.memory
    assert all(p.grad.abs().max() == 0 for p in memory.slow_decoder.parameters())
    assert memory.flow.weight_hh.grad.abs().max() > 0
    assert memory.correction.weight_ih.grad.abs().max() > 0


def test_the_slow_actor_follows():
    learner, _ = trained(ALGORITHM.replace(tau=0.25), FLOW, 20)
    slow, fast = learner.target_actor.memory.flow, learner.policy.actor.memory.flow
    before = slow.weight_hh.clone()
    learner.make_updates(1)
    torch.testing.assert_close(slow.weight_hh, 0.75 * before + 0.25 * fast.weight_hh.detach())


@pytest.mark.parametrize(
    ("algorithm", "encoder", "message"),
    [
        (ALGORITHM, GRU, "must be a components.BeliefFlowCfg or components.GRUDCfg for SACBelief"),
        (SACSeqCfg(), FLOW, "must be a components.GRUEncoderCfg for SACSeq"),
        (ALGORITHM, FLOW.replace(num_fast=4), "has 6 numbers.*lower num_fast or num_slow"),
    ],
)
def test_a_policy_of_another_kind_is_refused(algorithm, encoder, message):
    with pytest.raises(ValueError, match=message):
        trained(algorithm, encoder, 1)


def test_a_sequence_needs_a_step_to_predict():
    with pytest.raises(ValueError, match="sequence_length is 1, allowed: 2 or more"):
        ALGORITHM.replace(sequence_length=1)


@pytest.mark.parametrize("name", ["pendulum-belief-flow", "pendulum-gru-d", "pendulum-hold"])
def test_presets_are_complete_and_survive_yaml(name):
    cfg = PRESETS.get(name)()
    assert type(cfg).from_yaml(cfg.to_yaml()) == cfg
    policy = cfg.policy.build(cfg.env.build().interface)
    assert (policy.actor.memory is None) == (name == "pendulum-hold")
