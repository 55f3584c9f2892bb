"""The compact policy and its heads, as any caller of the policy contract sees them."""

import numpy as np
import pytest
import torch

from rrf.data.schema import Batch, Observation
from rrf.policies import DiscreteTokenHeadCfg, RegressionHeadCfg
from rrf.policies.vla.action_heads import DiscreteTokenHead
from tests.runners.supervised.conftest import INSTRUCTIONS, SIZE, tiny_policy_cfg

STATS = {
    "observation.state": {"min": [-1, -1], "max": [1, 1], "mean": [0.1, 0.2], "std": [0.5, 2.0]},
    "action": {"min": [-0.5, -1.0], "max": [0.5, 1.0], "mean": [0, 0], "std": [1, 1]},
}
TOKENS = DiscreteTokenHeadCfg(num_bins=7, temperature=1.7)


def make_policy(head, seed: int = 0):
    torch.manual_seed(seed)
    policy = tiny_policy_cfg(head=head).build(STATS)
    torch.nn.init.normal_(policy.head.output.weight, std=1.0)  # far from uniform
    return policy


def make_observation(batch: int = 5) -> Observation:
    rng = np.random.default_rng(0)
    return Observation(
        images={"front": rng.integers(0, 256, (batch, SIZE, SIZE, 3), dtype=np.uint8)},
        state=rng.standard_normal((batch, 2)).astype(np.float32),
        instruction=[INSTRUCTIONS[i % 2] for i in range(batch)],
    )


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_token_log_prob_and_entropy_equal_those_of_torch_distributions():
    policy = make_policy(TOKENS)
    observation = make_observation()
    sample = policy.sample(observation, generator(1))
    with torch.no_grad():
        logits = policy.head(policy(observation))
        evaluation = policy.evaluate(observation, sample.replay)
    log_prob, entropy = evaluation.log_prob, evaluation.entropy
    reference = torch.distributions.Categorical(logits=logits / 1.7)
    assert torch.allclose(log_prob, reference.log_prob(sample.replay["tokens"]), atol=1e-6)
    assert torch.allclose(entropy, reference.entropy(), atol=1e-6)
    assert log_prob.shape == entropy.shape == (5, 2 * 2)


def test_ratio_between_evaluation_and_sampling_is_exactly_one():
    policy = make_policy(TOKENS)
    observation = make_observation(32)
    sample = policy.sample(observation, generator(2))
    log_prob = policy.evaluate(observation, sample.replay).log_prob
    assert sample.log_prob is not None
    assert torch.equal((log_prob - sample.log_prob).exp(), torch.ones(32, 4))
    assert log_prob.requires_grad
    assert not sample.log_prob.requires_grad


def test_sampled_tokens_follow_the_tempered_distribution():
    head = DiscreteTokenHead(DiscreteTokenHeadCfg(num_bins=3, temperature=2.0), 1, 1, 1)
    with torch.no_grad():
        head.output.weight.zero_()
        head.output.bias.copy_(torch.tensor([0.0, 2 * np.log(2.0), 2 * np.log(5.0)]))
    # logits divided by 2 are log(1), log(2), log(5): probabilities 1/8, 2/8, 5/8
    tokens = head.sample(torch.zeros(8000, 1), generator(3), greedy=False).replay["tokens"]
    shares = torch.bincount(tokens.flatten(), minlength=3) / 8000
    assert shares.tolist() == pytest.approx([0.125, 0.25, 0.625], abs=0.02)


def test_greedy_takes_the_mode_and_needs_no_generator():
    policy = make_policy(TOKENS)
    observation = make_observation()
    sample = policy.sample(observation, greedy=True)
    with torch.no_grad():
        best = policy.head(policy(observation)).argmax(-1)
    assert torch.equal(sample.replay["tokens"], best)


def test_bins_stand_for_even_values_over_the_range_of_the_data():
    policy = make_policy(DiscreteTokenHeadCfg(num_bins=5))
    sample = policy.sample(make_observation(), generator(4))
    values = np.array([[-0.5, -0.25, 0.0, 0.25, 0.5], [-1.0, -0.5, 0.0, 0.5, 1.0]])
    tokens = sample.replay["tokens"].view(5, 2, 2).numpy()
    for dimension in range(2):
        expected = values[dimension][tokens[..., dimension]]
        assert sample.actions[..., dimension] == pytest.approx(expected, abs=1e-6)


def test_the_same_generator_state_gives_the_same_sample():
    policy = make_policy(TOKENS)
    observation = make_observation()
    first, again, other = (policy.sample(observation, generator(seed)) for seed in (5, 5, 6))
    assert np.array_equal(first.actions, again.actions)
    assert not np.array_equal(first.actions, other.actions)


def test_regression_head_has_no_density():
    policy = make_policy(RegressionHeadCfg())
    sample = policy.sample(make_observation())
    assert sample.log_prob is None
    assert sample.actions.shape == (5, 2, 2)
    assert sample.actions.dtype == np.float32
    with pytest.raises(NotImplementedError, match=r"no density"):
        policy.evaluate(make_observation(), sample.replay)


@pytest.mark.parametrize("head", [RegressionHeadCfg(), TOKENS])
def test_loss_ignores_what_stands_in_padding_steps(head):
    policy = make_policy(head)
    action = np.zeros((5, 2, 2), np.float32)
    is_pad = np.zeros((5, 2), bool)
    is_pad[2:, 1] = True
    loss, _ = policy.loss(Batch(make_observation(), action, is_pad))
    changed = action.copy()
    changed[is_pad] = 0.9
    same, metrics = policy.loss(Batch(make_observation(), changed, is_pad))
    assert loss.item() == same.item()
    changed[0, 0] = 0.9
    different, _ = policy.loss(Batch(make_observation(), changed, is_pad))
    assert different.item() != loss.item()
    assert set(metrics) == {"loss/action_l1"}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("images", {}, r"needs observation.images.front, but the observation has only: none"),
        (
            "images",
            {"front": np.zeros((5, 8, 8, 3), np.uint8)},
            r"front is uint8\[5, 8, 8, 3\], but the policy was trained on uint8\[5, 16, 16, 3\]",
        ),
        ("images", {"front": np.zeros((5, SIZE, SIZE, 3), np.float32)}, r"front is float32"),
        ("state", np.zeros((5, 3), np.float32), r"float32\[5, 3\], but .* float32\[5, 2\]"),
        ("state", np.zeros((5, 2)), r"float64\[5, 2\], but .* float32"),
    ],
)
def test_an_observation_of_another_shape_is_refused(field, value, message):
    observation = make_observation()
    setattr(observation, field, value)
    with pytest.raises(ValueError, match=message):
        make_policy(TOKENS).sample(observation)


def test_a_policy_with_two_cameras_reads_both():
    torch.manual_seed(0)
    policy = tiny_policy_cfg(cameras=["front", "wrist"]).build(STATS)
    torch.nn.init.normal_(policy.head.output.weight)
    observation = make_observation()
    observation.images["wrist"] = observation.images["front"].copy()
    before = policy.sample(observation).actions
    observation.images["wrist"][:] = 255
    assert not np.allclose(before, policy.sample(observation).actions)


@pytest.mark.parametrize(
    ("field", "value"), [("num_bins", 257), ("num_bins", 1), ("temperature", 0)]
)
def test_a_token_head_without_sense_is_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        DiscreteTokenHeadCfg(**{field: value})
