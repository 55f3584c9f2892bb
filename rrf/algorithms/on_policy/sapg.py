"""Split and aggregate policy gradients (SAPG), arXiv:2407.20230.

N environments are split into M blocks, one per member of a population that shares its networks
(`rrf.policies.control.population`). Each member learns from its own block by PPO. Members with
higher numbers get a larger entropy bonus. Member 0, the leader, also learns from steps of the
others, the followers, as if it had taken them itself (eq. 4 to 6):

    rho = pi_leader(a|s) / pi_follower_old(a|s),  mu = pi_leader_old(a|s) / pi_follower_old(a|s)
    L_off = E max(-A rho, -A clip(rho, mu (1 - eps), mu (1 + eps)))

with one-step returns R = r + gamma V_leader(s') and A = R - V_leader(s). For every rollout, these
steps are drawn at random from all followers. By default the leader takes over as many steps as it
took itself (`off_policy_ratio`).

Different from the paper: mu has an upper bound (`max_importance`), as in truncated importance
sampling. Advantages are normalised separately for each member and for the steps taken over. If
they were normalised together, all actions of a member that improves less than the others would
have negative advantages.

Legend: T time, N environments, S = T * N samples, K samples taken over, O observation width.
"""

import dataclasses
import math

import torch
from tensordict import TensorDict

from rrf.algorithms import distributed
from rrf.algorithms.on_policy.configs import SAPGCfg
from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.returns import add_time_limit_bootstrap
from rrf.policies.control.actor_critic import ActorCritic
from rrf.policies.control.population import MEMBER, PopulationActorCritic
from rrf.storage.rollout import Batch, ControlStep, Samples

LEADER = 0
LOG_CENTER = "log_center"  # log mu of a sample; 0 if the member that learns from it chose it
SOURCE = "source"  # origin of a sample: the member's number, or M if the leader took it over


