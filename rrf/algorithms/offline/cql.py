"""Conservative Q-learning, arXiv:2006.04779: SAC with critics that value unrecorded actions less.

    L_Q = TD + alpha_cql E_s[T logsumexp_m(Q(s, a_m) / T - log p(a_m)) - Q(s, a)]

where the a_m are proposed uniformly, by pi(.|s) and by pi(.|s'), `num_actions` each. The order of a
gradient step is that of CORL: all losses are those of the networks before the step.

With `calibrates`, Q(s, a_m) of the policy's proposals counts as the return that was recorded from s
on, if that is higher (Cal-QL, arXiv:2303.05479). New transitions are not calibrated.

Legend: K critics, B batch, M proposed actions, A action dimension, D feature width.
"""

import dataclasses
import math
import typing
from collections.abc import Iterator

import torch
from torch import nn

from rrf.algorithms.off_policy.learner import Batch, polyak
from rrf.algorithms.off_policy.losses import (
    alpha_loss,
    critic_loss,
    policy_loss,
    soft_maximum,
    uniform_log_density,
)
from rrf.algorithms.off_policy.sac import SAC, Noise, Temperature
from rrf.algorithms.offline.configs import CQLCfg
from rrf.policies.control.off_policy_actors import TanhGaussian


@dataclasses.dataclass
class ProposalNoise(Noise):
    """The noise of one gradient step, with that of the proposed actions. If targets use the best of
    several actions, `next_actions` is [B, M, A]."""

    uniform: torch.Tensor  # [B, M, A], from -1 to 1
    proposals: torch.Tensor  # standard normal [B, M, A], for the policy's actions in the states
    next_proposals: torch.Tensor  # the same for the policy's actions in the next states


