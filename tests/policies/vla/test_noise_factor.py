"""`noise_factor` scales what a head draws, and its density alike."""

import pytest
import torch

from rrf.policies import DiscreteTokenHeadCfg, FlowMatchingHeadCfg, GaussianHeadCfg

HEADS = [
    DiscreteTokenHeadCfg(),
    GaussianHeadCfg(),
    FlowMatchingHeadCfg(),
    FlowMatchingHeadCfg(noise_method="flow_sde", stochastic_steps="all"),
    FlowMatchingHeadCfg(noise_method="reinflow"),
]


@pytest.mark.parametrize("cfg", HEADS, ids=lambda cfg: getattr(cfg, "noise_method", type(cfg)))
def test_sampling_and_evaluation_agree_at_every_noise_factor(cfg):
    torch.manual_seed(0)
    head, features = cfg.build(6, 2, 3), torch.randn(64, 6)
    entropies = []
    for factor in (1.0, 0.5):
        head.noise_factor = factor
        sample = head.sample(features, torch.Generator().manual_seed(1), greedy=False)
        log_prob, entropy = head.evaluate(features, sample.replay)
        assert torch.allclose(log_prob, sample.log_prob, atol=1e-6)
        entropies.append(entropy.mean().item())
    assert entropies[1] < entropies[0]


def test_half_the_factor_is_half_the_spread():
    torch.manual_seed(0)
    head, features = GaussianHeadCfg(initial_std=0.3).build(6, 2, 3), torch.zeros(4000, 6)
    head.noise_factor = 0.5
    actions = head.sample(features, torch.Generator().manual_seed(1), greedy=False).actions
    assert actions.std(0).mean().item() == pytest.approx(0.15, rel=0.03)