class SAPG(PPO):
    """PPO of a population whose leader learns from all members."""

    cfg: SAPGCfg
    trains_populations = True

    def __init__(self, cfg: SAPGCfg, policy: ActorCritic, num_envs: int, *args, **runtime):
        if not isinstance(policy, PopulationActorCritic):
            raise ValueError(
                f"{type(self).__name__} trains a population; use "
                "policy=components.PopulationPackCfg"
            )
        if num_envs % policy.num_members:
            raise ValueError(
                f"{num_envs} environments cannot be split among policy.num_members="
                f"{policy.num_members}; set env.num_envs to a multiple of it"
            )
        if policy.num_members > 1 and cfg.normalize_advantage_per_mini_batch:
            raise ValueError(
                "a population's advantages are normalised for each member; set "
                "algorithm.normalize_advantage_per_mini_batch=false"
            )
        super().__init__(cfg, policy, num_envs, *args, **runtime)
        self.num_members = policy.num_members
        if self.num_members > 1:
            self._require_samples()
        envs = torch.arange(num_envs, device=self.device)
        self.members = envs // (num_envs // self.num_members)  # int64 [N]
        shares = torch.linspace(0, 1, self.num_members, device=self.device)
        self.entropy_coefs = cfg.entropy_coef + cfg.follower_entropy_coef * shares

    def act(self, observations: TensorDict) -> torch.Tensor:
        return super().act(self._with_members(observations, self.members))

    def observe(self, step: ControlStep) -> None:
        if step.final_observations is not None:
            final = self._with_members(step.final_observations, self.members[step.dones])
            step = dataclasses.replace(step, final_observations=final)
        super().observe(step)

    def returns(self, observations: TensorDict) -> Samples:
        return super().returns(self._with_members(observations, self.members))

    def augmented(self, samples: Samples) -> Samples:
        """The samples of all members, and copies of followers' samples for the leader."""
        if self.num_members == 1:
            return super().augmented(samples)
        members = self._members_of(samples.actor_obs)
        followers = (members != LEADER).nonzero().squeeze(-1)
        count = self._num_taken_over(len(samples) - len(followers))
        order = torch.randperm(len(followers), generator=self.generator, device=self.device)
        samples.extra |= {LOG_CENTER: torch.zeros_like(samples.advantages), SOURCE: members}
        if count:
            samples = samples.joined(self.taken_over(samples, followers[order[:count]]))
        return super().augmented(samples)

    def taken_over(self, samples: Samples, rows: torch.Tensor) -> Samples:
        """Followers' samples at `rows` (int64 [K]), rewritten as samples of the leader.

        `extra` holds their log mu and their source.
        """
        rewards, dones, final_values = self._outcomes(rows)
        critic = self.policy.critic
        observed = {
            name: as_leader(getattr(samples, name)[rows])
            for name in ("actor_obs", "critic_obs", "next_actor_obs", "next_critic_obs")
        }
        actions = samples.actions[rows]
        distribution = self.distribution_in(observed["actor_obs"])
        log_prob = distribution.log_prob(actions)
        values = critic.value(observed["critic_obs"])
        next_values = critic.value(observed["next_critic_obs"])
        returns = one_step_returns(rewards, next_values, dones, final_values, self.cfg.gamma)
        log_center = log_importance(log_prob, samples.log_prob[rows], self.cfg.max_importance)
        return Samples(
            **observed,
            goes_on=samples.goes_on[rows],
            actions=actions,
            log_prob=log_prob,
            distribution=distribution.parameters,
            values=values,
            returns=returns,
            advantages=returns - values,
            extra={LOG_CENTER: log_center, SOURCE: torch.full_like(rows, self.num_members)},
        )

    def normalized_advantages(self, samples: Samples) -> torch.Tensor:
        if self.num_members == 1:
            return super().normalized_advantages(samples)
        result = torch.empty_like(samples.advantages)
        sources = samples.extra[SOURCE]
        for source in range(self.num_members + 1):
            rows = sources == source
            if source < self.num_members or self.cfg.off_policy_ratio > 0:
                result[rows] = distributed.normalized(samples.advantages[rows])
        return result

    def surrogate(self, batch: Batch, log_prob: torch.Tensor, advantages: torch.Tensor):
        if self.num_members == 1:
            return super().surrogate(batch, log_prob, advantages)
        log_center = batch.extra(LOG_CENTER)
        log_ratio = log_prob - batch.log_prob + log_center
        losses = centered_surrogate(log_ratio, log_center, advantages, self.cfg.clip_param)
        return self._weights(batch) * losses

    def value_losses(self, batch: Batch, values: torch.Tensor) -> torch.Tensor:
        losses = super().value_losses(batch, values)
        return losses if self.num_members == 1 else self._weights(batch) * losses

    def entropy_bonus(self, batch: Batch, entropy: torch.Tensor) -> torch.Tensor:
        if self.num_members == 1:
            return super().entropy_bonus(batch, entropy)
        return (self.entropy_coefs[self._members_of(batch.actor_obs)] * entropy).mean()

    def update_normalizers(self, samples: Samples) -> None:
        if self.num_members > 1:  # the samples that the leader took over would count twice
            is_drawn = samples.extra[SOURCE] < self.num_members
            samples = dataclasses.replace(
                samples,
                actor_obs=samples.actor_obs[is_drawn],
                critic_obs=samples.critic_obs[is_drawn],
            )
        super().update_normalizers(samples)

    def _num_taken_over(self, num_leader_samples: int) -> int:
        """How many followers' samples the leader takes over, given its number of own samples."""
        return round(self.cfg.off_policy_ratio * num_leader_samples)

    def _require_samples(self) -> None:
        """Require two samples in every set that is normalised separately."""
        num_per_member = self.rollout.num_envs * self.rollout.num_steps // self.num_members
        num_of_followers = num_per_member * (self.num_members - 1)
        num_taken_over = self._num_taken_over(num_per_member)
        ratio = self.cfg.off_policy_ratio
        if num_per_member < 2:
            raise ValueError(
                "a rollout holds only 1 sample of each member, so its advantages cannot be "
                "normalised; set num_steps_per_env to 2 or more"
            )
        if (ratio > 0 and num_taken_over < 2) or num_taken_over > num_of_followers:
            raise ValueError(
                f"algorithm.off_policy_ratio is {ratio}: the leader, with {num_per_member} samples "
                f"of its own, would take over {num_taken_over} of its followers' "
                f"{num_of_followers}; allowed: 0, or from {2 / num_per_member:.3g} to "
                f"{self.num_members - 1}"
            )

    def _outcomes(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rewards, dones and final values of the samples at `rows`, each [K].

        A final value is the leader's value of the last observation where a time limit ended the
        episode, and 0 elsewhere.
        """
        rollout, critic = self.rollout, self.policy.critic
        final_values = torch.zeros_like(rollout["rewards"])
        for t, ended, final in rollout.finals:
            final_obs = as_leader(critic.read(final).to(self.device))
            final_values[t, ended] = critic.value(final_obs)
        time_outs = rollout["time_outs"].flatten()[rows]
        final_values = torch.where(time_outs, final_values.flatten()[rows], 0.0)
        return rollout["rewards"].flatten()[rows], rollout["dones"].flatten()[rows], final_values

    def _weights(self, batch: Batch) -> torch.Tensor:
        is_taken_over = batch.extra(SOURCE) == self.num_members
        return torch.where(is_taken_over, self.cfg.off_policy_coef, 1.0)

    def _members_of(self, x_so: torch.Tensor) -> torch.Tensor:
        return x_so[..., -1].long()

    def _with_members(self, observations: TensorDict, members: torch.Tensor) -> TensorDict:
        """The observations with the number of the member that made each."""
        if self.num_members == 1:
            return observations
        with_members = observations.copy()
        with_members[MEMBER] = members.unsqueeze(-1).to(observations.device, torch.float32)
        return with_members


def as_leader(x_so: torch.Tensor) -> torch.Tensor:
    """Joined observations in which the leader's number replaces the follower's."""
    x_so = x_so.clone()
    x_so[..., -1] = LEADER
    return x_so


def log_importance(
    log_prob_k: torch.Tensor, follower_log_prob_k: torch.Tensor, cap: float
) -> torch.Tensor:
    """log mu = log (pi_leader_old / pi_follower_old), where mu is at most `cap`."""
    return (log_prob_k - follower_log_prob_k).clamp(max=math.log(cap))


def centered_surrogate(
    log_ratio_b: torch.Tensor, log_center_b: torch.Tensor, advantages_b: torch.Tensor, clip: float
) -> torch.Tensor:
    """max(-A rho, -A clip(rho, mu (1 - clip), mu (1 + clip))), [B]."""
    ratio, center = log_ratio_b.exp(), log_center_b.exp()
    clipped = ratio.clamp(center * (1 - clip), center * (1 + clip))
    return torch.maximum(-advantages_b * ratio, -advantages_b * clipped)


def one_step_returns(
    rewards_k: torch.Tensor,
    next_values_k: torch.Tensor,
    dones_k: torch.Tensor,
    final_values_k: torch.Tensor,
    gamma: float,
) -> torch.Tensor:
    """r + gamma V(s'), [K]; where the episode ended, r + gamma V(final).

    V(final) is 0 unless the episode was truncated.
    """
    bootstrap_k = torch.where(dones_k, final_values_k, next_values_k)
    return add_time_limit_bootstrap(rewards_k, torch.ones_like(dones_k), bootstrap_k, gamma)
