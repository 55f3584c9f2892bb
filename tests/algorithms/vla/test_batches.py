"""Rows, advantages and losses of GRPO and PPO, by hand."""

import copy

import numpy as np
import pytest
import torch

from rrf.algorithms import GRPOCfg, ReinforceCfg, VLAPPOCfg
from rrf.algorithms.vla.configs import DecoupledCfg
from rrf.policies.vla.configs import ValueHeadCfg
from rrf.storage.trajectories import PlayedEpisode, executed_mask
from tests.runners.vla_rl.toy import make_policy, observe, policy_cfg

HORIZON = 10


def episode(policy, steps, success, value=None, final_value=float("nan"), goal=(0.1, -0.2)):
    """An episode of `len(steps)` decisions."""
    count = len(steps)
    seen = observe([np.array(goal, np.float32)] * count)
    sample = policy.sample(seen, torch.Generator().manual_seed(sum(steps)))
    return PlayedEpisode(
        job=None,
        observation=seen,
        replay=sample.replay,
        log_prob=sample.log_prob,
        value=torch.full((count, 1), torch.nan) if value is None else torch.tensor(value),
        reward=np.zeros(count, np.float32),
        steps=np.array(steps),
        success=success,
        truncated=not success,
        final_value=final_value,
        policy_version=0,
        reset_digest="",
    )


def grpo(policy=None, reference=None, **changes):
    policy = policy or make_policy(policy_cfg())
    return GRPOCfg(**changes).build(policy, reference), policy


def test_what_was_not_executed_is_masked():
    mask = executed_mask(torch.tensor([2, 1]), 2, 6)
    assert mask.tolist() == [[True] * 6, [True] * 3 + [False] * 3]


def test_group_advantages_reach_every_row_and_faster_success_is_worth_more():
    algorithm, policy = grpo(time_cost=0.5)
    group = [
        episode(policy, [2, 2], True),  # 4 of 10 steps: 1 - .5 * .4 = .8
        episode(policy, [2, 2, 2, 2], True),  # 8 of 10: .6
        episode(policy, [2, 2, 2, 2, 2], False),  # 0
    ]
    batch = algorithm.batch([group], HORIZON)
    # mean .46667, unbiased std of (.8, .6, 0) = .41633
    expected = [0.80064] * 2 + [0.32026] * 4 + [-1.12090] * 5
    assert batch.advantage.flatten().tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # scores 1, 0 | 1, 1 | 0, 1; without std, a group of two gives +-1 or 0
        ({}, [1, -1, 0, 0, -1, 1]),
        # mean of all 2/3, unbiased std sqrt(4/15) = .5164
        ({"baseline": "batch"}, [1 / 3, -2 / 3, 1 / 3, 1 / 3, -2 / 3, 1 / 3]),
        (
            {"baseline": "batch", "normalizes": True},
            [0.6455, -1.2910, 0.6455, 0.6455, -1.2910, 0.6455],
        ),
        # +-1/2 or 0, mean 0, unbiased std sqrt(1/5) = .4472
        ({"baseline": "group", "normalizes": True}, [1.118, -1.118, 0, 0, -1.118, 1.118]),
    ],
)
def test_reinforce_compares_with_other_episodes(changes, expected):
    policy = make_policy(policy_cfg())
    algorithm = ReinforceCfg(time_cost=0, **changes).build(policy)
    outcomes = [(True, False), (True, True), (False, True)]
    groups = [[episode(policy, [2], success) for success in group] for group in outcomes]
    batch = algorithm.batch(groups, HORIZON)
    assert batch.advantage.flatten().tolist() == pytest.approx(expected, abs=1e-4)
    assert algorithm.needs_contrast == (changes.get("baseline") != "batch")


def test_the_last_share_of_the_horizon_is_punished_in_proportion():
    policy = make_policy(policy_cfg())
    algorithm = ReinforceCfg(
        time_cost=0, overlong_share=0.4, baseline="batch", normalizes=False
    ).build(policy)
    group = [episode(policy, steps, True) for steps in ([2, 2, 2], [2, 2, 2, 2], [2] * 5)]
    scores = algorithm.batch([group], HORIZON).advantage.flatten()
    # 6, 8 and 10 of 10 steps: punished by 0, a half and 1
    per_episode = [scores[0], scores[3], scores[7]]
    assert [float(score - scores[0]) for score in per_episode] == pytest.approx([0, -0.5, -1])


def test_an_episode_alone_is_compared_with_the_batch_only():
    assert ReinforceCfg(baseline="batch", group_size=1).group_size == 1
    with pytest.raises(ValueError, match="needs at least one other to be compared with"):
        ReinforceCfg(group_size=1)
    with pytest.raises(ValueError, match=r"overlong_share is 1\.5, allowed: 0 to 1"):
        GRPOCfg(overlong_share=1.5)


