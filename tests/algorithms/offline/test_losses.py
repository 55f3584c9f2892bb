"""Objectives of offline algorithms, worked by hand or by another library."""

import math

import pytest
import torch

from rrf.algorithms.off_policy.learner import Batch
from rrf.algorithms.off_policy.losses import (
    advantage_weights,
    expectile_loss,
    soft_maximum,
    uniform_log_density,
    value_against_imitation,
)
from rrf.algorithms.offline.configs import CQLCfg, IQLCfg, TD3BCCfg
from rrf.algorithms.offline.td3_bc import TD3BC
from rrf.envs.control_env import Interface
from rrf.policies.control.offline_configs import BoundedActorCfg, BoundedActorQPackCfg
from rrf.policies.control.offline_policies import BoundedGaussian
from rrf.storage.replay import RowLayout, Transitions


def test_an_expectile_weighs_errors_by_their_sign():
    # 0.9 * 4, 0.1 * 1
    assert expectile_loss(torch.tensor([2.0, -1.0]), 0.9).item() == pytest.approx(3.7 / 2)


def test_weights_of_advantages_are_limited():
    found = advantage_weights(torch.tensor([0.0, 1.0, 5.0]), beta=2.0, limit=50.0)
    torch.testing.assert_close(found, torch.tensor([1.0, math.e**2, 50.0]))


def test_the_soft_maximum_of_equal_values_is_above_them_by_the_entropy():
    values = torch.full((2, 3, 4), 5.0)
    torch.testing.assert_close(soft_maximum(values, 0.5), torch.full((2, 3), 5 + 0.5 * math.log(4)))


def test_the_density_of_uniform_actions_is_one_over_the_volume():
    assert math.exp(uniform_log_density(3, limit=0.5)) == pytest.approx(1.0)
    assert math.exp(uniform_log_density(2, limit=1.0)) == pytest.approx(0.25)


def test_values_count_against_imitation_in_units_of_their_size():
    values = torch.tensor([3.0, -1.0], requires_grad=True)
    loss = value_against_imitation(values, torch.tensor(0.5), alpha=4.0)
    assert loss.item() == pytest.approx(0.5 - 4 * 1 / 2)
    loss.backward()
    torch.testing.assert_close(values.grad, torch.full((2,), -4 / 2 / 2))


def test_a_bounded_gaussian_imitates_by_its_likelihood():
    mean, log_std = torch.tensor([[0.3, -0.9]]), torch.tensor([-1.0, 0.5])
    actions = torch.tensor([[0.5, 0.2]])
    expected = -torch.distributions.Normal(mean, log_std.exp()).log_prob(actions).sum(-1)
    policy = BoundedGaussian(mean, log_std)
    torch.testing.assert_close(policy.imitation_loss(actions), expected)
    drawn = BoundedGaussian(mean.expand(1000, 2), log_std).sample(torch.Generator().manual_seed(0))
    assert drawn.abs().max() == 1
    inside = drawn[:, 0][drawn[:, 0].abs() < 1]
    assert inside.mean().item() == pytest.approx(0.3, abs=0.05)


def test_a_policy_without_a_standard_deviation_imitates_by_the_distance():
    policy = BoundedGaussian(torch.tensor([[0.5, 0.0]]), None)
    torch.testing.assert_close(
        policy.imitation_loss(torch.tensor([[0.0, 2.0]])), torch.tensor([4.25])
    )
    assert torch.equal(policy.sample(), policy.mode)


def test_targets_of_td3_use_the_lowest_value_of_clipped_disturbed_actions():
    pack = BoundedActorQPackCfg(actor_cfg=BoundedActorCfg(is_deterministic=True))
    torch.manual_seed(0)
    policy = pack.build(Interface({"policy": 3}, num_actions=2))
    cfg = TD3BCCfg(target_noise=0.5, max_target_noise=0.3, gamma=0.9)
    learner = TD3BC(cfg, policy, 1, 10, torch.Generator())
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(4, 2 * 3 + 2 + 3, generator=generator)
    noise = torch.randn(4, 2, generator=generator)
    steps = Transitions(rows, RowLayout(3, None, 2))
    discounts = torch.tensor([0.9, 0.0, 0.9, 0.9])
    with torch.no_grad():
        shift = (0.5 * noise).clamp(-0.3, 0.3)
        actions = (policy.actor(steps.next_actor_obs).tanh() + shift).clamp(-1, 1)
        next_q = policy.critic(steps.next_critic_obs, actions)
        target = steps.rewards + discounts * torch.minimum(next_q[0], next_q[1])
        q = policy.critic(steps.critic_obs, steps.actions)
        expected = 0.5 * sum((one - target).square().mean() for one in q)
    before = {name: value.clone() for name, value in policy.actor.state_dict().items()}
    metrics = learner.learn(Batch(steps, discounts), noise)
    torch.testing.assert_close(metrics["loss/critic"], expected)
    assert "loss/actor" not in metrics  # every second step
    assert all(torch.equal(v, before[k]) for k, v in policy.actor.state_dict().items())
    assert "loss/actor" in learner.learn(Batch(steps, discounts), noise)
    assert not all(torch.equal(v, before[k]) for k, v in policy.actor.state_dict().items())


@pytest.mark.parametrize(
    ("cfg", "changes", "message"),
    [
        (IQLCfg, {"expectile": 1.0}, "expectile is 1.0, allowed: between 0 and 1"),
        (IQLCfg, {"beta": 0.0}, "beta is 0.0, allowed: above 0"),
        (CQLCfg, {"num_actions": 0}, "num_actions 0"),
        (CQLCfg, {"policy_delay": 2}, "policy_delay is 2, but CQL needs 1"),
        (TD3BCCfg, {"alpha": -1.0}, "alpha is -1.0, allowed: 0 or more"),
    ],
)
def test_impossible_settings_are_refused(cfg, changes, message):
    with pytest.raises(ValueError, match=message):
        cfg(**changes)
