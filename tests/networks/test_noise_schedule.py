"""The squared-cosine schedule and DDIM's steps, by hand."""

import math

import pytest
import torch

from rrf.networks.noise_schedule import ddim_step, denoised, noisy, squared_cosine


def test_the_schedule_of_four_levels():
    # f(k) = cos^2((k / 4 + 0.008) / 1.008 pi / 2): f(0) = 0.9998446, f(1) = 0.8468805,
    # f(2) = 0.4937668, f(3) = 0.1442497, f(4) = 0.
    # beta = 0.1529878, 0.4169581, 0.7078587, then 1 - 0 = 1, cut to 0.999.
    wanted = [0.8470122, 0.4938436, 0.1442721, 0.0001442721]
    assert squared_cosine(4).tolist() == pytest.approx(wanted, rel=2e-6)


def test_a_level_is_undone_by_the_noise_that_made_it():
    action, noise = torch.tensor([[[0.5, -2.0]]]), torch.tensor([[[1.0, 3.0]]])
    level = torch.tensor([0.64])
    x = noisy(action, noise, level)
    assert x.flatten().tolist() == pytest.approx([0.8 * 0.5 + 0.6, 0.8 * -2 + 0.6 * 3])
    assert denoised(x, noise, level, None).flatten().tolist() == pytest.approx([0.5, -2.0])
    assert denoised(x, noise, level, 1.0).flatten().tolist() == pytest.approx([0.5, -1.0])


def test_a_ddim_step_by_hand():
    action, noise = torch.tensor([[[2.0]]]), torch.tensor([[[1.0]]])
    level, after = torch.tensor([0.36]), torch.tensor([0.64])
    mean, std = ddim_step(action, noise, level, after, 0.0)
    assert mean.item() == pytest.approx(0.8 * 2 + 0.6 * 1)
    assert std.item() == 0
    # variance = (1 - 0.64) / (1 - 0.36) (1 - 0.36 / 0.64) = 0.5625 * 0.4375 = 0.24609375
    mean, std = ddim_step(action, noise, level, after, 1.0)
    assert std.item() == pytest.approx(math.sqrt(0.24609375))
    assert mean.item() == pytest.approx(0.8 * 2 + math.sqrt(0.36 - 0.24609375))


def test_with_eta_one_a_step_is_the_posterior_of_ddpm():
    # arXiv:2006.11239, equation 7: with a = 0.72, before it 0.8 (alpha = 0.9, beta = 0.1) and
    # x = 1, action = 0.5: mean = sqrt(0.8) 0.1 / 0.28 0.5 + sqrt(0.9) 0.2 / 0.28 1,
    # variance = 0.2 / 0.28 0.1
    x, action, level = 1.0, torch.tensor([[[0.5]]]), 0.72
    noise = (x - math.sqrt(level) * action) / math.sqrt(1 - level)
    mean, std = ddim_step(action, noise, torch.tensor([level]), torch.tensor([0.8]), 1.0)
    wanted = math.sqrt(0.8) * 0.1 / 0.28 * 0.5 + math.sqrt(0.9) * 0.2 / 0.28
    assert mean.item() == pytest.approx(wanted, rel=1e-5)
    assert std.item() ** 2 == pytest.approx(0.2 / 0.28 * 0.1, rel=1e-5)


def test_the_last_step_ends_in_the_action_without_noise():
    mean, std = ddim_step(
        torch.tensor([[[0.3]]]), torch.tensor([[[9.0]]]), torch.tensor([0.9]), torch.ones(1), 1.0
    )
    assert mean.item() == pytest.approx(0.3)
    assert std.item() == 0


def test_the_std_never_exceeds_the_noise_of_the_next_level():
    mean, std = ddim_step(
        torch.zeros(1, 1, 1), torch.ones(1, 1, 1), torch.tensor([0.36]), torch.tensor([0.64]), 5.0
    )
    assert std.item() == pytest.approx(0.6)
    assert mean.item() == 0