def test_episodes_weigh_alike_or_rows_do():
    algorithm, policy = grpo(weighting="trajectory")
    group = [episode(policy, [2], True), episode(policy, [2, 2, 2], False)]
    # mean length 2: the row of the short episode counts 2, those of the long one 2/3
    batch = algorithm.batch([group], HORIZON)
    assert batch.weight.tolist() == pytest.approx([2.0, 2 / 3, 2 / 3, 2 / 3])
    algorithm, _ = grpo(policy, weighting="token")
    assert algorithm.batch([group], HORIZON).weight.tolist() == [1.0] * 4


@pytest.mark.parametrize("level", ["token", "action", "chunk"])
def test_before_an_update_the_loss_is_minus_the_weighted_advantage_at_every_level(level):
    algorithm, policy = grpo(log_prob_level=level)
    group = [episode(policy, [2, 1], True), episode(policy, [2, 2, 2], False)]
    batch = algorithm.batch([group], HORIZON)
    loss, metrics = algorithm.loss(batch, 0)
    expected = -(batch.advantage.flatten() * batch.weight).mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert metrics["actor/approx_kl"].item() == pytest.approx(0, abs=1e-6)
    assert metrics["actor/pg_clipfrac"].item() == 0


@pytest.mark.parametrize("level", ["token", "action", "chunk"])
def test_steps_that_were_not_executed_have_no_gradient(level):
    algorithm, policy = grpo(log_prob_level=level)
    group = [episode(policy, [2, 1], True), episode(policy, [2], False)]
    batch = algorithm.batch([group], HORIZON)
    policy.zero_grad()
    algorithm.loss(batch, 0)[0].backward()
    expected = policy.head.output.weight.grad.clone()
    # The second action of row 1 was never executed: another one there changes nothing.
    batch.replay["actions"][1, 1] += 0.3
    policy.zero_grad()
    algorithm.loss(batch, 0)[0].backward()
    assert torch.equal(policy.head.output.weight.grad, expected)
    batch.replay["actions"][1, 0] += 0.3
    policy.zero_grad()
    algorithm.loss(batch, 0)[0].backward()
    assert not torch.equal(policy.head.output.weight.grad, expected)


def test_the_kl_penalty_pulls_back_to_the_reference():
    policy = make_policy(policy_cfg())
    reference = copy.deepcopy(policy)
    algorithm, _ = grpo(policy, reference, kl_coef=1.0)
    group = [episode(policy, [2, 2], True), episode(policy, [2, 2], False)]
    batch = algorithm.batch([group], HORIZON)
    batch.advantage.zero_()  # the penalty alone
    with torch.no_grad():
        policy.head.output.bias += 0.2
    loss, metrics = algorithm.loss(batch, 0)
    loss.backward()
    assert metrics["actor/kl_to_reference"].item() > 0
    assert policy.head.output.bias.grad.abs().max() > 1e-3
    stepped = copy.deepcopy(policy)
    with torch.no_grad():
        for name, parameter in stepped.named_parameters():
            gradient = dict(policy.named_parameters())[name].grad
            parameter -= 0.01 * gradient if gradient is not None else 0
    algorithm.policy = stepped
    assert algorithm.loss(batch, 0)[1]["actor/kl_to_reference"] < metrics["actor/kl_to_reference"]


def test_a_kl_penalty_without_a_reference_is_refused():
    with pytest.raises(ValueError, match="no reference policy"):
        grpo(kl_coef=0.1)


def test_an_entropy_bonus_widens_the_policy():
    algorithm, policy = grpo(entropy_coef=1.0)
    group = [episode(policy, [2, 2], True), episode(policy, [2, 2], False)]
    batch = algorithm.batch([group], HORIZON)
    batch.advantage.zero_()
    algorithm.loss(batch, 0)[0].backward()
    assert (policy.head.log_std_ha.grad < 0).all()  # descent makes the std larger


def ppo(level="chunk", **changes):
    policy = make_policy(policy_cfg(value_head=ValueHeadCfg(level=level)))
    cfg = VLAPPOCfg(reward_level=level, gamma=0.5, lam=0.5, time_cost=0.0, **changes)
    return cfg.build(policy), policy


def test_ppo_bootstraps_where_the_horizon_cut_an_episode_off_and_only_there():
    algorithm, policy = ppo()
    solved = episode(policy, [2, 2], True, value=[[0.2], [0.6]], final_value=9.0)
    cut_off = episode(policy, [2, 2], False, value=[[0.2], [0.4]], final_value=0.8)
    batch = algorithm.batch([[solved], [cut_off]], HORIZON)
    # solved:  delta_1 = 1 - .6 = .4; delta_0 = .5 * .6 - .2 = .1; A_0 = .1 + .25 * .4 = .2
    # cut off: delta_1 = .5 * .8 - .4 = 0; delta_0 = .5 * .4 - .2 = 0
    assert batch.returns.flatten().tolist() == pytest.approx([0.4, 1.0, 0.2, 0.4], abs=1e-6)
    # advantages (.2, .4, 0, 0): mean .15, unbiased std .19149
    expected = [0.26112, 1.30545, -0.78328, -0.78328]
    assert batch.advantage.flatten().tolist() == pytest.approx(expected, abs=1e-3)


