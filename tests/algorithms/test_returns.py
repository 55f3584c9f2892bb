"""Returns and advantages against golden data of RLinf and numbers worked by hand; and the
gradient they lead to on a bandit, in closed form."""

import math

import pytest
import torch

from rrf.algorithms.returns import add_time_limit_bootstrap, gae, group_advantages, normalize
from rrf.algorithms.vla.losses import aggregate, clipped_surrogate
from rrf.runners.vla_rl.job_sources import GroupRound
from tests.closeness import assert_close
from tests.golden_files import cases, golden
from tests.runners.vla_rl.test_job_sources import finish, states

GAE, GRPO = "rlinf_gae.npz", "rlinf_grpo.npz"

# RLinf's layout: S chunks, B environments, C steps of a chunk, with time running through a chunk.


def steps_from_chunks(chunks_sbc: torch.Tensor) -> torch.Tensor:
    return chunks_sbc.transpose(1, 2).flatten(0, 1)


def chunks_from_steps(steps_tb: torch.Tensor, chunk_length: int) -> torch.Tensor:
    return steps_tb.unflatten(0, (-1, chunk_length)).transpose(1, 2)


def first_episode_scores(rewards_sbc: torch.Tensor, dones_sbc: torch.Tensor) -> torch.Tensor:
    """What each environment earned up to its first done; row 0 of `dones` stands before it."""
    rewards_tb, dones_tb = steps_from_chunks(rewards_sbc), steps_from_chunks(dones_sbc[1:])
    has_ended_tb = dones_tb.cumsum(0) - dones_tb.long() > 0
    return rewards_tb.where(~has_ended_tb, 0.0).sum(0)


@pytest.mark.parametrize("case", cases(GAE, r"gae\d+"))
def test_gae_agrees_with_rlinf_at_chunk_and_action_level(case):
    cfg, data = golden(GAE, case)
    rewards, dones, values = data["rewards"], data["dones"], data["values"]
    if cfg["reward_type"] == "chunk_level":
        rewards_tb, dones_tb, values_tb = rewards.sum(-1), dones.any(-1), values.squeeze(-1)
        length = 1
    else:
        rewards_tb, length = steps_from_chunks(rewards), rewards.shape[-1]
        # Of the chunk before the rollout the last step counts, of the last value the first.
        dones_tb = steps_from_chunks(dones)[length - 1 :]
        values_tb = steps_from_chunks(values)[: len(rewards_tb) + 1]
    mask_tb = steps_from_chunks(data["loss_mask"]) if cfg["use_loss_mask"] else None
    advantages, returns = gae(rewards_tb, values_tb, dones_tb, cfg["gamma"], cfg["gae_lambda"])
    if cfg["normalize_advantages"]:
        advantages = normalize(advantages, mask_tb)
    if cfg["normalize_returns"]:
        returns = normalize(returns, mask_tb)
    assert_close(chunks_from_steps(advantages, length), data["advantages"])
    assert_close(chunks_from_steps(returns, length), data["returns"])


@pytest.mark.parametrize("case", cases(GAE, r"bootstrap\d+"))
def test_bootstrap_agrees_with_rlinf(case):
    cfg, data = golden(GAE, case)
    cause = {"standard": "truncations", "always": "dones"}[cfg["bootstrap_type"]]
    adjusted = data["rewards"].clone()
    adjusted[:, -1] = add_time_limit_bootstrap(
        data["rewards"][:, -1], data[cause][:, -1], data["final_values"][:, 0], cfg["gamma"]
    )
    assert_close(adjusted, data["adjusted_rewards"])


@pytest.mark.parametrize("case", cases(GRPO, r"grpo\d+"))
def test_group_advantages_agree_with_rlinf(case):
    cfg, data = golden(GRPO, case)
    scores = first_episode_scores(data["merged_rewards"], data["merged_dones"])
    advantages = group_advantages(scores.view(-1, cfg["group_size"])).view(1, -1, 1)
    assert_close(torch.where(data["loss_mask"], advantages, 0.0), data["advantages"])


@pytest.mark.parametrize("case", cases(GRPO, r"grpo\d+", filter_rewards=True))
def test_a_round_keeps_the_groups_that_rlinf_keeps(case):
    # Rewards are for success alone here, and the bounds ask for some but not only successes.
    cfg, data = golden(GRPO, case)
    size = cfg["group_size"]
    scores = first_episode_scores(data["merged_rewards"], data["merged_dones"])
    scores = scores.view(-1, size)
    source = GroupRound(states(), len(scores), size, len(scores))
    finish(source, lambda group, member: bool(scores[group, member] > 0))
    expected = data["loss_mask"].any(0).any(-1).view(-1, size).all(-1)
    assert 0 < expected.sum() < len(scores)
    kept = [group[0].job.group for group in source.groups]
    assert kept == expected.nonzero().flatten().tolist()


