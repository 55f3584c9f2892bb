"""The pure functions of policy-gradient losses against golden data of RLinf and against numbers
worked by hand; `test_policy_gradient.py` takes the whole loss through golden cases."""

import math

import pytest
import torch

from rrf.algorithms.returns import normalize
from rrf.algorithms.vla.losses import (
    aggregate,
    align_to_log_probs,
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    explained_variance_sums,
    kl_penalty,
    reduce_log_probs,
    row_means,
    surrogate_metrics,
)
from tests.closeness import assert_close
from tests.golden_files import cases, golden

FILE = "rlinf_losses.npz"


@pytest.mark.parametrize("case", cases(FILE, r"loss\d+", loss_type="actor_critic"))
def test_sums_for_explained_variance_agree_with_rlinf(case):
    _, data = golden(FILE, case)
    sums = explained_variance_sums(data["values"], data["returns"], data.get("loss_mask"))
    names = ("count", "returns_sum", "returns_sq_sum", "errors_sum", "errors_sq_sum")
    expected = [data[f"metric.__sum____critic_explained_variance_{n}"].item() for n in names]
    for name, found, given in zip(names, sums.tolist(), expected, strict=True):
        # sums of squares do not cancel, the others are as uncertain as their terms
        sizes = data["returns" if "returns" in name else "values"].abs().sum()
        assert_close(found, given, scale=0.0 if "sq" in name else sizes)


@pytest.mark.parametrize("case", cases(FILE, r"reduce\d+"))
def test_log_prob_levels_agree_with_rlinf(case):
    cfg, data = golden(FILE, case)
    level = cfg["logprob_type"].removesuffix("_level")
    for key in ("logprobs", "old_logprobs"):
        reduced = reduce_log_probs(data[key], cfg["single_action_dim"], level)
        assert_close(reduced, data[f"out_{key}"])
    assert torch.equal(align_to_log_probs(data["advantages"], level), data["out_advantages"])


def test_aggregation_agrees_with_rlinf():
    _, data = golden(FILE, "agg")
    values, mask, nonempty = data["values"], data["mask"], data["mask_rows_nonempty"]
    assert_close(aggregate(values, mask), data["masked_mean"])
    assert_close(aggregate(values), data["masked_mean_nomask"])
    assert torch.equal(aggregate(values, torch.zeros_like(mask)), data["masked_mean_allfalse"])
    assert_close(row_means(values, nonempty).mean(), data["seq_mean_token_mean"])
    assert_close(normalize(values, mask), data["safe_normalize"])


def test_huber_loss_agrees_with_rlinf():
    _, data = golden(FILE, "agg")
    errors = 2 * data["values"]  # the errors that were given to it
    zeros = torch.zeros_like(errors)
    assert_close(clipped_value_loss(errors, zeros, zeros, None, 1.0).loss, data["huber_delta1"])


@pytest.mark.parametrize("kind", ["k1", "abs", "k2", "k3"])
def test_kl_penalties_agree_with_rlinf(kind):
    _, data = golden(FILE, "kl")
    penalty = kl_penalty(data["logprob"], data["ref_logprob"], kind)
    # RLinf cuts k3, and its gradient, off at 10.
    assert_close(penalty.clamp(max=10) if kind == "k3" else penalty, data[kind])


def test_the_lower_and_the_upper_clip_are_separate():
    log_prob = torch.tensor([0.75, 0.85, 1.25, 1.35]).log()
    advantages = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    surrogate = clipped_surrogate(log_prob, torch.zeros(4), advantages, 0.2, 0.28)
    assert surrogate.loss.tolist() == pytest.approx([0.8, 0.85, -1.25, -1.28])
    assert surrogate.is_clipped.tolist() == [True, False, False, True]


def test_dual_clip_bounds_the_loss_of_a_bad_action_that_became_likely():
    log_prob = torch.tensor([5.0, 2.0, 5.0]).log().requires_grad_()
    surrogate = clipped_surrogate(
        log_prob, torch.zeros(3), torch.tensor([-1.0, -1.0, 1.0]), 0.2, 0.28, dual_clip=3.0
    )
    surrogate.loss.sum().backward()
    assert log_prob.grad is not None
    assert surrogate.loss.tolist() == pytest.approx([3.0, 2.0, -1.28])
    assert log_prob.grad.tolist() == pytest.approx([0.0, 2.0, 0.0])
    assert surrogate.is_dual_clipped.tolist() == [True, False, False]
    assert not surrogate.ratio.requires_grad
    fraction = surrogate_metrics(surrogate)["actor/dual_clipfrac"].item()
    assert fraction == pytest.approx(1 / 3)


