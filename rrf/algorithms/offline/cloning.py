"""Behaviour cloning of states: maximum likelihood of the recorded actions."""

import torch
from torch import nn

from rrf.algorithms.off_policy.learner import Batch, OffPolicyLearner
from rrf.algorithms.offline.configs import CloningCfg


class Cloning(OffPolicyLearner):
    """Metrics are loss/actor."""

    cfg: CloningCfg

    def learners(self) -> dict[str, tuple[nn.Module, float]]:
        return {"actor": (self.policy.actor, self.cfg.actor_lr)}

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One gradient step."""
        with self.precision():
            outputs = self.policy.actor(batch.steps.actor_obs)
        policy = self.policy.actor.distribution(outputs)
        loss = policy.imitation_loss(batch.steps.actions).mean()
        self.backward(loss, "actor")
        self.optimizers["actor"].step()
        self.num_updates += 1
        return {"loss/actor": loss.detach()}
