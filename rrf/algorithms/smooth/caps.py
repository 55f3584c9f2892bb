"""Conditioning for action policy smoothness (CAPS), arXiv:2012.06644, as a variant of PPO.

    L = L_PPO + lambda_T E ||mu(s_t) - mu(s_t+1)|| + lambda_S E ||mu(s) - mu(s + sigma n)||

with n ~ N(0, I), and mu the mean action. s_t+1 is the true successor of s_t, even though samples
are shuffled. The last state of an episode has no successor; its temporal term is 0. Noise is added
to the normalised observation, so that one sigma fits all its dimensions.
"""

import torch

from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.smooth.configs import CAPSCfg
from rrf.algorithms.smooth.terms import distance, require_smoothable
from rrf.policies.control.actor_critic import Distribution
from rrf.storage.rollout import Batch


class CAPS(PPO):
    """PPO with the temporal and the spatial penalty."""

    cfg: CAPSCfg

    def __init__(self, cfg: CAPSCfg, policy, *args, **runtime):
        require_smoothable(policy, "CAPS")
        super().__init__(cfg, policy, *args, **runtime)

    def penalty(self, batch: Batch, distribution: Distribution):
        cfg, actor = self.cfg, self.policy.actor
        mean = distribution.mode
        next_mean = actor(batch.next_actor_obs).float()
        temporal = (batch.goes_on * distance(mean, next_mean)).mean()
        x = actor.normalized(batch.actor_obs)
        noise = torch.empty_like(x).normal_(generator=self.generator)
        spatial = distance(mean, actor.backbone(x + cfg.sigma * noise).float()).mean()
        numbers = {"loss/temporal": temporal.detach(), "loss/spatial": spatial.detach()}
        return cfg.temporal_coef * temporal + cfg.spatial_coef * spatial, numbers