def test_a_log_ratio_outside_its_range_counts_as_its_bound_and_has_no_gradient():
    # Bounds -0.3 and 0.4; clipped are ratios below 0.8 (ln: -0.223) and above 1.28 (ln: 0.247).
    log_ratio = [-0.5, -0.25, 0.3, 0.9]
    for advantage, expected, gradient in (
        # A > 0: -min(r, 1.28) with r = exp(-0.3), exp(-0.25), exp(0.3), exp(0.4)
        (1.0, [-0.7408182, -0.7788008, -1.28, -1.28], [0.0, -0.7788008, 0.0, 0.0]),
        # A < 0: max(r, 0.8), of the last one exp(0.4) instead of exp(0.9)
        (-1.0, [0.8, 0.8, 1.3498588, 1.4918247], [0.0, 0.0, 1.3498588, 0.0]),
    ):
        log_prob = torch.tensor(log_ratio, requires_grad=True)
        advantages = torch.full((4,), advantage)
        found = clipped_surrogate(
            log_prob, torch.zeros(4), advantages, 0.2, 0.28, log_ratio_range=(-0.3, 0.4)
        )
        assert found.log_ratio.tolist() == pytest.approx([-0.3, -0.25, 0.3, 0.4])
        assert found.loss.tolist() == pytest.approx(expected)
        found.loss.sum().backward()
        assert log_prob.grad is not None
        assert log_prob.grad.tolist() == pytest.approx(gradient)


@pytest.mark.parametrize(("bounds", "expected"), [((None, 0.4), -2.0), ((-0.3, None), -0.3)])
def test_a_log_ratio_may_have_one_bound_alone(bounds, expected):
    low, zero = torch.tensor([-2.0]), torch.zeros(1)
    found = clipped_surrogate(low, zero, zero, 0.2, 0.2, log_ratio_range=bounds)
    assert found.log_ratio.item() == pytest.approx(expected)


def test_the_surrogate_of_half_precision_log_probs_is_computed_in_float32():
    log_prob = torch.tensor([-1.0078125], dtype=torch.bfloat16)
    old_log_prob = torch.tensor([-1.0], dtype=torch.float32)
    surrogate = clipped_surrogate(log_prob, old_log_prob, torch.tensor([1.0]), 0.2, 0.2)
    assert surrogate.loss.dtype == torch.float32
    assert surrogate.loss.item() == pytest.approx(-0.9922179, abs=1e-6)  # -exp(-1/128)


def test_both_kl_estimates_are_worked_by_hand_and_leave_masked_entries_out():
    log_prob = torch.tensor([2.0, 0.5, 100.0]).log()
    surrogate = clipped_surrogate(log_prob, torch.zeros(3), torch.zeros(3), 0.2, 0.2)
    metrics = surrogate_metrics(surrogate, torch.tensor([True, True, False]))
    assert metrics["actor/ratio"].item() == pytest.approx(1.25)
    assert metrics["actor/approx_kl_k1"].item() == pytest.approx(0.0, abs=1e-7)  # -ln 2 + ln 2
    assert metrics["actor/approx_kl"].item() == pytest.approx(0.25)  # (1 - ln 2 - 0.5 + ln 2) / 2


def test_value_clip_ratio_is_the_share_of_values_that_moved_further_than_the_clip():
    old_values = torch.tensor([1.0, 1.0, 1.0, 1.0])
    values = torch.tensor([1.1, 1.5, 0.2, 0.9], requires_grad=True)
    returns = torch.tensor([2.0, 2.0, 2.0, 2.0])
    value_loss = clipped_value_loss(values, old_values, returns, value_clip=0.25, huber_delta=10.0)
    assert aggregate(value_loss.is_clipped.float()).item() == 0.5
    # max(e^2, e_clipped^2) / 2 with the values clipped to 1.1, 1.25, 0.75, 0.9
    assert value_loss.loss.tolist() == pytest.approx([0.405, 0.28125, 1.62, 0.605])
    value_loss.loss.sum().backward()
    assert values.grad is not None
    # 1.5 came nearer to the return than the clip allows: no reward for that.
    assert values.grad.tolist() == pytest.approx([-0.9, 0.0, -1.8, -1.1])


def test_value_loss_is_linear_beyond_huber_delta():
    zero = torch.zeros(1)
    loss = clipped_value_loss(torch.tensor([5.0]), zero, zero, None, huber_delta=2.0)
    assert loss.loss.tolist() == [8.0]  # 2 * (5 - 2 / 2)
    assert loss.is_clipped.tolist() == [False]


