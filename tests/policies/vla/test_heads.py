"""Gaussian and flow-matching heads: densities, seeding, padding and learning."""

import math

import numpy as np
import pytest
import torch

from rrf.data.schema import Observation
from rrf.policies import DiscreteTokenHeadCfg, FlowMatchingHeadCfg, GaussianHeadCfg
from rrf.policies.vla.action_heads import DiscreteTokenHead, GaussianHead, to_normal, uniform_rows
from tests.closeness import assert_close
from tests.golden_files import golden
from tests.policies.vla.conftest import (
    ACTION,
    CHUNK,
    FEATURES,
    FLOWS,
    GAUSSIAN,
    HEADS,
    draw,
    features,
    generator,
    make_head,
    name,
    train,
)
from tests.runners.supervised.conftest import INSTRUCTIONS, SIZE, tiny_policy_cfg


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("cfg", HEADS, ids=name)
def test_ratio_between_evaluation_and_sampling_is_exactly_one(cfg, greedy):
    head = make_head(cfg)
    sample = draw(head, features(32), greedy=greedy)
    log_prob, entropy = head.evaluate(features(32), sample.replay)
    assert sample.log_prob is not None
    assert torch.equal(log_prob, sample.log_prob)
    assert log_prob.shape == entropy.shape == (32, CHUNK * ACTION)
    assert log_prob.dtype == entropy.dtype == torch.float32
    assert log_prob.requires_grad
    assert sample.actions.shape == (32, CHUNK, ACTION)


@pytest.mark.parametrize("cfg", HEADS, ids=name)
def test_every_parameter_has_a_gradient_from_log_prob_and_entropy(cfg):
    head = make_head(cfg)
    sample = draw(head, features(64))
    log_prob, entropy = head.evaluate(features(64), sample.replay)
    (log_prob.exp().mean() + entropy.mean()).backward()
    for parameter_name, parameter in head.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


@pytest.mark.parametrize("cfg", HEADS, ids=name)
def test_the_generator_alone_decides_the_sample(cfg):
    head = make_head(cfg)
    first = draw(head, features(5), seed=1)
    torch.manual_seed(123)
    again, other = draw(head, features(5), seed=1), draw(head, features(5), seed=2)
    assert torch.equal(first.actions, again.actions)
    assert not torch.equal(first.actions, other.actions)


@pytest.mark.parametrize("cfg", HEADS, ids=name)
def test_a_sample_does_not_depend_on_how_many_follow_it(cfg):
    head = make_head(cfg)
    many, few = draw(head, features(20), seed=3), draw(head, features(20)[:3], seed=3)
    assert torch.allclose(many.actions[:3], few.actions, atol=1e-5)
    for key, value in few.replay.items():
        assert torch.allclose(many.replay[key][:3], value, atol=1e-5), key


@pytest.mark.parametrize("cfg", [*HEADS, DiscreteTokenHeadCfg(num_bins=9)], ids=name)
def test_with_a_generator_per_row_a_sample_does_not_depend_on_the_other_rows(cfg):
    head = make_head(cfg)
    rows = [7, 2, 11]
    with torch.no_grad():
        every = head.sample(features(12), [generator(row) for row in range(12)], False)
        some = head.sample(features(12)[rows], [generator(row) for row in rows], False)
    assert torch.allclose(every.actions[rows], some.actions, atol=1e-5)
    assert torch.allclose(every.log_prob[rows], some.log_prob, atol=1e-4)


@pytest.mark.parametrize("cfg", HEADS, ids=name)
def test_densities_stay_float32_under_bfloat16_autocast(cfg):
    head, wide = make_head(cfg), features(8)
    sample = draw(head, wide)
    with torch.autocast("cpu", torch.bfloat16):
        log_prob, _ = head.evaluate(wide, sample.replay)
    assert sample.log_prob is not None
    assert torch.equal(log_prob, sample.log_prob)