@pytest.mark.parametrize("case", cases(GRPO, r"grpo_dense\d+"))
def test_group_advantages_of_dense_rewards_agree_with_rlinf(case):
    cfg, data = golden(GRPO, case)
    scores = first_episode_scores(data["rewards"], data["dones"]).view(-1, cfg["group_size"])
    advantages = group_advantages(scores).view(1, -1, 1)
    assert_close(torch.where(data["loss_mask"], advantages, 0.0), data["advantages"])


def test_gae_of_two_episodes_worked_by_hand():
    rewards = torch.tensor([[1.0], [2.0], [3.0]])
    values = torch.tensor([[0.5], [1.0], [1.5], [2.0]])
    dones = torch.tensor([[False], [False], [True], [False]])
    # gamma 0.5, lam 0.5. The episode ends with step 1; step 2 begins the next one.
    # delta_2 = 3 + 0.5 * 2 - 1.5 = 2.5,  delta_1 = 2 - 1 = 1,  delta_0 = 1 + 0.5 * 1 - 0.5 = 1
    # A_2 = 2.5,  A_1 = 1,  A_0 = 1 + 0.25 * 1 = 1.25;  R = A + V
    advantages, returns = gae(rewards, values, dones, gamma=0.5, lam=0.5)
    assert advantages.flatten().tolist() == [1.25, 1.0, 2.5]
    assert returns.flatten().tolist() == [1.75, 2.0, 4.0]


def test_timeout_adds_bootstrap_to_reward():
    rewards = torch.tensor([1.0, 1.0])
    truncated = torch.tensor([True, False])
    final_values = torch.tensor([10.0, math.nan])  # nobody computed the second one
    adjusted = add_time_limit_bootstrap(rewards, truncated, final_values, gamma=0.9)
    assert adjusted.tolist() == [10.0, 1.0]


def test_gae_names_the_shapes_that_do_not_fit():
    rewards, dones = torch.zeros(3, 2), torch.zeros(4, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"need values and dones of shape \[4, 2\].*\[3, 2\]"):
        gae(rewards, torch.zeros(3, 2), dones, 0.99, 0.95)


@pytest.mark.parametrize("name", ["rewards", "values"])
def test_gae_names_the_place_of_a_nan(name):
    tensors = {"rewards": torch.zeros(3, 2), "values": torch.zeros(4, 2)}
    tensors[name][2, 1] = math.nan
    dones = torch.zeros(4, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=rf"{name}\[2, 1\] is nan \(1 of"):
        gae(tensors["rewards"], tensors["values"], dones, 0.99, 0.95)


def test_group_advantages_divide_by_the_unbiased_std():
    # Scores 0 and 1: mean 0.5, unbiased variance 2 * 0.25 / 1 = 0.5.
    advantages = group_advantages(torch.tensor([[0.0, 1.0], [5.0, 5.0]]), eps=1e-6)
    assert advantages[0].tolist() == pytest.approx([-0.7071058, 0.7071058], abs=1e-6)
    assert advantages[1].tolist() == [0.0, 0.0]


def test_group_advantages_without_std_are_distances_from_the_group_mean():
    advantages = group_advantages(torch.tensor([[0.0, 1.0], [2.0, 6.0]]), use_std=False)
    assert advantages.tolist() == [[-0.5, 0.5], [-2.0, 2.0]]


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match=r"group size of 1 .* at least 2"):
        group_advantages(torch.tensor([[1.0], [0.0]]))


def test_a_score_that_is_not_a_number_is_named():
    with pytest.raises(ValueError, match=r"scores\[1, 0\] is nan \(1 of 4"):
        group_advantages(torch.tensor([[1.0, 0.0], [math.nan, 0.0]]))


def test_normalize_measures_only_inside_the_mask_and_moves_everything():
    values = torch.tensor([1.0, 3.0, 100.0])
    mask = torch.tensor([True, True, False])
    # mean 2, unbiased std sqrt(2)
    normalized = normalize(values, mask, eps=0.0)
    assert normalized.tolist() == pytest.approx([-0.7071068, 0.7071068, 69.2964646], rel=1e-6)


@pytest.mark.parametrize("mask", [[False, False], [True, False]])
def test_normalize_without_any_spread_gives_zeros(mask):
    assert normalize(torch.tensor([3.0, 8.0]), torch.tensor(mask)).tolist() == [0.0, 0.0]


