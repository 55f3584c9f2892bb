"""Three variants of PPO that keep the Lipschitz constant of the policy small.

* Lips penalises lambda E ||d mu / d s||_F^2. The norm is estimated by one projection on random
  signs (`projected_jacobian`). Signs give a lower variance than normal numbers; for a single action
  dimension the estimate is exact.
* LCP (arXiv:2410.11825) penalises lambda E ||grad_s log pi(a|s)||^2 for the actions taken. The
  standard deviation is treated as a constant. Otherwise the easiest way to lower the penalty, which
  falls with 1 / std^4, would be a policy that acts at random.
* LipsNet (Song et al., ICML 2023): the actor itself bounds its Lipschitz constant by K(s)
  (`rrf.policies.control.lipsnet`). The penalty lambda E K(s)^2 keeps this bound small.

s is always the normalised observation, whose dimensions have comparable scales.
"""

import torch

from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.smooth.configs import LCPCfg, LipsCfg, LipsNetPPOCfg
from rrf.algorithms.smooth.terms import projected_jacobian, require_smoothable
from rrf.policies.control.actor_critic import DiagonalGaussian, Distribution
from rrf.policies.control.lipsnet import LipsNetActor
from rrf.storage.rollout import Batch


class Lips(PPO):
    """PPO with a penalty on the squared norm of the Jacobian."""

    cfg: LipsCfg

    def __init__(self, cfg: LipsCfg, policy, *args, **runtime):
        require_smoothable(policy, "Lips")
        super().__init__(cfg, policy, *args, **runtime)

    def penalty(self, batch: Batch, distribution: Distribution):
        actor = self.policy.actor
        x = actor.normalized(batch.actor_obs).detach().requires_grad_()
        mean = actor.backbone(x).float()
        directions = torch.empty_like(mean).bernoulli_(generator=self.generator) * 2 - 1
        squares = projected_jacobian(mean, x, directions).square().sum(-1).mean()
        return self.cfg.jacobian_coef * squares, {"loss/jacobian": squares.detach()}


class LCP(PPO):
    """PPO with a penalty on the squared gradient of the log-probability."""

    cfg: LCPCfg

    def __init__(self, cfg: LCPCfg, policy, *args, **runtime):
        require_smoothable(policy, "LCP")
        super().__init__(cfg, policy, *args, **runtime)

    def penalty(self, batch: Batch, distribution: Distribution):
        actor = self.policy.actor
        x = actor.normalized(batch.actor_obs).detach().requires_grad_()
        outputs = actor.distribution(actor.backbone(x).float())
        assert isinstance(outputs, DiagonalGaussian)
        fixed_std = DiagonalGaussian(outputs.mean, outputs.std.detach())
        log_prob = fixed_std.log_prob(batch.actions)
        (gradient,) = torch.autograd.grad(log_prob.sum(), x, create_graph=True)
        squares = gradient.square().sum(-1).mean()
        return self.cfg.gradient_coef * squares, {"loss/log_prob_gradient": squares.detach()}


class LipsNetPPO(PPO):
    """PPO for a LipsNetActor, with a penalty on the squared Lipschitz constant."""

    cfg: LipsNetPPOCfg

    def __init__(self, cfg: LipsNetPPOCfg, policy, *args, **runtime):
        if not isinstance(policy.actor, LipsNetActor):
            raise ValueError(
                f"LipsNetPPO learns the Lipschitz constant of a LipsNet, but the actor is a "
                f"{type(policy.actor).__name__}; use policy.actor_cfg=components.LipsNetActorCfg"
            )
        require_smoothable(policy, "LipsNetPPO")
        super().__init__(cfg, policy, *args, **runtime)

    def penalty(self, batch: Batch, distribution: Distribution):
        actor = self.policy.actor
        assert isinstance(actor, LipsNetActor)
        bound = actor.lipsnet.bound(actor.normalized(batch.actor_obs))
        loss = self.cfg.lipschitz_coef * bound.square().mean()
        return loss, {"policy/lipschitz": bound.detach().mean()}
