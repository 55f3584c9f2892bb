"""The part that GRPO and PPO share: clipped surrogate over a rollout's rows, entropy, KL penalty.

Legend: N rows, H steps in an action chunk, A action dimension, K = H * A, V values per row.
"""

import dataclasses
from collections.abc import Sequence

import torch

from rrf.algorithms.vla.configs import PolicyGradientCfg
from rrf.algorithms.vla.losses import (
    Surrogate,
    aggregate,
    align_to_log_probs,
    clipped_surrogate,
    decoupled_surrogate,
    interpolated_log_probs,
    kl_penalty,
    reduce_log_probs,
    row_means,
    surrogate_metrics,
)
from rrf.algorithms.vla.rewards import Rewards
from rrf.policies.policy import Evaluation, Policy
from rrf.storage.trajectories import PlayedEpisode, RolloutBatch

Metrics = dict[str, torch.Tensor]


class PolicyGradient:
    """Base class: `batch` turns episodes into rows with advantages, `loss` is the loss of rows."""

    needs_contrast = False
    """Whether nothing can be learned from a group whose episodes all succeeded or all failed."""

    def __init__(self, cfg: PolicyGradientCfg, policy: Policy, reference: Policy | None = None):
        """
        Args:
            cfg: The algorithm's config.
            policy: The policy to train.
            reference: A frozen policy. The KL penalty keeps the trained policy close to it.
        """
        if cfg.kl_coef and reference is None:
            raise ValueError(
                f"kl_coef is {cfg.kl_coef}, but no reference policy was given; pass one, or set "
                "kl_coef=0"
            )
        self.cfg = cfg
        self.policy = policy
        self.reference = reference
        self.rewards = Rewards(cfg.reward, cfg.reward_scale, cfg.relative_reward, cfg.time_cost)

    def episode_return(self, episode: PlayedEpisode, horizon: int) -> float:
        """The sum of an episode's rewards."""
        return self.rewards.total(episode, horizon)

    def batch(self, groups: Sequence[Sequence[PlayedEpisode]], horizon: int) -> RolloutBatch:
        """Rows with advantages, from groups of episodes of at most `horizon` steps."""
        raise NotImplementedError

    def loss(self, rows: RolloutBatch, round_number: int) -> tuple[torch.Tensor, Metrics]:
        """The loss, a scalar with gradient, and metrics to log."""
        evaluation = self.policy.evaluate(rows.observation, rows.replay)
        return self.policy_loss(rows, evaluation, round_number)

    def policy_loss(
        self, rows: RolloutBatch, evaluation: Evaluation, round_number: int = 0
    ) -> tuple[torch.Tensor, Metrics]:
        """Surrogate, KL penalty and entropy bonus; rows are weighted by `rows.weight`."""
        cfg = self.cfg
        mask_nha = rows.mask.unflatten(1, (-1, self.policy.action_dim)) & self.policy.is_executed
        rows = dataclasses.replace(rows, mask=mask_nha.flatten(1))
        surrogate, mask, more = self._surrogate(rows, evaluation.log_prob, round_number)
        weight = rows.weight
        loss = (row_means(surrogate.loss, mask) * weight).mean()
        metrics = surrogate_metrics(surrogate, mask) | more
        metrics |= {
            "actor/policy_loss": loss.detach(),
            "actor/entropy": aggregate(evaluation.entropy.detach(), rows.mask),
        }
        if cfg.entropy_coef:
            entropy = (row_means(evaluation.entropy, rows.mask) * weight).mean()
            loss = loss - cfg.entropy_coef * entropy
        if cfg.kl_coef:
            assert self.reference is not None
            with torch.no_grad():
                reference = self.reference.evaluate(rows.observation, rows.replay)
            penalty = kl_penalty(evaluation.log_prob, reference.log_prob, cfg.kl_kind)
            penalty = (row_means(penalty, rows.mask) * weight).mean()
            loss = loss + cfg.kl_coef * penalty
            metrics["actor/kl_to_reference"] = penalty.detach()
        return loss, metrics

    def _surrogate(
        self, rows: RolloutBatch, log_prob: torch.Tensor, round_number: int
    ) -> tuple[Surrogate, torch.Tensor, Metrics]:
        """The elementwise loss at the configured level, [N, ...], the mask of its elements, and
        metrics."""
        cfg, level, action_dim = self.cfg, self.cfg.log_prob_level, self.policy.action_dim

        def reduced(log_prob_nk: torch.Tensor) -> torch.Tensor:
            # Actions that were never executed had no effect, so they must not change a sum.
            return reduce_log_probs(log_prob_nk.where(rows.mask, 0.0), action_dim, level)

        new, old = reduced(log_prob), reduced(rows.log_prob)
        mask_nha = rows.mask.unflatten(1, (-1, action_dim))
        mask = {"token": mask_nha, "action": mask_nha.any(-1), "chunk": mask_nha.any((-2, -1))}
        advantage = align_to_log_probs(rows.advantage, level)
        clip = (cfg.clip_low, cfg.clip_high, cfg.dual_clip)
        if cfg.decoupled is None:
            bounds = (cfg.min_log_ratio, cfg.max_log_ratio)
            return clipped_surrogate(new, old, advantage, *clip, bounds), mask[level], {}
        if rows.proximal is not None:
            proximal = reduced(rows.proximal)
        else:
            staleness_n1 = (round_number - rows.version).clamp(min=0).float().unsqueeze(1)
            proximal = interpolated_log_probs(new, old, align_to_log_probs(staleness_n1, level))
        clipped = decoupled_surrogate(
            new, proximal, old, advantage, *clip, max_weight=cfg.decoupled.max_weight
        )
        metrics = {
            "actor/behavior_weight": aggregate(clipped.weight, mask[level]),
            "actor/behavior_clipfrac": aggregate((~clipped.is_kept).float(), mask[level]),
        }
        return clipped.surrogate, mask[level] & clipped.is_kept, metrics


def row_weights(lengths: Sequence[int], weighting: str) -> list[torch.Tensor]:
    """The weights of the rows of each episode, float32 [T]; the mean over all rows is 1."""
    if weighting == "token":
        return [torch.ones(length) for length in lengths]
    mean = sum(lengths) / len(lengths)
    return [torch.full((length,), mean / length) for length in lengths]
