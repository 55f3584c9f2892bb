"""Implicit Q-learning, arXiv:2110.06169: no action is ever evaluated that was not recorded.

    L_V  = E[|tau - 1(u < 0)| u^2],  u = min_k Q'_k(s, a) - V(s)
    L_Q  = E[(r + gamma V(s') - Q(s, a))^2]
    L_pi = E[min(exp(beta u), limit) (-log pi(a|s))]

The order of a gradient step is that of CORL: V(s') and u are of the networks before the step.

Legend: B batch, K critics.
"""

import math
import typing
from collections.abc import Iterator

import torch
from torch import nn

from rrf.algorithms.off_policy.learner import Batch, OffPolicyLearner, polyak
from rrf.algorithms.off_policy.losses import advantage_weights, critic_loss, expectile_loss
from rrf.algorithms.offline.configs import IQLCfg
from rrf.policies.control.offline_policies import ActorQV, BoundedActor


class IQL(OffPolicyLearner):
    """Metrics are loss/value, loss/critic, loss/actor, value/mean, advantage/mean."""

    cfg: IQLCfg
    policy: ActorQV

    def check_policy(self) -> None:
        if not isinstance(self.policy, ActorQV):
            raise ValueError("IQL needs a critic of states; use policies.IQLPackCfg as the policy")
        super().check_policy()

    def build(self) -> None:
        self.target_critic = self.slow_copy(self.policy.critic)

    def learners(self) -> dict[str, tuple[nn.Module, float]]:
        cfg, policy = self.cfg, self.policy
        return {
            "actor": (policy.actor, cfg.actor_lr),
            "critic": (policy.critic, cfg.critic_lr),
            "value": (policy.value, cfg.value_lr),
        }

    def parts(self, joined: torch.Tensor) -> Iterator[tuple[typing.Any, torch.Tensor]]:
        """See `OffPolicyLearner.parts`; also the value network."""
        yield from super().parts(joined)
        yield self.policy.value, joined[:, -self.policy.value.width :]

    def slow_copies(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        yield self.target_critic, self.policy.critic

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One gradient step of all networks."""
        self.anneal()
        steps, policy = batch.steps, self.policy
        features = policy.critic.normalized(steps.critic_obs)
        with torch.no_grad(), self.precision():
            next_value = policy.value.value(steps.next_critic_obs)
            target_q = self.target_critic(features, steps.actions).amin(0)
        with self.precision():
            value = policy.value.value(steps.critic_obs)
        errors = target_q - value
        of_value = expectile_loss(errors, self.cfg.expectile)
        self.step(of_value, "value")
        with self.precision():
            q = policy.critic(features, steps.actions)
        of_critic = critic_loss(q, steps.rewards + batch.discounts * next_value)
        self.step(of_critic, "critic")
        polyak(self.target_critic, policy.critic, self.cfg.tau)
        of_actor = self._imitate(steps, errors.detach())
        self.num_updates += 1
        return {
            "loss/value": of_value.detach(),
            "loss/critic": of_critic.detach(),
            "loss/actor": of_actor,
            "value/mean": value.detach().mean(),
            "advantage/mean": errors.detach().mean(),
        }

    def _imitate(self, steps: typing.Any, advantages: torch.Tensor) -> torch.Tensor:
        cfg, actor = self.cfg, typing.cast(BoundedActor, self.policy.actor)
        weights = advantage_weights(advantages, cfg.beta, cfg.max_weight)
        with self.precision():
            outputs = actor(steps.actor_obs)
        loss = (weights * actor.distribution(outputs).imitation_loss(steps.actions)).mean()
        self.step(loss, "actor")
        return loss.detach()

    def anneal(self) -> None:
        """Set the actor's learning rate, which may fall along a cosine, for the next step."""
        cfg = self.cfg
        rate = cfg.actor_lr * self.slowness
        if cfg.actor_decay_updates is not None:
            passed = min(self.num_updates / cfg.actor_decay_updates, 1.0)
            rate *= 0.5 * (1 + math.cos(math.pi * passed))
        self.optimizers["actor"].param_groups[0]["lr"] = rate