def test_drawn_normals_are_standard_normal_and_finite():
    normals = to_normal(uniform_rows(500, 40, generator(4), torch.device("cpu")))
    assert normals.dtype == torch.float32
    assert normals.mean().item() == pytest.approx(0.0, abs=0.03)
    assert normals.std().item() == pytest.approx(1.0, abs=0.03)
    within = (normals.abs() < 1).float().mean().item()
    assert within == pytest.approx(0.6827, abs=0.015)
    # a uniform number of exactly 0 is possible; Phi(1) = 0.8413447
    edge = to_normal(torch.tensor([0.0, 0.5, 0.8413447461], dtype=torch.float64))
    assert edge[0].isfinite()
    assert edge[1:].tolist() == pytest.approx([0.0, 1.0], abs=1e-6)


def test_token_log_prob_and_entropy_agree_with_rlinf():
    _, data = golden("rlinf_losses.npz", "logits")
    num_bins, logits = data["logits"].shape[-1], data["logits"].flatten(1)
    num_tokens = data["target"].shape[1]
    head = DiscreteTokenHead(
        DiscreteTokenHeadCfg(num_bins=num_bins), logits.shape[1], num_tokens, 1
    )
    torch.nn.init.eye_(head.output.weight)  # what comes in are the logits
    log_prob, entropy = head.evaluate(logits, {"tokens": data["target"]})
    assert_close(log_prob, data["logprobs"])
    assert_close(entropy, data["entropy"])


def test_gaussian_log_prob_and_entropy_equal_those_of_torch_distributions():
    head = make_head(GAUSSIAN)
    with torch.no_grad():
        head.log_std_ha.copy_(torch.tensor([[-1.0, -1.2, -2.0], [-0.5, -1.5, -2.5]]))
    sample = draw(head, features(50))
    log_prob, entropy = head.evaluate(features(50), sample.replay)
    std = 1.7 * torch.tensor(
        [[0.36787944, 0.30119421, 0.13533528], [0.60653066, 0.22313016, 0.0820850]]
    )
    reference = torch.distributions.Normal(head(features(50)), std.expand(50, CHUNK, ACTION))
    assert torch.allclose(log_prob, reference.log_prob(sample.actions).flatten(1), atol=1e-5)
    assert torch.allclose(entropy, reference.entropy().flatten(1), atol=1e-6)


def test_gaussian_samples_have_the_mean_and_the_tempered_std():
    head = GaussianHead(GaussianHeadCfg(initial_std=0.25, temperature=2.0), 1, 1, 2)
    with torch.no_grad():
        head.output.bias.copy_(torch.tensor([0.3, -2.0]))
    actions = draw(head, torch.zeros(20000, 1)).actions[:, 0]
    assert actions.mean(0).tolist() == pytest.approx([0.3, -2.0], abs=0.02)
    assert actions.std(0).tolist() == pytest.approx([0.5, 0.5], abs=0.02)


def test_persistent_noise_correlates_the_decisions_of_an_episode_and_keeps_the_std():
    head = GaussianHead(GaussianHeadCfg(initial_std=0.5, persistent_share=0.36), 1, 2, 1)
    with torch.no_grad():
        head.output.bias.zero_()
        streams = [torch.Generator().manual_seed(seed) for seed in range(4000)]
        first, second = (head.sample(torch.zeros(4000, 1), streams, False) for _ in range(2))
    steps = torch.cat([first.actions, second.actions], 1).squeeze(2).T  # two chunks of two steps
    correlations = torch.corrcoef(steps)
    assert correlations[~torch.eye(4, dtype=torch.bool)].tolist() == pytest.approx(
        [0.36] * 12, abs=0.05
    )
    assert steps.std(1).tolist() == pytest.approx([0.5] * 4, abs=0.02)
    assert torch.equal(first.log_prob, head.evaluate(torch.zeros(4000, 1), first.replay)[0])


def test_gaussian_greedy_is_the_mean():
    head = make_head(GAUSSIAN)
    assert torch.equal(draw(head, features(4), greedy=True).actions, head(features(4)))