def test_episodes_weigh_alike_in_the_value_loss_or_rows_do():
    def losses(weighting):
        algorithm, policy = ppo(weighting=weighting, value_clip=None)
        long = episode(policy, [2, 2, 2], True, value=[[0.0]] * 3)
        group = [episode(policy, [2], True, value=[[0.0]]), long]
        batch = algorithm.batch([group], HORIZON)
        batch.returns = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
        return batch.weight, algorithm.value_loss(batch, torch.zeros(4, 1))[0].item()

    weight, loss = losses("token")
    assert weight.tolist() == [1.0] * 4
    assert loss == pytest.approx((1 + 4 + 9 + 16) / 2 / 4)
    weight, loss = losses("trajectory")
    assert weight.tolist() == pytest.approx([2.0, 2 / 3, 2 / 3, 2 / 3])
    assert loss == pytest.approx((1 / 2 + (4 + 9 + 16) / 2 / 3) / 2)


def test_ppo_at_action_level_weighs_what_was_executed_alone():
    algorithm, policy = ppo("action", weighting="trajectory", value_clip=None)
    short = episode(policy, [1], True, value=[[0.0, 0.0]])
    long = episode(policy, [2, 1], True, value=[[0.0, 0.0]] * 2)
    batch = algorithm.batch([[short, long]], HORIZON)
    batch.returns = torch.tensor([[1.0, 9.0], [2.0, 3.0], [4.0, 9.0]])
    loss, _ = algorithm.value_loss(batch, torch.zeros(3, 2))
    # the mean of 1/2 and of the rows (2 + 4.5) / 2 and 8; the nines were not executed
    assert loss.item() == pytest.approx((0.5 + (3.25 + 8) / 2) / 2)


def test_bounds_on_the_log_ratio_reach_the_loss():
    algorithm, policy = grpo(min_log_ratio=-0.3, max_log_ratio=0.4)
    group = [episode(policy, [2, 2], True), episode(policy, [2, 2], False)]
    batch = algorithm.batch([group], HORIZON)
    batch.log_prob = batch.log_prob - 5.0
    loss, metrics = algorithm.loss(batch, 0)
    assert metrics["actor/approx_kl_k1"].item() == pytest.approx(-0.4)
    loss.backward()
    assert policy.head.output.bias.grad.abs().max() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_log_ratio": 0.0}, "min_log_ratio is 0.0 and max_log_ratio None, allowed"),
        ({"max_log_ratio": -0.1}, "min_log_ratio is None and max_log_ratio -0.1, allowed"),
        ({"max_log_ratio": 0.4, "decoupled": DecoupledCfg()}, "decoupled limits its weights"),
    ],
)
def test_bounds_on_the_log_ratio_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        GRPOCfg(**changes)


def test_ppo_at_action_level_knows_when_in_a_chunk_an_episode_ended():
    algorithm, policy = ppo("action")
    values = [[0.2, 0.4], [0.6, 7.0]]  # the last action was not executed, its value counts nowhere
    solved = episode(policy, [2, 1], True, value=values)
    batch = algorithm.batch([[solved]], HORIZON)
    # A_2 = 1 - .6 = .4; delta_1 = .3 - .4 = -.1, A_1 = -.1 + .25 * .4 = 0; delta_0 = .2 - .2 = 0
    assert batch.returns.tolist() == [pytest.approx([0.2, 0.4]), pytest.approx([1.0, 0.0])]
    assert batch.advantage[1, 1] == 0
    loss, metrics = algorithm.loss(batch, algorithm.cfg.critic_warmup_rounds)
    assert torch.isfinite(loss)
    assert torch.isfinite(metrics["actor/value_loss"])


def test_a_value_head_of_another_level_is_refused():
    policy = make_policy(policy_cfg(value_head=ValueHeadCfg(level="chunk")))
    with pytest.raises(ValueError, match=r"policy.value_head.level=action"):
        VLAPPOCfg(reward_level="action").build(policy)
    with pytest.raises(ValueError, match=r"value head has 0"):
        VLAPPOCfg().build(make_policy(policy_cfg()))


def test_a_value_that_is_not_finite_is_named():
    algorithm, policy = ppo()
    broken = episode(policy, [2], True, value=[[float("nan")]])
    with pytest.raises(ValueError, match=r"values\[0, 0\] is nan"):
        algorithm.batch([[broken]], HORIZON)


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="an episode needs at least one other to be compared with"):
        GRPOCfg(group_size=1)
