"""The loss of `PolicyGradient`, and the value loss beside it, against golden data of RLinf and
against numbers worked by hand.
"""

import math

import numpy as np
import pytest
import torch

from rrf.algorithms.vla.configs import PolicyGradientCfg, VLAPPOCfg
from rrf.algorithms.vla.losses import (
    aggregate,
    decoupled_surrogate,
    interpolated_log_probs,
    reduce_log_probs,
    row_means,
)
from rrf.algorithms.vla.policy_gradient import PolicyGradient, row_weights
from rrf.algorithms.vla.ppo import VLAPPO
from rrf.policies import FlowMatchingHeadCfg
from rrf.policies.policy import Evaluation
from rrf.policies.vla.configs import ValueHeadCfg
from rrf.storage.trajectories import RolloutBatch
from tests.closeness import assert_close
from tests.golden_files import cases, golden
from tests.runners.vla_rl.toy import make_policy, observe, policy_cfg

FILE = "rlinf_losses.npz"
CRITIC_CASES = cases(FILE, r"loss\d+", loss_type="actor_critic")
ACTOR_CASES = [*cases(FILE, r"loss\d+", loss_type="actor"), *CRITIC_CASES]


def make_rows(old_log_prob, advantage, mask=None, weight=None) -> RolloutBatch:
    """Rows of which the loss looks at log-prob [N, K], advantage [N, 1], mask and weight."""
    count = len(old_log_prob)
    return RolloutBatch(
        observation=observe([np.zeros(2, np.float32)] * count),
        replay={},
        log_prob=old_log_prob,
        mask=torch.ones_like(old_log_prob, dtype=torch.bool) if mask is None else mask,
        advantage=advantage,
        weight=torch.ones(count) if weight is None else weight,
        value=torch.full((count, 1), torch.nan),
        returns=torch.full((count, 1), torch.nan),
        version=torch.zeros(count, dtype=torch.long),
    )


