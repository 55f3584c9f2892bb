"""TD3 with behaviour cloning, arXiv:2106.06860.

    a~   = clip(pi'(s') + clip(eps, +-c), +-limit)
    L_Q  = E[(r + gamma min_k Q'_k(s', a~) - Q(s, a))^2]
    L_pi = -alpha E[Q_1(s, pi(s))] / E[|Q_1(s, pi(s))|] + E[(pi(s) - a)^2]

Legend: B batch, A action dimension, K critics.
"""

import typing
from collections.abc import Iterator

import torch
from torch import nn

from rrf.algorithms.off_policy.learner import Batch, OffPolicyLearner, polyak
from rrf.algorithms.off_policy.losses import critic_loss, value_against_imitation
from rrf.algorithms.offline.configs import TD3BCCfg
from rrf.policies.control.offline_policies import BoundedActor


class TD3BC(OffPolicyLearner):
    """Metrics are loss/critic, loss/actor, value/mean."""

    cfg: TD3BCCfg

    def check_policy(self) -> None:
        actor: typing.Any = self.policy.actor
        if not isinstance(actor, BoundedActor) or actor.log_std is not None:
            raise ValueError(
                "TD3+BC needs a deterministic policy; use policies.BoundedActorQPackCfg with "
                "policy.actor_cfg.is_deterministic=true"
            )
        super().check_policy()

    def build(self) -> None:
        self.target_critic = self.slow_copy(self.policy.critic)
        self.target_actor = self.slow_copy(self.policy.actor)

    def learners(self) -> dict[str, tuple[nn.Module, float]]:
        cfg, policy = self.cfg, self.policy
        return {"actor": (policy.actor, cfg.actor_lr), "critic": (policy.critic, cfg.critic_lr)}

    def slow_copies(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        yield self.target_critic, self.policy.critic
        yield self.target_actor, self.policy.actor

    def batches(self, count: int) -> Iterator[tuple[Batch, torch.Tensor]]:
        """Batches, and standard normal noise [B, A] for the actions in the next states."""
        width = self.policy.actor.num_actions
        noise = torch.empty(count, self.cfg.batch_size, width, device=self.device)
        yield from zip(self.sampled(count), noise.normal_(generator=self.generator), strict=True)

    def learn(self, batch: Batch, noise_ba: torch.Tensor) -> dict[str, torch.Tensor]:
        """One gradient step of the critics and, if it is due, of the policy."""
        cfg, steps, critic = self.cfg, batch.steps, self.policy.critic
        seen = critic.normalized(steps.critic_obs)
        with torch.no_grad(), self.precision():
            next_actions = self._disturbed(steps.next_actor_obs, noise_ba)
            next_seen = critic.normalized(steps.next_critic_obs)
            next_q = self.target_critic(next_seen, next_actions).amin(0)
        with self.precision():
            q = critic(seen, steps.actions)
        loss = critic_loss(q, steps.rewards + batch.discounts * next_q)
        self.step(loss, "critic")
        metrics = {"loss/critic": loss.detach(), "value/mean": q.detach().mean()}
        self.num_updates += 1
        if self.num_updates % cfg.policy_delay:
            return metrics
        with self.precision():
            actions = self.policy.actor.distribution(self.policy.actor(steps.actor_obs)).mode
            values = critic(seen, actions)[0]
        imitation = (actions - steps.actions).square().mean()
        of_actor = value_against_imitation(values, imitation, cfg.alpha)
        self.step(of_actor, "actor")
        for slow, fast in self.slow_copies():
            polyak(slow, fast, cfg.tau)
        return metrics | {"loss/actor": of_actor.detach()}

    def _disturbed(self, x_bo: torch.Tensor, noise_ba: torch.Tensor) -> torch.Tensor:
        """The slow actor's actions with noise, [B, A]."""
        cfg, limit = self.cfg, self.target_actor.action_limit
        mode = self.target_actor.distribution(self.target_actor(x_bo)).mode
        noise = (cfg.target_noise * noise_ba).clamp(-cfg.max_target_noise, cfg.max_target_noise)
        return (mode + noise).clamp(-limit, limit)