def test_normalize_names_a_nan_inside_the_mask_only():
    values = torch.tensor([1.0, 2.0, math.nan])
    assert normalize(values, torch.tensor([True, True, False]))[0].item() == pytest.approx(
        -0.7070968, abs=1e-6
    )  # -0.5 / (0.7071068 + 1e-5)
    with pytest.raises(ValueError, match=r"advantages\[2\] is nan"):
        normalize(values)


# A bandit with three arms. The logits are the logs of the probabilities, so the gradient of
# log p(a) with respect to the logits is onehot(a) - p.
ARM_PROBS = (0.5, 0.3, 0.2)


def bandit_gradient(
    arms: list[int], ratios: list[float], advantages: torch.Tensor, clip_high: float = 0.28
) -> tuple[float, list[float]]:
    """Loss and gradient at the logits; the i-th arm was drawn with probability p / ratio."""
    logits = torch.tensor(ARM_PROBS).log().requires_grad_()
    log_prob = logits.log_softmax(-1)[arms]
    old_log_prob = log_prob.detach() - torch.tensor(ratios).log()
    loss = aggregate(clipped_surrogate(log_prob, old_log_prob, advantages, 0.2, clip_high).loss)
    loss.backward()
    assert logits.grad is not None
    return loss.item(), logits.grad.tolist()


# Arms 0, 1, 2, 0 were drawn and only arm 0 pays. Mean 1/2, unbiased std sqrt(4 * 0.25 / 3) =
# 0.57735027, so the advantages are +-0.5 / (0.57735027 + 1e-6) = +-0.86602390.
GROUP_ARMS, GROUP_SCORES = [0, 1, 2, 0], torch.tensor([[1.0, 0.0, 0.0, 1.0]])


def test_grpo_gradient_of_a_bandit_at_ratio_one_is_the_closed_form():
    loss, gradient = bandit_gradient(
        GROUP_ARMS, [1.0, 1.0, 1.0, 1.0], group_advantages(GROUP_SCORES)[0]
    )
    # -1/4 sum A_i (onehot(a_i) - p). The advantages sum to 0, so p drops out
    # and -0.21650598 * (2, -1, -1) is left.
    assert loss == pytest.approx(0.0, abs=1e-7)
    assert gradient == pytest.approx([-0.43301195, 0.21650598, 0.21650598], abs=1e-6)


def test_grpo_gradient_of_a_bandit_loses_the_sample_that_is_clipped():
    loss, gradient = bandit_gradient(
        GROUP_ARMS, [1.5, 1.0, 1.0, 1.0], group_advantages(GROUP_SCORES)[0]
    )
    # Sample 0 is good and already 1.5 times as likely (> 1.28): no gradient. What is left is
    # -A/4 [(1,0,0) - p - ((0,1,0) - p) - ((0,0,1) - p)] = -A/4 [(1,-1,-1) + p]
    # = -0.21650598 * (1.5, -0.7, -0.8);  loss -A/4 (1.28 - 1 - 1 + 1) = -0.21650598 * 0.28
    assert loss == pytest.approx(-0.06062167, abs=1e-6)
    assert gradient == pytest.approx([-0.32475896, 0.15155418, 0.17320478], abs=1e-6)


def test_grpo_keeps_pushing_down_a_bad_arm_that_became_more_likely():
    _, gradient = bandit_gradient(
        GROUP_ARMS, [1.0, 1.5, 1.0, 1.0], group_advantages(GROUP_SCORES)[0]
    )
    # Above the upper bound with A < 0 nothing is clipped; sample 1 counts 1.5 times:
    # -A/4 [(2,0,0) - 2p - 1.5 (0,1,0) + 1.5p - (0,0,1) + p] = -0.21650598 * (2.25, -1.35, -0.9)
    assert gradient == pytest.approx([-0.48713845, 0.29228307, 0.19485538], abs=1e-6)


def test_ppo_gradient_of_a_bandit_with_a_value_baseline_is_the_closed_form():
    dones = torch.tensor([[False, False], [True, True]])
    values = torch.tensor([[1.0, 1.0], [7.0, 7.0]])  # what follows the end does not count
    advantages, _ = gae(torch.tensor([[3.0, 0.0]]), values, dones, 0.99, 0.95)
    loss, gradient = bandit_gradient([2, 1], [1.1, 0.7], advantages[0], clip_high=0.2)
    # A = 3 - 1 = 2 for arm 2 at ratio 1.1: loss -2.2, gradient -2.2 (-0.5, -0.3, 0.8).
    # A = 0 - 1 = -1 for arm 1 at ratio 0.7 < 0.8: loss 0.8, clipped, no gradient. Means of two:
    assert loss == pytest.approx(-0.7, abs=1e-6)
    assert gradient == pytest.approx([0.55, 0.33, -0.88], abs=1e-6)