class CQL(SAC):
    """Metrics are SAC's, and loss/conservative, value/gap, and with a wanted gap cql/weight."""

    cfg: CQLCfg

    def build(self) -> None:
        super().build()
        self.gap_weight = Temperature(1.0 if self.cfg.gap is None else math.e).to(self.device)

    def learners(self) -> dict[str, tuple[nn.Module, float]]:
        return super().learners() | {"gap": (self.gap_weight, self.cfg.critic_lr)}

    def own_parameters(self) -> dict[str, nn.Parameter]:
        return super().own_parameters() | {"log_weight": self.gap_weight.log_alpha}

    def batches(self, count: int) -> Iterator[tuple[Batch, Noise]]:
        shape = (self.cfg.batch_size, self.cfg.num_actions, self.policy.actor.num_actions)
        for batch, noise in super().batches(count):
            numbers = torch.empty(4, *shape, device=self.device)
            uniform, of_policy, of_next_policy, best = numbers.normal_(generator=self.generator)
            uniform.uniform_(-1, 1, generator=self.generator)
            after = best if self.cfg.backs_up_max else noise.next_actions
            yield (
                batch,
                ProposalNoise(
                    noise.actions, after, noise.returns, uniform, of_policy, of_next_policy
                ),
            )

    def learn(self, batch: Batch, noise: typing.Any) -> dict[str, torch.Tensor]:
        """One gradient step of everything, with a `ProposalNoise`."""
        cfg = self.cfg
        alpha = self.temperature.log_alpha.detach().exp()
        outputs, next_outputs = self.actor_pass(batch, True)
        assert outputs is not None
        policy, next_policy = map(self.policy.actor.distribution, (outputs, next_outputs))
        of_policy, metrics = self._policy_objective(batch, policy, noise, alpha)
        self.backward(of_policy, "actor")
        with torch.no_grad():
            target = self._target(batch, next_policy, noise, alpha)
        seen = self.critic_features(batch)
        with self.precision():
            q = self.policy.critic(seen, batch.steps.actions)
        gaps = self._gaps(batch, q, seen, policy, next_policy, noise)
        weight = cfg.cql_alpha * self.gap_weight.log_alpha.detach().exp()
        conservative = weight * (gaps - (cfg.gap or 0.0)).sum()
        of_critic = 2 * critic_loss(q, target)
        self.backward(of_critic + conservative, "critic")
        if cfg.gap is not None:
            of_weight = -cfg.cql_alpha * self.gap_weight.log_alpha.exp() * (gaps.detach() - cfg.gap)
            self.step(0.5 * of_weight.sum(), "gap")
        for name in ("alpha", "actor", "critic") if cfg.learn_alpha else ("actor", "critic"):
            self.optimizers[name].step()
        for slow, fast in self.slow_copies():
            polyak(slow, fast, cfg.tau)
        self.num_updates += 1
        return metrics | {
            "loss/critic": of_critic.detach(),
            "loss/conservative": conservative.detach(),
            "value/mean": q.detach().mean(),
            "value/gap": gaps.detach().mean(),
            "cql/weight": weight,
        }

    def _policy_objective(
        self, batch: Batch, policy: TanhGaussian, noise: Noise, alpha: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The actor's loss; also sets the gradient of the temperature."""
        actions, log_prob = policy.sample_with_log_prob(noise.actions)
        of_alpha = alpha_loss(self.temperature.log_alpha, log_prob, self.target_entropy)
        if self.cfg.learn_alpha:
            self.backward(of_alpha, "alpha")
        if self.num_updates < self.cfg.cloning_updates:
            loss = (alpha * log_prob - policy.log_prob(batch.steps.actions)).mean()
        else:
            with self.precision():
                q = self.policy.critic(self.critic_features(batch), actions)
            loss = policy_loss(log_prob, q, alpha)
        return loss, {
            "loss/actor": loss.detach(),
            "loss/alpha": of_alpha.detach(),
            "policy/entropy": -log_prob.detach().mean(),
            "policy/alpha": alpha,
        }

    def _target(
        self, batch: Batch, next_policy: TanhGaussian, noise: ProposalNoise, alpha: torch.Tensor
    ) -> torch.Tensor:
        """Targets of the critics, [B]."""
        cfg, steps = self.cfg, batch.steps
        seen = self.target_features(batch)
        with self.precision():
            if cfg.backs_up_max:
                actions, log_prob = proposed(next_policy, noise.next_actions)
                values, best = self._values(self.target_critic, seen, actions).amin(0).max(-1)
                log_prob = log_prob.gather(-1, best.unsqueeze(-1)).squeeze(-1)
            else:
                actions, log_prob = next_policy.sample_with_log_prob(noise.next_actions)
                values = self.target_critic(seen, actions).amin(0)
        if cfg.backs_up_entropy:
            values = values - alpha * log_prob
        return steps.rewards + batch.discounts * values

    def _gaps(
        self,
        batch: Batch,
        q_kb: torch.Tensor,
        seen_bd: torch.Tensor,
        policy: TanhGaussian,
        next_policy: TanhGaussian,
        noise: ProposalNoise,
    ) -> torch.Tensor:
        """By how much the soft maximum over proposed actions is above the recorded ones, [K]."""
        cfg, limit = self.cfg, self.policy.actor.action_limit
        with torch.no_grad():
            proposals, log_prob = proposed(policy, noise.proposals)
            next_proposals, next_log_prob = proposed(next_policy, noise.next_proposals)
            actions = torch.cat([limit * noise.uniform, next_proposals, proposals], 1)
        with self.precision():
            values = self._values(self.policy.critic, seen_bd, actions)
        if cfg.calibrates:
            recorded = self.replay.returns_to_go(batch.rows).unsqueeze(-1)
            uniform, others = values.tensor_split((cfg.num_actions,), -1)
            values = torch.cat([uniform, torch.maximum(others, recorded)], -1)
        if cfg.uses_importance:
            density = uniform_log_density(actions.shape[-1], limit)
            uniform = torch.full_like(log_prob, density)
            values = values - torch.cat([uniform, next_log_prob, log_prob], 1)
        else:
            values = torch.cat([values, q_kb.unsqueeze(-1)], -1)
        gaps = soft_maximum(values, cfg.cql_temperature) - q_kb
        if cfg.max_gap is not None:
            gaps = gaps.clamp(-cfg.max_gap, cfg.max_gap)
        return gaps.mean(-1)

    def _values(
        self, critic: typing.Any, seen_bd: torch.Tensor, actions_bma: torch.Tensor
    ) -> torch.Tensor:
        """Values of several actions per state, [K, B, M]."""
        batch, count, _ = actions_bma.shape
        seen = seen_bd.repeat_interleave(count, 0)
        return critic(seen, actions_bma.flatten(0, 1)).unflatten(-1, (batch, count))


def proposed(policy: TanhGaussian, noise_bma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Several actions per state, [B, M, A], and their log-probabilities [B, M]."""
    wide = TanhGaussian(policy.mean.unsqueeze(1), policy.log_std.unsqueeze(1), policy.limit)
    return wide.sample_with_log_prob(noise_bma)