def test_explained_variance_is_the_share_of_variance_the_values_account_for():
    returns = torch.tensor([1.0, 2.0, 3.0, 50.0])
    values = torch.tensor([1.0, 2.0, 2.0, 0.0])
    mask = torch.tensor([True, True, True, False])
    # errors 0, 0, 1: variance 1/3 - 1/9 = 2/9; returns: 2/3. 1 - 1/3
    sums = explained_variance_sums(values, returns, mask)
    assert explained_variance(sums) == pytest.approx(2 / 3)
    halves = [explained_variance_sums(values[i], returns[i], mask[i]) for i in ([0, 3], [1, 2])]
    assert explained_variance(halves[0] + halves[1]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("is_kept", [True, False])
def test_explained_variance_of_equal_returns_or_of_nothing_is_not_a_number(is_kept):
    mask = torch.tensor([is_kept, is_kept])
    sums = explained_variance_sums(torch.tensor([1.0, 2.0]), torch.tensor([0.1, 0.1]), mask)
    assert math.isnan(explained_variance(sums))


@pytest.mark.parametrize(
    ("kind", "gradient"),
    [("k1", [1, 1]), ("abs", [-1, 1]), ("k2", [-0.6931472, 0.6931472]), ("k3", [-1, 0.5])],
)
def test_kl_penalties_pull_towards_the_reference(kind, gradient):
    # log_prob - ref_log_prob = -ln 2 and ln 2. Gradients: 1; sign; d; 1 - exp(-d).
    log_prob = torch.tensor([-1.0, -1.0], requires_grad=True)
    ref_log_prob = torch.tensor([-1 + math.log(2), -1 - math.log(2)], requires_grad=True)
    kl_penalty(log_prob, ref_log_prob, kind).sum().backward()
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == pytest.approx(gradient, abs=1e-6)
    assert ref_log_prob.grad is None


def test_the_gradient_of_k3_matches_finite_differences_and_vanishes_only_at_equality():
    ref_log_prob, step = torch.full((3,), -1.0), 1e-2
    log_prob = torch.tensor([-1.7, -1.0, -0.4], requires_grad=True)
    kl_penalty(log_prob, ref_log_prob, "k3").sum().backward()
    above, below = (
        kl_penalty(log_prob.detach() + sign * step, ref_log_prob, "k3") for sign in (1, -1)
    )
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == pytest.approx(
        ((above - below) / (2 * step)).tolist(), abs=1e-4
    )
    assert [abs(g) > 0.1 for g in log_prob.grad.tolist()] == [True, False, True]


def test_row_means_give_a_short_and_a_long_row_the_same_say():
    values = torch.tensor([[8.0, 9.0, 9.0], [1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    mask = torch.tensor([[True, False, False], [True, True, True], [False, False, False]])
    assert row_means(values, mask).tolist() == [8.0, 2.0, 0.0]


def test_a_mask_per_action_averages_over_the_tokens_it_keeps():
    values = torch.tensor([[[1.0, 3.0], [100.0, 100.0]]])  # [N, H, A]
    mask = align_to_log_probs(torch.tensor([[True, False]]), "token")
    assert aggregate(values, mask).item() == 2.0


def test_an_all_false_mask_gives_loss_zero_and_gradient_zero():
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = aggregate(values, torch.tensor([False, False]))
    loss.backward()
    assert loss.item() == 0.0
    assert values.grad is not None
    assert values.grad.tolist() == [0.0, 0.0]


def test_chunk_level_log_probs_refuse_an_advantage_per_action():
    with pytest.raises(ValueError, match=r"one advantage per chunk, \[N, 1\], got \[9, 2\]"):
        align_to_log_probs(torch.zeros(9, 2), "chunk")


def test_shapes_that_would_broadcast_to_all_pairs_are_refused():
    n1, n = torch.zeros(9, 1), torch.zeros(9)
    with pytest.raises(ValueError, match=r"log-probs \[9\] .* advantages \[9, 1\]"):
        clipped_surrogate(n, n, n1, 0.2, 0.2)
    with pytest.raises(ValueError, match=r"values \[9, 1\], old values \[9\]"):
        clipped_value_loss(n1, n, n, 0.2, 1.0)


def test_unknown_levels_and_penalties_are_answered_with_the_choices():
    with pytest.raises(ValueError, match=r"'step'.*'token', 'action', 'chunk'"):
        reduce_log_probs(torch.zeros(1, 2), 2, "step")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'step'.*'token', 'action', 'chunk'"):
        align_to_log_probs(torch.zeros(1, 2), "step")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'k4'.*'k1', 'k2', 'k3', 'abs'"):
        kl_penalty(torch.zeros(1), torch.zeros(1), "k4")  # type: ignore[arg-type]
