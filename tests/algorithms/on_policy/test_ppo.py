"""What PPO does beyond rsl_rl's arithmetic: time-outs, shuffling, memory, limits of the std."""

import pytest
import torch
from tensordict import TensorDict

from rrf.algorithms import PPOCfg
from rrf.algorithms.on_policy.losses import adapted_learning_rate, clipped_surrogate, value_errors
from rrf.algorithms.optimizer_tensors import restore_optimizer
from rrf.envs.control_env import Interface
from rrf.networks import plain_mlp
from rrf.policies import (
    ActorCriticPackCfg,
    CategoricalActorCfg,
    MemoryCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.policies.control.actor_critic import Categorical
from rrf.policies.control.normalizer import RewardScaler
from rrf.storage.rollout import ControlStep
from tests.envs.toy import CorridorCfg

SMALL = plain_mlp([8], "ELU")


def pack(memory: MemoryCfg | None = None) -> ActorCriticPackCfg:
    return ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(backbone_cfg=SMALL, memory=memory),
        critic_cfg=VNetworkCfg(backbone_cfg=SMALL, memory=memory),
    )


def ppo_for(env, num_steps=6, policy: ActorCriticPackCfg | None = None, **settings):
    torch.manual_seed(0)
    cfg = PPOCfg(**settings)
    module = (policy or pack()).build(env.interface)
    return cfg.build(module, env.num_envs, num_steps, torch.Generator().manual_seed(1))


def fill(ppo, env):
    observations = env.get_observations()
    for _ in range(ppo.rollout.num_steps):
        actions = ppo.act(observations)
        step = ControlStep.of(observations, actions, env.step(actions))
        ppo.observe(step)
        observations = step.next_observations
    return observations


def test_surrogate_by_hand():
    log_prob = torch.tensor([0.0, 0.5, -0.5]).log1p()  # ratios 1, 1.5 and 0.5
    losses = clipped_surrogate(log_prob, torch.zeros(3), torch.tensor([2.0, 1.0, -1.0]), 0.2)
    assert losses.tolist() == pytest.approx([-2.0, -1.2, 0.8])


def test_value_errors_by_hand():
    values, old, returns = torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([3.5])
    assert value_errors(values, old, returns, None).item() == pytest.approx(0.25)
    assert value_errors(values, old, returns, 0.2).item() == pytest.approx(2.3**2)


@pytest.mark.parametrize(
    ("kl", "expected"), [(0.03, 1e-3 / 1.5), (0.004, 1.5e-3), (0.015, 1e-3), (0.0, 1e-3)]
)
def test_learning_rate_follows_the_divergence(kl, expected):
    rate = adapted_learning_rate(torch.tensor(1e-3), torch.tensor(kl), 0.01, 1e-5, 1e-2)
    assert rate.item() == pytest.approx(expected)


def test_learning_rate_stays_in_its_range():
    high = adapted_learning_rate(torch.tensor(9e-3), torch.tensor(1e-3), 0.01, 1e-5, 1e-2)
    low = adapted_learning_rate(torch.tensor(1.2e-5), torch.tensor(1.0), 0.01, 1e-5, 1e-2)
    assert (high.item(), low.item()) == pytest.approx((1e-2, 1e-5))


def test_time_out_is_bootstrapped_with_the_value_of_the_final_observation():
    env = CorridorCfg(num_envs=2, length=3).build()
    ppo = ppo_for(env, num_steps=3, gamma=0.9, lam=1.0, num_mini_batches=1)
    finals = []
    observations = env.get_observations()
    for _ in range(3):
        actions = torch.zeros(2, 1)
        ppo.act(observations)
        result = env.step(actions)
        finals.append(result[3]["final_obs"])
        step = ControlStep.of(observations, actions, result)
        ppo.observe(step)
        observations = step.next_observations
    samples = ppo.returns(observations)
    with torch.no_grad():
        value = ppo.policy.critic.value(finals[2]["critic"])
    rewards = ppo.rollout["rewards"]
    expected = rewards[0] + 0.9 * rewards[1] + 0.81 * (rewards[2] + 0.9 * value)
    torch.testing.assert_close(samples.returns.view(3, 2)[0], expected)


