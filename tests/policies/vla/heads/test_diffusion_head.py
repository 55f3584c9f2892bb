"""The diffusion head: two equally good actions stay two, and its densities agree."""

import pytest
import torch

from rrf.policies.vla.configs import RegressionHeadCfg
from rrf.policies.vla.heads.diffusion_configs import DiffusionHeadCfg


def trained(cfg, num_steps):
    """A head that saw actions of +0.7 and -0.7, equally often."""
    torch.manual_seed(0)
    head = cfg.build(2, 1, 1)
    optimizer = torch.optim.Adam(head.parameters(), 2e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, num_steps)
    target = torch.tensor([0.7, -0.7]).repeat(128)[:, None, None]
    features, is_pad = torch.ones(256, 2), torch.zeros(256, 1, dtype=torch.bool)
    for _ in range(num_steps):
        loss, _ = head.loss(features, target, is_pad)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return head.eval()


def test_both_of_two_good_actions_are_sampled():
    head = trained(DiffusionHeadCfg(hidden_features=[64, 64], num_train_steps=20), 500)
    for eta in (0.0, 1.0):
        head.cfg = head.cfg.replace(eta=eta)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            actions = head.sample(torch.ones(400, 2), generator, False).actions
        distance = (actions.abs() - 0.7).abs().flatten()
        assert (distance < 0.2).float().mean() > 0.75
        assert 0.35 < (actions > 0).float().mean() < 0.65
    # a head that predicts the action itself ends between them
    middle = trained(RegressionHeadCfg(), 100)(torch.ones(1, 2))
    assert middle.abs().item() < 0.1


@pytest.mark.parametrize("steps", ["one", "all"])
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_sampling_and_evaluation_give_the_same_probabilities(steps, factor):
    torch.manual_seed(0)
    head = DiffusionHeadCfg(eta=1.0, stochastic_steps=steps).build(3, 4, 2)
    head.noise_factor = factor
    torch.nn.init.normal_(head.output.weight, std=0.1)
    features = torch.randn(5, 3)
    for greedy in (False, True):
        with torch.no_grad():
            sample = head.sample(features, torch.Generator().manual_seed(1), greedy)
        log_prob, entropy = head.evaluate(features, sample.replay)
        assert torch.allclose(log_prob, sample.log_prob, atol=1e-5)
        assert log_prob.shape == entropy.shape == (5, 8)
        assert (log_prob != 0).all()


def test_the_probability_of_one_step_by_hand():
    # the network predicts no noise: the action is x / sqrt(a), clipped
    head = DiffusionHeadCfg(
        num_train_steps=4, num_denoise_steps=2, eta=1.0, stochastic_steps="one"
    ).build(1, 1, 1)
    torch.nn.init.zeros_(head.output.weight)
    # levels 2 and 0: a = 0.1442721 and 0.8470122; start 0.1, then 0.5, then the action
    chain = torch.tensor([0.1, 0.5, 0.5432868]).view(1, 3, 1, 1)
    replay = {"chain": chain, "denoise_index": torch.zeros(1, dtype=torch.long)}
    log_prob, _ = head.evaluate(torch.ones(1, 1), replay)
    # mean = sqrt(0.8470122) 0.1 / sqrt(0.1442721) = 0.2423001
    # variance = 0.1529878 / 0.8557279 (1 - 0.1442721 / 0.8470122) = 0.1483291
    # -ln sqrt(2 pi 0.1483291) - (0.5 - 0.2423001)^2 / (2 0.1483291) = 0.0352225 - 0.2238577
    assert log_prob.item() == pytest.approx(-0.1886353, abs=2e-6)


def test_without_randomness_there_is_no_density():
    head = DiffusionHeadCfg().build(3, 4, 2)
    sample = head.sample(torch.randn(5, 3), None, False)
    assert sample.log_prob is None
    with pytest.raises(NotImplementedError, match="eta = 0 has no density"):
        head.evaluate(torch.randn(5, 3), sample.replay)


def test_padded_steps_do_not_count():
    head = DiffusionHeadCfg().build(3, 4, 2)
    target, is_pad = torch.zeros(2, 4, 2), torch.zeros(2, 4, dtype=torch.bool)
    is_pad[:, 2:] = True
    found = []
    for value in (0.0, 0.9):
        target[:, 2:] = value
        head.noise = lambda features, x, index: torch.ones_like(x)
        torch.manual_seed(0)
        found.append(head.loss(torch.ones(2, 3), target, is_pad)[0].item())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_denoise_steps": 7}, "num_denoise_steps is 7, allowed: 2 or more, and a divisor"),
        ({"eta": 1.5}, "eta is 1.5, allowed: 0 to 1"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"hidden_features": []}, "hidden_features"),
    ],
)
def test_wrong_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        DiffusionHeadCfg(**changes)
