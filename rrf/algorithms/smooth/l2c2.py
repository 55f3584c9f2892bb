"""Locally Lipschitz continuous constraint (L2C2), arXiv:2202.07152, as a variant of PPO.

    s~ = s + u (s' - s), u ~ U(-1, 1)
    L_actor += lambda_pi E ||mu(s) - mu(s~)||^2,  L_critic += lambda_V E (V(s) - V(s~))^2

s' is the true successor of s. Where an episode ended, s~ = s and both terms are 0.
"""

from collections.abc import Iterator

import torch

from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.smooth.configs import L2C2Cfg
from rrf.algorithms.smooth.terms import between, require_smoothable, squared_distance
from rrf.policies.control.actor_critic import Distribution
from rrf.storage.rollout import Batch, Samples


class L2C2(PPO):
    """PPO with the penalty on actor and critic."""

    cfg: L2C2Cfg

    def __init__(self, cfg: L2C2Cfg, policy, *args, **runtime):
        require_smoothable(policy, "L2C2")
        super().__init__(cfg, policy, *args, **runtime)

    def batches(self, samples: Samples) -> Iterator[Batch]:
        # Drawn here, because actor and critic learn in two threads: there, the order of the draws
        # would not be fixed.
        for batch in super().batches(samples):
            self._actor_mix = self._mix(batch.actor_obs)
            self._critic_mix = self._mix(batch.critic_obs)
            yield batch

    def penalty(self, batch: Batch, distribution: Distribution):
        near = between(batch.actor_obs, batch.next_actor_obs, batch.goes_on, self._actor_mix)
        mean = self.policy.actor(near).float()
        change = squared_distance(distribution.mode, mean).mean()
        return self.cfg.policy_coef * change, {"loss/policy_change": change.detach()}

    def critic_penalty(self, batch: Batch, values: torch.Tensor):
        near = between(batch.critic_obs, batch.next_critic_obs, batch.goes_on, self._critic_mix)
        change = (values - self.policy.critic.value(near)).float().square().mean()
        return self.cfg.value_coef * change, {"loss/value_change": change.detach()}

    def _mix(self, like: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(like).uniform_(-1, 1, generator=self.generator)