def test_one_sample_is_no_rollout():
    with pytest.raises(ValueError, match=r"only 1 sample, .* set num_steps_per_env to 2 or more"):
        ppo_for(CorridorCfg(num_envs=1).build(), num_steps=1, num_mini_batches=1)


def test_termination_is_not_bootstrapped():
    env = CorridorCfg(num_envs=2, length=100).build()
    env.position[:] = -1.95
    ppo = ppo_for(env, num_steps=1, gamma=0.9, num_mini_batches=1)
    observations = env.get_observations()
    ppo.act(observations)
    actions = torch.full((2, 1), -1.0)
    step = ControlStep.of(observations, actions, env.step(actions))
    ppo.observe(step)
    samples = ppo.returns(step.next_observations)
    assert step.dones.all()
    assert not step.time_outs.any()
    assert samples.returns.tolist() == pytest.approx([-3.15, -3.15], abs=1e-5)
    assert not samples.goes_on.any()


def test_an_environment_without_final_observations_lends_the_one_before():
    observations = TensorDict({"policy": torch.tensor([[1.0], [2.0]])}, [2])
    after = TensorDict({"policy": torch.tensor([[5.0], [6.0]])}, [2])
    dones = torch.tensor([0, 1])
    result = (after, torch.zeros(2), dones, {"time_outs": torch.tensor([False, True])})
    step = ControlStep.of(observations, torch.zeros(2, 1), result)
    assert step.final_observations is not None
    assert step.final_observations["policy"].tolist() == [[2.0]]


def test_every_epoch_shuffles_anew():
    env = CorridorCfg().build()
    ppo = ppo_for(env, num_learning_epochs=2, num_mini_batches=2)
    samples = ppo.returns(fill(ppo, env))
    rows = [batch.indices.tolist() for batch in ppo.batches(samples)]
    first, second = rows[0] + rows[1], rows[2] + rows[3]
    assert sorted(first) == sorted(second) == list(range(48))
    assert first != second


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_first_mini_batch_has_ratio_one_and_no_divergence(precision):
    env = CorridorCfg().build()
    actor = StateIndStdActorCfg(backbone_cfg=plain_mlp([64, 64], "Tanh"), init_std=0.05)
    policy = ActorCriticPackCfg(actor_cfg=actor)
    ppo = ppo_for(
        env, policy=policy, num_learning_epochs=1, num_mini_batches=1, precision=precision
    )
    for _ in range(2):  # the second time observations are normalised
        metrics = ppo.update(fill(ppo, env))
        assert metrics["policy/kl"] == pytest.approx(0.0, abs=1e-6)
        assert metrics["policy/clip_fraction"] == 0.0


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_memory_sees_in_the_update_what_it_saw_when_acting(kind):
    env = CorridorCfg(num_envs=4, length=4, hides_position=True).build()
    policy = pack(MemoryCfg(kind=kind, hidden_size=8))
    ppo = ppo_for(env, policy=policy, num_learning_epochs=1, num_mini_batches=1)
    for _ in range(3):  # rollouts of 6 steps cut episodes of 4 at different places
        metrics = ppo.update(fill(ppo, env))
        assert metrics["policy/kl"] == pytest.approx(0.0, abs=1e-6)


def test_a_reset_between_rollouts_clears_memories_and_running_sums():
    env = CorridorCfg(num_envs=4).build()
    ppo = ppo_for(env, policy=pack(MemoryCfg(hidden_size=8)), normalize_rewards=True)
    ppo.update(fill(ppo, env))
    kept = ppo.actor_memory, ppo.critic_memory, ppo.reward_scaler.returns
    assert all(bool(tensor.any()) for tensor in kept)
    ppo.episodes_cut()
    kept = ppo.actor_memory, ppo.critic_memory, ppo.reward_scaler.returns
    assert not any(bool(tensor.any()) for tensor in kept)


