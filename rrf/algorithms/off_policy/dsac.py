"""Distributional soft actor-critic: DSAC (arXiv:2001.02811) and DSAC-T (arXiv:2310.05858).

The critic learns a normal distribution of the return. DSAC trains one distribution by the
likelihood of sampled returns. DSAC-T makes three changes. The mean learns from the expected target.
There are two distributions (twins), and the one with the lower mean is used. Errors are bounded,
and weighted by the running standard deviation. The order of a gradient step, the target policy and
the delay follow the original code (DSAC-v2).

Legend: B batch, K critics.
"""

import typing
from collections.abc import Iterator

import torch
from torch import nn

from rrf.algorithms.off_policy.configs import DSACCfg, DSACTCfg
from rrf.algorithms.off_policy.losses import (
    distributional_loss,
    refined_distributional_loss,
    soft_target,
)
from rrf.algorithms.off_policy.sac import SAC, Noise
from rrf.policies.control.batched_critics import DistributionalQ
from rrf.policies.control.off_policy_actors import SACActor

_LARGEST_NOISE = 3.0  # a sampled return is at most this many standard deviations from the mean


class DSAC(SAC):
    """The original algorithm: one distribution, sampled targets."""

    target_critic: DistributionalQ
    sees_updated_critic = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.target_actor = self.slow_copy(self.policy.actor)
        self.num_return_samples = self.policy.critic.backbone.num_copies

    def check_policy(self) -> None:
        super().check_policy()
        critic = self.policy.critic
        if not isinstance(critic, DistributionalQ):
            raise ValueError(
                f"policy.critic_cfg is a {type(critic.cfg).__name__}, but {type(self).__name__} "
                "learns distributions of returns; set policy.critic_cfg to a "
                "components.DistributionalQCfg"
            )

    @property
    def next_actor(self) -> SACActor:
        return self.target_actor

    def slow_copies(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        yield from super().slow_copies()
        yield self.target_actor, self.policy.actor

    def critic_objective(
        self,
        batch: typing.Any,
        next_actions: torch.Tensor,
        next_log_prob: torch.Tensor,
        alpha: torch.Tensor,
        noise: Noise,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        with torch.no_grad():
            _, sampled = self.next_returns(batch, next_actions, noise)
            target = soft_target(
                batch.steps.rewards, batch.discounts, sampled, next_log_prob, alpha
            )
        mean, std = self.returns(batch)
        td_bound = typing.cast(DSACCfg, self.cfg).td_bound
        loss = distributional_loss(mean, std, target, td_bound)
        return loss, {"loss/critic": loss.detach(), **_described(mean, std)}

    def returns(self, batch: typing.Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and standard deviation of the return of the batch's actions, each [K, B]."""
        critic = typing.cast(DistributionalQ, self.policy.critic)
        with self.precision():
            return critic.mean_and_std(self.critic_features(batch), batch.steps.actions)

    def next_returns(
        self, batch: typing.Any, next_actions: torch.Tensor, noise: Noise
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and one sample of the return from the next states, each [B].

        Both come from the critic with the lowest mean.
        """
        with self.precision():
            mean, std = self.target_critic.mean_and_std(self.target_features(batch), next_actions)
        samples = mean + std * noise.returns.clamp(-_LARGEST_NOISE, _LARGEST_NOISE)
        lowest, index = mean.min(0)
        return lowest, samples.gather(0, index.unsqueeze(0)).squeeze(0)


class DSACT(DSAC):
    """DSAC-T. A second level of inheritance, because it differs from DSAC only in its loss."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # NaN until the first batch; then the standard deviation of that batch.
        self.running_std = torch.full((self.num_return_samples,), torch.nan, device=self.device)

    def critic_objective(
        self,
        batch: typing.Any,
        next_actions: torch.Tensor,
        next_log_prob: torch.Tensor,
        alpha: torch.Tensor,
        noise: Noise,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        cfg = typing.cast(DSACTCfg, self.cfg)
        mean, std = self.returns(batch)
        with torch.no_grad():
            batch_std = std.mean(-1)
            moved = torch.lerp(self.running_std, batch_std, cfg.tau_b)
            self.running_std = torch.where(self.running_std.isnan(), batch_std, moved)
            expected, sampled = (
                soft_target(batch.steps.rewards, batch.discounts, value, next_log_prob, alpha)
                for value in self.next_returns(batch, next_actions, noise)
            )
        loss = refined_distributional_loss(
            mean, std, expected, sampled, self.running_std, cfg.bound_factor
        )
        return loss, {"loss/critic": loss.detach(), **_described(mean, std)}

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        tensors, facts = super().state()
        return tensors | {"running_std": self.running_std.clone()}, facts

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        super().load_state(tensors, facts)
        self.running_std = tensors["running_std"].to(self.device)


def _described(mean: torch.Tensor, std: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"value/mean": mean.detach().mean(), "value/std": std.detach().mean()}