@pytest.mark.parametrize(("log_std", "std"), [(5.0, 1.0), (-9.0, 0.05)])
def test_a_std_out_of_range_is_clamped_and_can_come_back(log_std, std):
    head = make_head(GaussianHeadCfg())
    with torch.no_grad():
        head.log_std_ha.fill_(log_std)
    _, entropy = head.evaluate(features(1), draw(head, features(1)).replay)
    expected = math.log(std) + 1.4189385  # log(std) + 1/2 log(2 pi e)
    assert entropy.flatten().tolist() == pytest.approx([expected] * 6, abs=1e-5)
    entropy.sum().backward()
    assert torch.equal(head.log_std_ha.grad, torch.ones(CHUNK, ACTION))


@pytest.mark.parametrize(
    ("cfg", "parameter"),
    [(GAUSSIAN, "log_std_ha"), (FLOWS[-1], "explore_noise.mlp.layers.0.weight")],
    ids=["gaussian", "reinflow"],
)
def test_the_supervised_loss_leaves_the_std_alone(cfg, parameter):
    head = make_head(cfg)
    target, is_pad = torch.zeros(4, CHUNK, ACTION), torch.zeros(4, CHUNK, dtype=torch.bool)
    head.loss(features(4), target, is_pad)[0].backward()
    assert head.get_parameter(parameter).grad is None
    assert head.output.weight.grad.abs().max() > 0


def test_gaussian_loss_ignores_what_stands_in_padding_steps():
    head = make_head(GAUSSIAN)
    is_pad = torch.zeros(5, CHUNK, dtype=torch.bool)
    is_pad[2:, 1] = True
    target = torch.zeros(5, CHUNK, ACTION)
    loss, metrics = head.loss(features(5), target, is_pad)
    target[is_pad] = 0.9
    assert head.loss(features(5), target, is_pad)[0].item() == loss.item()
    target[0, 0] = 0.9
    assert head.loss(features(5), target, is_pad)[0].item() != loss.item()
    assert set(metrics) == {"loss/action_l1"}


@pytest.mark.parametrize("cfg", [GaussianHeadCfg(), *FLOWS[4:6], FLOWS[8]], ids=name)
def test_a_head_learns_a_small_regression_problem(cfg):
    torch.manual_seed(0)
    head, inputs = cfg.build(FEATURES, CHUNK, ACTION), features(256)
    weight = 0.3 * torch.randn(FEATURES, CHUNK * ACTION, generator=generator(8))
    target = (inputs @ weight).view(-1, CHUNK, ACTION)
    before = (draw(head, inputs, greedy=True).actions - target).abs().mean().item()
    first, last = train(head, inputs, target, num_steps=500, lr=3e-3)
    after = (draw(head, inputs, greedy=True).actions - target).abs().mean().item()
    assert last < 0.3 * first
    assert after < 0.25 * before


@pytest.mark.parametrize("cfg", [GAUSSIAN, FlowMatchingHeadCfg()], ids=name)
def test_a_policy_samples_from_the_head(cfg):
    stats = {"min": [-1, -1], "max": [1, 1], "mean": [0, 0], "std": [1, 1]}
    torch.manual_seed(0)
    policy = tiny_policy_cfg(head=cfg).build({"observation.state": stats, "action": stats})
    rng = np.random.default_rng(0)
    observation = Observation(
        images={"front": rng.integers(0, 256, (4, SIZE, SIZE, 3), np.uint8)},
        state=rng.standard_normal((4, 2)).astype(np.float32),
        instruction=[INSTRUCTIONS[0]] * 4,
    )
    sample = policy.sample(observation, generator(1))
    log_prob, _ = policy.head.evaluate(policy(observation), sample.replay)
    assert sample.actions.shape == (4, 2, 2)
    assert sample.actions.dtype == np.float32
    assert torch.equal(log_prob, sample.log_prob)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"initial_std": 0.01}, "min_std, initial_std, max_std are 0.05, 0.01, 1.0"),
        ({"min_std": 0.0}, "are 0.0, 0.3, 1.0"),
        ({"max_std": 0.2}, "are 0.05, 0.3, 0.2"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"huber_beta": -1.0}, "huber_beta is -1.0"),
        ({"persistent_share": 1.5}, "persistent_share is 1.5, allowed: 0 to 1"),
    ],
)
def test_a_gaussian_head_without_sense_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        GaussianHeadCfg(**values)
