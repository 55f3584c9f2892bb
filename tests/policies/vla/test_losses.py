"""Losses against values worked by hand."""

import math

import pytest
import torch

from rrf.policies.vla.losses import masked_smooth_l1, masked_token_cross_entropy, soft_labels

NO_PAD = torch.tensor([[False, False]])
LAST_IS_PAD = torch.tensor([[False, True]])


def test_smooth_l1_is_quadratic_inside_beta_and_linear_outside():
    prediction = torch.tensor([[[0.05], [0.5]]])
    target = torch.zeros(1, 2, 1)
    # 0.05^2 / (2 * 0.1) = 0.0125 and 0.5 - 0.1 / 2 = 0.45; their mean is 0.23125
    loss = masked_smooth_l1(prediction, target, NO_PAD, beta=0.1)
    assert loss.item() == pytest.approx(0.23125, abs=1e-7)


def test_padding_steps_count_neither_in_the_sum_nor_in_the_mean():
    prediction = torch.tensor([[[0.05], [1000.0]]], requires_grad=True)
    loss = masked_smooth_l1(prediction, torch.zeros(1, 2, 1), LAST_IS_PAD, beta=0.1)
    assert loss.item() == pytest.approx(0.0125, abs=1e-8)
    loss.backward()
    assert prediction.grad is not None
    assert prediction.grad.flatten().tolist() == pytest.approx(
        [0.5, 0.0]
    )  # 0.05 / 0.1, and nothing


def test_a_batch_of_padding_alone_has_loss_zero():
    all_pad = torch.tensor([[True, True]])
    assert masked_smooth_l1(torch.ones(1, 2, 1), torch.zeros(1, 2, 1), all_pad, 0.1).item() == 0.0


def test_hard_labels_put_everything_on_the_nearest_bin():
    centers = torch.linspace(-1, 1, 5)  # -1, -0.5, 0, 0.5, 1
    labels = soft_labels(torch.tensor([[[0.3, -7.0]]]), centers, sigma_bins=0, smoothing=0)
    assert labels.tolist() == [[[[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]]]


def test_soft_labels_fall_off_as_a_gaussian_in_bins():
    centers = torch.linspace(-1, 1, 3)  # one bin is 1.0 wide
    labels = soft_labels(torch.zeros(1, 1, 1), centers, sigma_bins=1.0, smoothing=0.0)
    side = math.exp(-0.5)  # one standard deviation away
    total = 1 + 2 * side
    assert labels.flatten().tolist() == pytest.approx([side / total, 1 / total, side / total])


def test_label_smoothing_spreads_its_share_evenly():
    labels = soft_labels(torch.tensor([[[1.0]]]), torch.linspace(-1, 1, 4), 0, smoothing=0.2)
    assert labels.flatten().tolist() == pytest.approx([0.05, 0.05, 0.05, 0.85])


def test_token_cross_entropy_of_uniform_logits_is_the_log_of_the_number_of_bins():
    logits = torch.zeros(1, 2, 1, 8)
    labels = soft_labels(torch.tensor([[[0.1], [0.9]]]), torch.linspace(-1, 1, 8), 1.0, 0.02)
    loss = masked_token_cross_entropy(logits, labels, NO_PAD)
    assert loss.item() == pytest.approx(math.log(8), abs=1e-6)


def test_token_cross_entropy_leaves_padding_out():
    logits = torch.tensor([[[[2.0, 0.0]], [[-50.0, 50.0]]]])
    labels = torch.tensor([[[[1.0, 0.0]], [[1.0, 0.0]]]])
    loss = masked_token_cross_entropy(logits, labels, LAST_IS_PAD)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-2.0)), abs=1e-6)
