"""Soft actor-critic for discrete actions, Christodoulou 2019, arXiv:1910.07207.

With C actions, every expectation over actions is a sum, so nothing is sampled in a gradient step:

    V(s)    = sum_a pi(a|s) (min_k Q_k(s, a) - alpha log pi(a|s))             (eq. 10)
    critics : 1/2 (Q_k(s, a) - r - discount V(s'))^2, for the action taken
    policy  : sum_a pi(a|s) (alpha log pi(a|s) - min_k Q_k(s, a))             (eq. 12)
    alpha   : log(alpha) (H(pi(.|s)) - target), target = fraction * log C     (eq. 11)

The critics give one value per action. Like our SAC, the policy is judged by the critics just
updated, and the gradient of the temperature is that of log(alpha).

Legend: B batch, K critics, C actions.
"""

import math
import typing
from collections.abc import Iterator

import torch

from rrf.algorithms.off_policy.discrete_configs import DiscreteSACCfg
from rrf.algorithms.off_policy.learner import Batch, OffPolicyLearner, polyak
from rrf.algorithms.off_policy.losses import alpha_loss, critic_loss
from rrf.algorithms.off_policy.sac import SAC
from rrf.policies.control.actor_critic import CategoricalActor
from rrf.policies.control.batched_critics import DiscreteQNetwork


def soft_value(log_prob_bc: torch.Tensor, q_kbc: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """E_a[min_k Q_k(s, a) - alpha log pi(a|s)] under pi, [B]."""
    return (log_prob_bc.exp() * (q_kbc.amin(0) - alpha * log_prob_bc)).sum(-1)


class DiscreteSAC(SAC):
    """Metrics are those of SAC."""

    def build(self) -> None:
        super().build()
        cfg = typing.cast(DiscreteSACCfg, self.cfg)
        if cfg.target_entropy is None:
            choices = self.policy.actor.num_choices
            self.target_entropy = cfg.target_entropy_fraction * math.log(choices)

    def check_policy(self) -> None:
        actor, critic = self.policy.actor, self.policy.critic
        is_fit = isinstance(actor, CategoricalActor) and isinstance(critic, DiscreteQNetwork)
        if not is_fit:
            raise ValueError(
                f"policy has a {type(actor).__name__} and a {type(critic).__name__}, but "
                "DiscreteSAC learns values of discrete actions; set policy to a "
                "components.DiscreteActorQPackCfg"
            )
        if actor.memory is not None or critic.memory is not None:
            raise ValueError(
                "policy has a memory, but DiscreteSAC learns from single transitions; set "
                "policy.actor_cfg.memory=null and policy.critic_cfg.encoder=null, or train with PPO"
            )

    def random_actions(self) -> torch.Tensor:
        """Uniformly random actions, float32 [N, 1]."""
        size, choices = (self.num_envs, 1), self.policy.actor.num_choices
        drawn = torch.randint(choices, size, generator=self.generator, device=self.device)
        return drawn.float()

    def batches(self, count: int) -> Iterator[tuple[Batch]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """See `OffPolicyLearner.batches`; there is no noise."""
        return OffPolicyLearner.batches(self, count)  # pyright: ignore[reportReturnType]

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One gradient step of the critics and, if it is due, of everything else."""
        alpha = self.temperature.log_alpha.detach().exp()
        metrics = self._improve_critics(batch, alpha)
        if self.num_updates % self.cfg.policy_delay == 0:
            metrics |= self._improve_policy(batch, alpha)
            for slow, fast in self.slow_copies():
                polyak(slow, fast, self.cfg.tau)
        self.num_updates += 1
        return metrics

    def _improve_critics(self, batch: Batch, alpha: torch.Tensor) -> dict[str, torch.Tensor]:
        steps = batch.steps
        with torch.no_grad(), self.precision():
            outputs = self.policy.actor(steps.next_actor_obs)
            next_q = self.target_critic(self.target_features(batch))
        with torch.no_grad():
            log_prob = self.policy.actor.distribution(outputs).parameters
            target = steps.rewards + batch.discounts * soft_value(log_prob, next_q, alpha)
        with self.precision():
            q = self.policy.critic(self.critic_features(batch))
        taken = steps.actions.long().expand(len(q), -1, -1)
        q = q.gather(-1, taken).squeeze(-1)
        loss = critic_loss(q, target)
        self.step(loss, "critic")
        return {"loss/critic": loss.detach(), "value/mean": q.detach().mean()}

    def _improve_policy(self, batch: Batch, alpha: torch.Tensor) -> dict[str, torch.Tensor]:
        with self.precision():
            outputs = self.policy.actor(batch.steps.actor_obs)
            with torch.no_grad():
                q = self.policy.critic(self.critic_features(batch))
        policy = self.policy.actor.distribution(outputs)
        loss = -soft_value(policy.parameters, q, alpha).mean()
        self.step(loss, "actor")
        entropy = policy.entropy().detach()
        of_alpha = alpha_loss(self.temperature.log_alpha, -entropy, self.target_entropy)
        if self.cfg.learn_alpha:
            self.step(of_alpha, "alpha")
        return {
            "loss/actor": loss.detach(),
            "loss/alpha": of_alpha.detach(),
            "policy/entropy": entropy.mean(),
            "policy/alpha": alpha,
        }
