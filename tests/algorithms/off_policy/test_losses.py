"""The objectives of off-policy algorithms, by hand."""

import math

import pytest
import torch

from rrf.algorithms.off_policy.losses import (
    alpha_loss,
    critic_loss,
    distributional_loss,
    policy_loss,
    refined_distributional_loss,
    soft_target,
)


def test_soft_target_by_hand():
    target = soft_target(
        rewards=torch.tensor([1.0, 2.0]),
        discounts=torch.tensor([0.9, 0.0]),
        next_values=torch.tensor([10.0, 99.0]),
        next_log_prob=torch.tensor([-2.0, 99.0]),
        alpha=torch.tensor(0.5),
    )
    assert target.tolist() == pytest.approx([1 + 0.9 * (10 + 1), 2.0])


def test_critic_loss_adds_half_the_mean_squared_error_of_each_critic():
    q = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    loss = critic_loss(q, torch.tensor([0.0, 4.0]))
    assert loss.item() == pytest.approx(0.5 * (1 + 4) / 2 + 0.5 * (0 + 16) / 2)


def test_policy_loss_trusts_the_lower_critic_in_each_state():
    log_prob = torch.tensor([-1.0, -3.0])
    q = torch.tensor([[1.0, 5.0], [2.0, 4.0]])
    loss = policy_loss(log_prob, q, torch.tensor(0.1))
    assert loss.item() == pytest.approx((-0.1 - 1 - 0.3 - 4) / 2)


def test_temperature_rises_where_the_entropy_is_too_low():
    log_alpha = torch.tensor(0.7, requires_grad=True)
    log_prob = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = alpha_loss(log_alpha, log_prob, target_entropy=-1.0)
    loss.backward()
    assert loss.item() == pytest.approx(-0.7 * 0.5)
    assert log_alpha.grad.item() == pytest.approx(-0.5)  # descent raises it
    assert log_prob.grad is None


def test_distributional_loss_is_the_likelihood_of_the_sampled_return():
    mean = torch.tensor([[1.0]], requires_grad=True)
    std = torch.tensor([[2.0]], requires_grad=True)
    loss = distributional_loss(mean, std, torch.tensor([4.0]), td_bound=20.0)
    # 9 / 8 appears twice: once to teach the mean, once the deviation.
    assert loss.item() == pytest.approx(9 / 8 + 9 / 8 + math.log(2))
    loss.backward()
    assert mean.grad.item() == pytest.approx((1 - 4) / 4)
    assert std.grad.item() == pytest.approx((4 - 9) / 8)  # (std^2 - error^2) / std^3


def test_the_bound_spares_the_deviation_but_not_the_mean():
    mean = torch.tensor([[0.0]], requires_grad=True)
    std = torch.tensor([[1.0]], requires_grad=True)
    distributional_loss(mean, std, torch.tensor([100.0]), td_bound=2.0).backward()
    assert mean.grad.item() == pytest.approx(-100.0)
    assert std.grad.item() == pytest.approx(1 - 4.0)


def test_refined_distributional_loss_by_hand():
    mean = torch.tensor([[1.0]], requires_grad=True)
    std = torch.tensor([[0.5]], requires_grad=True)
    loss = refined_distributional_loss(
        mean,
        std,
        target_b=torch.tensor([2.0]),
        sampled_target_b=torch.tensor([9.0]),
        running_std_k=torch.tensor([0.6]),
        bound_factor=3.0,
    )
    # weight 0.36 / 0.35; mean: 1 / 2; the sample is cut off at 1 + 1.8, so its half square is 1.62.
    weight = 0.36 / 0.35
    expected = weight * (0.5 + 0.5 * (0.25 - 1.62) / 0.6)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss.backward()
    assert mean.grad.item() == pytest.approx(weight * (1 - 2), rel=1e-6)
    assert std.grad.item() == pytest.approx(weight * (0.25 - 1.62) / 0.6, rel=1e-6)


def test_the_weight_of_a_distribution_is_bounded():
    mean, std = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[0.01]])
    target, running = torch.tensor([0.0]), torch.tensor([100.0])
    refined_distributional_loss(mean, std, target, target, running, 3.0).backward()
    assert mean.grad.item() == pytest.approx(10.0)