class GoldenActor:
    """One golden case taken through `PolicyGradient`. A row is what has one advantage: an action,
    or a chunk where rewards are per chunk."""

    def __init__(self, case: str):
        cfg, self.data = golden(FILE, case)
        data, level = self.data, cfg["logprob_type"].removesuffix("_level")
        width = cfg["single_action_dim"]
        self.is_warmup = cfg["critic_warmup"]
        num_rows = data["advantages"].numel()
        self.log_probs = data["logprobs"].clone().requires_grad_()
        new, old = (x.reshape(num_rows, -1) for x in (self.log_probs, data["old_logprobs"]))
        self.mask = data.get("loss_mask", torch.ones_like(data["advantages"], dtype=torch.bool))
        self.weight = self.mask.flatten() / self.mask.float().mean()
        self.tokens_per_mask_entry = 1.0  # see tests/golden/README.md
        if "loss_mask" in data:
            self.tokens_per_mask_entry = reduce_log_probs(old, width, level).numel() / num_rows
        self.has_weights = "loss_mask" in data and cfg["max_episode_steps"] is not None
        if self.has_weights:  # RLinf's are max_episode_steps / length; ours, mean length / length
            lengths = data["loss_mask_sum"].flatten()
            ours = [row[0] for row in row_weights(lengths.tolist(), "trajectory")]
            scale = cfg["max_episode_steps"] / lengths.float().mean()
            self.weight = self.mask.flatten() * torch.stack(ours) * scale
        algorithm = PolicyGradient(
            PolicyGradientCfg(
                log_prob_level=level,
                clip_low=cfg["clip_ratio_low"],
                clip_high=cfg["clip_ratio_high"],
                dual_clip=cfg["clip_ratio_c"],
                min_log_ratio=cfg.get("clip_log_ratio_min"),
                max_log_ratio=cfg.get("clip_log_ratio_max"),
            ),
            make_policy(policy_cfg(action_dim=width, chunk_length=new.shape[1] // width)),
        )
        self.rows = make_rows(
            old,
            data["advantages"].reshape(num_rows, 1),
            self.mask.reshape(num_rows, 1).expand_as(old),
            self.weight * (1 if self.has_weights else self.tokens_per_mask_entry),
        )
        evaluation = Evaluation(new, torch.zeros_like(new), None)
        self.loss, self.metrics = algorithm.policy_loss(self.rows, evaluation)
        self.surrogate, self.surrogate_mask, _ = algorithm._surrogate(self.rows, new, 0)

    def metric(self, name: str) -> float:
        return self.data[f"metric.{name}"].item()


@pytest.mark.parametrize("case", ACTOR_CASES)
def test_policy_loss_and_its_gradient_agree_with_rlinf(case):
    actor = GoldenActor(case)
    sizes = row_means(actor.surrogate.loss.detach().abs(), actor.surrogate_mask)
    size = (sizes * actor.rows.weight).mean().item()
    assert_close(size, actor.metric("actor_policy_loss_abs"))
    if actor.is_warmup:  # the caller leaves the term out
        assert actor.metric("actor_policy_loss") == 0
        assert "grad_logprobs" not in actor.data
        return
    assert_close(actor.loss.item(), actor.metric("actor_policy_loss"), scale=size)
    actor.loss.backward()
    assert actor.log_probs.grad is not None
    assert_close(actor.log_probs.grad, actor.data["grad_logprobs"])


@pytest.mark.parametrize("case", ACTOR_CASES)
def test_policy_metrics_agree_with_rlinf(case):
    actor = GoldenActor(case)
    surrogate, tokens = actor.surrogate, actor.tokens_per_mask_entry
    ours = {name: value.item() for name, value in actor.metrics.items()}
    dual_clipped_ratio = torch.where(surrogate.is_dual_clipped, surrogate.ratio, 0.0)
    got = {
        "actor_ratio": ours["actor/ratio"],
        "actor_ratio_abs": ours["actor/ratio_abs"],
        "actor_clipped_ratio": ours["actor/clipped_ratio"],
        "actor_approx_kl": ours["actor/approx_kl_k1"] * tokens,
        "actor_clip_fraction": ours["actor/pg_clipfrac"] * tokens,
        "actor_dual_cliped_ratio": aggregate(dual_clipped_ratio, actor.surrogate_mask).item(),
    }
    for name, value in got.items():  # log-ratios of both signs cancel, in their mean
        assert_close(value, actor.metric(name), scale=surrogate.ratio)


@pytest.mark.parametrize("case", CRITIC_CASES)
def test_value_loss_its_gradient_and_the_total_agree_with_rlinf(case):
    cfg, data = golden(FILE, case)
    actor = GoldenActor(case)
    values = data["values"].clone().requires_grad_()
    num_rows = actor.weight.numel()
    given = make_rows(
        torch.zeros(num_rows, 1),
        torch.zeros(num_rows, 1),
        actor.mask.reshape(num_rows, 1),
        actor.weight,
    )
    given.value = data["prev_values"].reshape(num_rows, 1)
    given.returns = data["returns"].reshape(num_rows, 1)
    ppo = VLAPPOCfg(
        value_clip=cfg["value_clip"],
        huber_delta=cfg["huber_delta"],
        weighting="trajectory" if actor.has_weights else "token",
    )
    critic = VLAPPO(ppo, make_policy(policy_cfg(value_head=ValueHeadCfg(level="chunk"))))
    loss, _ = critic.value_loss(given, values.reshape(num_rows, 1))
    assert_close(loss.item(), actor.metric("critic_value_loss"))
    policy_loss = 0.0 if actor.is_warmup else actor.loss.item()
    assert_close(loss.item() + policy_loss, data["loss"].item(), scale=loss)
    loss.backward()
    assert values.grad is not None
    assert_close(values.grad, data["grad_values"])


@pytest.mark.parametrize("case", cases(FILE, r"loss\d+", loss_type="decoupled_actor_critic"))
def test_the_decoupled_loss_and_its_gradient_agree_with_rlinf(case):
    cfg, data = golden(FILE, case)
    level, width = cfg["logprob_type"].removesuffix("_level"), cfg["single_action_dim"]
    log_probs = data["logprobs"].clone().requires_grad_()

    def reduced(values):
        return reduce_log_probs(values.flatten(1), width, level)

    new, old = reduced(log_probs), reduced(data["old_logprobs"])
    spread = {"token": (...,), "action": (..., 0), "chunk": (..., 0, 0)}[level]
    # What RLinf calls version -1 was not generated, and counts as not stale.
    versions = data["versions"][spread]
    staleness = torch.where(versions >= 0, cfg["current_version"] - 1 - versions, 0.0)
    shape = [*data["advantages"].shape, 1, 1][: new.dim()]
    advantages = data["advantages"].reshape(shape)
    mask = data.get("loss_mask", torch.ones_like(data["advantages"])).bool().reshape(shape)
    found = decoupled_surrogate(
        new,
        interpolated_log_probs(new, old, staleness),
        old,
        advantages,
        cfg["clip_ratio_low"],
        cfg["clip_ratio_high"],
        cfg["clip_ratio_c"],
        cfg["behave_weight_threshold"],
    )
    kept = (mask & found.is_kept).float()
    if "loss_mask" in data and cfg["max_episode_steps"] is not None:
        lengths = data["loss_mask_sum"].reshape(mask.shape)
        loss = (found.surrogate.loss * kept * cfg["max_episode_steps"] / lengths).mean()
    else:  # without a limit, RLinf divides by the entries of the mask, see tests/golden/README.md
        has_limit = cfg["behave_weight_threshold"] is not None
        entries = kept.sum() if has_limit or "loss_mask" not in data else mask.sum()
        loss = (found.surrogate.loss * kept).sum() / entries
    size = (found.surrogate.loss * kept).abs().sum() / kept.sum()
    assert_close(loss.item(), data["metric.actor_policy_loss"].item(), scale=size)
    loss.backward()
    assert_close(log_probs.grad, data["grad_logprobs"])


def test_what_pads_a_flow_counts_in_no_mean():
    policy = make_policy(policy_cfg(FlowMatchingHeadCfg(env_action_dim=1)))
    algorithm = PolicyGradient(PolicyGradientCfg(entropy_coef=0.5, clip_high=0.28), policy)
    # Two steps of two elements, the second of which is padding: log-prob and entropy 0, ratio 1.
    log_prob = torch.tensor([[math.log(1.1), 0.0, math.log(1.2), 0.0]])
    evaluation = Evaluation(log_prob, torch.tensor([[2.0, 0.0, 4.0, 0.0]]), None)
    rows = make_rows(torch.zeros(1, 4), torch.ones(1, 1))
    loss, metrics = algorithm.policy_loss(rows, evaluation)
    # -(1.1 + 1.2) / 2 - 0.5 * (2 + 4) / 2; with the padding it would be -1.075 - 0.75
    assert loss.item() == pytest.approx(-2.65)
    assert metrics["actor/ratio"].item() == pytest.approx(1.15)
    assert metrics["actor/entropy"].item() == pytest.approx(3.0)
    rows.mask[0, 2:] = False  # the second step was not executed
    assert algorithm.policy_loss(rows, evaluation)[0].item() == pytest.approx(-1.1 - 0.5 * 2)


@pytest.mark.parametrize("field", ["value_coef", "huber_delta", "value_clip"])
def test_a_value_loss_that_would_be_constant_is_refused(field):
    with pytest.raises(ValueError, match=rf"{field} is 0"):
        VLAPPOCfg(**{field: 0.0})
