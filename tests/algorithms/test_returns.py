"""Returns, advantages and masks against golden data of RLinf and numbers worked by hand; and the
gradient they lead to on a bandit, in closed form."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from rrf.algorithms.losses import aggregate, clipped_surrogate, token_log_probs
from rrf.algorithms.returns import (
    action_level,
    action_level_values,
    add_time_limit_bootstrap,
    chunk_level,
    chunks_from_steps,
    episode_scores,
    first_episode_mask,
    gae,
    group_advantages,
    informative_groups,
    normalize,
    steps_from_chunks,
)

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(file: str, case: str) -> tuple[dict, dict[str, torch.Tensor]]:
    with np.load(GOLDEN / file, allow_pickle=False) as data:
        keys = [key for key in data.files if key.startswith(f"{case}/")]
        arrays = {key.removeprefix(f"{case}/"): torch.from_numpy(data[key]) for key in keys}
        return json.loads(str(data["config_json"]))[case], arrays


def close(got: torch.Tensor, expected: torch.Tensor, atol: float) -> None:
    torch.testing.assert_close(got, expected, atol=atol, rtol=0)


@pytest.mark.parametrize("case", ["gae0", "gae1", "gae2", "gae3", "gae4"])
def test_gae_agrees_with_rlinf_at_chunk_and_action_level(case):
    cfg, data = golden("rlinf_gae.npz", case)
    rewards, dones, values = data["rewards"], data["dones"], data["values"]
    if cfg["reward_type"] == "chunk_level":
        rewards_tb, dones_tb = chunk_level(rewards, dones)
        values_tb, length = values.squeeze(-1), 1
    else:
        rewards_tb, dones_tb = action_level(rewards, dones)
        values_tb, length = action_level_values(values), rewards.shape[-1]
    mask_tb = steps_from_chunks(data["loss_mask"]) if cfg["use_loss_mask"] else None
    advantages, returns = gae(rewards_tb, values_tb, dones_tb, cfg["gamma"], cfg["gae_lambda"])
    if cfg["normalize_advantages"]:
        advantages = normalize(advantages, mask_tb)
    if cfg["normalize_returns"]:
        returns = normalize(returns, mask_tb)
    close(chunks_from_steps(advantages, length), data["advantages"], 4e-6)
    close(chunks_from_steps(returns, length), data["returns"], 4e-6)


@pytest.mark.parametrize(
    ("case", "cause"), [("bootstrap0", "truncations"), ("bootstrap1", "dones")]
)
def test_bootstrap_agrees_with_rlinf(case, cause):
    cfg, data = golden("rlinf_gae.npz", case)
    adjusted = data["rewards"].clone()
    adjusted[:, -1] = add_time_limit_bootstrap(
        data["rewards"][:, -1], data[cause][:, -1], data["final_values"][:, 0], cfg["gamma"]
    )
    close(adjusted, data["adjusted_rewards"], 1e-7)


@pytest.mark.parametrize("case", ["grpo0", "grpo1", "grpo2", "grpo3"])
def test_group_advantages_masks_and_filter_agree_with_rlinf(case):
    cfg, data = golden("rlinf_grpo.npz", case)
    rewards, dones, size = data["merged_rewards"], data["merged_dones"], cfg["group_size"]
    is_chunk_level = cfg["reward_type"] == "chunk_level"
    rewards_tb, dones_tb = (chunk_level if is_chunk_level else action_level)(rewards, dones)
    length = 1 if is_chunk_level else rewards.shape[-1]
    scores = episode_scores(rewards_tb, dones_tb).view(-1, size)
    mask_tb = torch.ones_like(rewards_tb, dtype=torch.bool)
    if not (cfg["auto_reset"] or cfg["ignore_terminations"]):
        mask_tb = first_episode_mask(dones_tb)
        lengths = first_episode_mask(action_level(rewards, dones)[1]).sum(0)
        assert torch.equal(lengths.expand(len(rewards), -1), data["loss_mask_sum"][..., 0])
    if cfg["filter_rewards"]:
        kept = informative_groups(scores, cfg["rewards_lower_bound"], cfg["rewards_upper_bound"])
        assert kept.any()
        assert not kept.all()
        mask_tb = mask_tb & kept.repeat_interleave(size)
    assert torch.equal(chunks_from_steps(mask_tb, length), data["loss_mask"])
    advantages = torch.where(mask_tb, group_advantages(scores).flatten(), 0.0)
    close(chunks_from_steps(advantages, length), data["advantages"], 1e-6)


@pytest.mark.parametrize("case", ["grpo0", "grpo1", "grpo2", "grpo3"])
def test_rollout_epochs_lie_side_by_side_in_the_batch(case):
    cfg, data = golden("rlinf_grpo.npz", case)
    for key in ("rewards", "dones"):
        epochs = data[f"raw_{key}"].chunk(cfg["rollout_epoch"], dim=0)
        assert torch.equal(torch.cat(epochs, dim=1), data[f"merged_{key}"])


@pytest.mark.parametrize("case", ["grpo_dense0", "grpo_dense1"])
def test_group_advantages_of_dense_rewards_agree_with_rlinf(case):
    cfg, data = golden("rlinf_grpo.npz", case)
    rewards_tb, dones_tb = action_level(data["rewards"], data["dones"])
    mask_tb = first_episode_mask(dones_tb)
    lengths = mask_tb.sum(0)
    assert torch.equal(lengths.expand(len(data["rewards"]), -1), data["loss_mask_sum"][..., 0])
    scores = episode_scores(rewards_tb, dones_tb).view(-1, cfg["group_size"])
    advantages = torch.where(mask_tb, group_advantages(scores).flatten(), 0.0)
    close(chunks_from_steps(mask_tb, data["rewards"].shape[-1]), data["loss_mask"], 0)
    close(chunks_from_steps(advantages, data["rewards"].shape[-1]), data["advantages"], 1e-6)


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


def test_steps_of_a_chunk_follow_each_other_before_the_next_chunk():
    chunks = torch.tensor([[[1, 2], [10, 20]], [[3, 4], [30, 40]]])  # 2 chunks, 2 envs, 2 steps
    steps = steps_from_chunks(chunks)
    assert steps.tolist() == [[1, 10], [2, 20], [3, 30], [4, 40]]
    assert torch.equal(chunks_from_steps(steps, 2), chunks)


def test_chunk_level_adds_rewards_up_and_is_done_if_any_step_is():
    rewards = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    dones = torch.tensor([[[False, False], [False, False]], [[True, False], [False, False]]])
    rewards_sb, dones_sb = chunk_level(rewards, dones)
    assert rewards_sb.tolist() == [[3.0, 7.0]]
    assert dones_sb.tolist() == [[False, False], [True, False]]


def test_action_level_takes_only_the_last_step_of_the_chunk_before_the_rollout():
    dones = torch.tensor([[[True, False]], [[False, True]]])
    rewards_tb, dones_tb = action_level(torch.tensor([[[1.0, 2.0]]]), dones)
    assert rewards_tb.tolist() == [[1.0], [2.0]]
    assert dones_tb.tolist() == [[False], [False], [True]]
    assert action_level_values(torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])).tolist() == [
        [1.0],
        [2.0],
        [3.0],
    ]


def test_the_mask_and_the_score_end_with_the_first_done():
    rewards = torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [4.0, 4.0, 4.0]])
    dones = torch.tensor(
        [[False, False, False], [True, False, False], [False, True, False], [True, True, False]]
    )
    mask = first_episode_mask(dones)
    assert mask.T.tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert episode_scores(rewards, dones).tolist() == [1.0, 3.0, 7.0]


def test_an_environment_done_before_the_first_step_has_no_step_in_the_mask():
    dones = torch.tensor([[True, False], [False, False], [False, False]])
    assert first_episode_mask(dones).T.tolist() == [[False, False], [True, True]]


def test_the_score_is_of_the_episode_that_the_first_step_belongs_to():
    dones = torch.tensor([[True], [False], [True], [False]])  # an episode ended before step 0
    assert episode_scores(torch.tensor([[1.0], [2.0], [4.0]]), dones).tolist() == [3.0]


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


@pytest.mark.parametrize("function", [group_advantages, informative_groups])
def test_a_score_that_is_not_a_number_is_named(function):
    with pytest.raises(ValueError, match=r"scores\[1, 0\] is nan \(1 of 4"):
        function(torch.tensor([[1.0, 0.0], [math.nan, 0.0]]))


def test_infinite_rewards_are_named():
    with pytest.raises(ValueError, match=r"rewards\[0, 1\] is -inf"):
        episode_scores(torch.tensor([[0.0, -math.inf]]), torch.zeros(2, 2, dtype=torch.bool))


def test_groups_of_only_successes_or_only_failures_teach_nothing():
    scores = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    assert informative_groups(scores).tolist() == [False, False, True]


def test_the_bounds_of_informative_groups_are_inclusive():
    scores = torch.tensor([[0.0, 0.5], [0.0, 0.4], [0.5, 1.0], [0.6, 1.0]])  # .25 .2 .75 .8
    assert informative_groups(scores, lower=0.25, upper=0.75).tolist() == [True, False, True, False]


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
    log_prob = token_log_probs(logits.expand(len(arms), -1), torch.tensor(arms))
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