def test_who_was_slowed_down_does_not_adapt_back_to_the_old_speed():
    ppo = ppo_for(CorridorCfg().build(), learning_rate=4e-3, max_learning_rate=4e-3)
    ppo.slow_down(0.5)
    for _ in range(3):
        ppo.adapt_learning_rate(torch.tensor(1e-4))  # far below what is desired
    assert ppo.learning_rate.item() == pytest.approx(2e-3)


def test_an_adaptive_learning_rate_begins_in_its_range():
    with pytest.raises(ValueError, match=r"learning_rate is 0.1, .* max_learning_rate=0.01"):
        PPOCfg(learning_rate=0.1)
    PPOCfg(learning_rate=0.1, schedule="fixed")


def test_std_stays_within_its_limits():
    env = CorridorCfg().build()
    actor = StateIndStdActorCfg(backbone_cfg=SMALL, init_std=1.0, min_std=0.9, max_std=1.1)
    for use_log_std in (True, False):
        policy = ActorCriticPackCfg(actor_cfg=actor.replace(use_log_std=use_log_std))
        ppo = ppo_for(env, policy=policy, learning_rate=0.5, schedule="fixed", entropy_coef=50.0)
        metrics = ppo.update(fill(ppo, env))
        assert metrics["policy/std"] == pytest.approx(1.1)


def test_categorical_by_hand():
    choices = Categorical(torch.tensor([[0.0, 0.0], [0.0, 1.0986123]]))  # 1:1 and 1:3
    assert choices.log_prob(torch.tensor([[1.0], [1.0]])).exp().tolist() == pytest.approx(
        [0.5, 0.75]
    )
    assert choices.mode[1].tolist() == [1.0]
    assert choices.entropy()[0].item() == pytest.approx(0.6931472)
    first, second = Categorical(choices.parameters[:1]), Categorical(choices.parameters[1:])
    assert first.kl_to(second).item() == pytest.approx(0.5 * 0.6931472 + 0.5 * -0.4054651)


def test_actor_and_environment_must_agree_on_the_kind_of_action():
    noisy = StateIndStdActorCfg(init_std=0.5)
    with pytest.raises(ValueError, match="has 3 discrete actions; use"):
        ActorCriticPackCfg(actor_cfg=noisy).build(Interface({"policy": 2}, 1, num_choices=3))
    with pytest.raises(ValueError, match="has continuous actions of 4 numbers; use"):
        ActorCriticPackCfg(actor_cfg=CategoricalActorCfg()).build(Interface({"policy": 2}, 4))


def test_discrete_actions_find_their_actor():
    policy = pack().build(Interface({"policy": 2}, 1, num_choices=3))
    assert type(policy.actor).__name__ == "CategoricalActor"
    assert policy.actor.cfg.backbone_cfg == SMALL


def test_unknown_observation_group_is_named():
    actor = StateIndStdActorCfg(observation_groups=["polcy"])
    with pytest.raises(ValueError, match=r"group 'polcy'.*did you mean 'policy'"):
        ActorCriticPackCfg(actor_cfg=actor).build(Interface({"policy": 2}, 1))


def test_restoring_an_optimizer_leaves_nothing_of_what_it_had():
    layer = torch.nn.Linear(2, 1)
    adam = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    adam.step()
    restore_optimizer(adam, layer, {})
    assert not adam.state


def test_rewards_that_differ_by_rounding_alone_are_not_divided_by_it():
    scaler = RewardScaler(2, gamma=0.0)
    rewards = torch.tensor([[0.1, 0.1], [0.1, 0.10000001]])
    assert rewards[1, 1] > 0.1
    dones = torch.zeros(2, 2, dtype=torch.bool)
    scaler(rewards, dones)
    assert torch.equal(scaler(rewards, dones), rewards)  # was 4e7
