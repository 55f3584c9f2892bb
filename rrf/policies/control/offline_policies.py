"""Policies of offline algorithms, and what their checkpoints store.

Legend: B batch, A action dimension.
"""

import math

import torch
from torch import nn

from rrf.envs.control_env import Interface
from rrf.policies.control.actor_critic import ControlPolicy, Deployed, VNetwork
from rrf.policies.control.off_policy_actors import ActorQ, RealActor
from rrf.policies.control.offline_configs import ActorPackCfg, BoundedActorCfg, IQLPackCfg

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class BoundedGaussian:
    """A Gaussian around a mean that tanh bounds, with one standard deviation for all states.

    Actions are clipped to the bounds, the density is not corrected for that: so do IQL
    (arXiv:2110.06169) and its implementations. Without a standard deviation it is a deterministic
    policy.
    """

    def __init__(self, mean_ba: torch.Tensor, log_std_a: torch.Tensor | None, limit: float = 1.0):
        self.mean, self.log_std, self.limit = mean_ba, log_std_a, limit

    @property
    def mode(self) -> torch.Tensor:
        """The greedy action, [B, A]."""
        return self.mean

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Actions [B, A] between minus and plus `limit`."""
        if self.log_std is None:
            return self.mean
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        actions = torch.addcmul(self.mean, self.log_std.exp(), noise)
        return actions.clamp(-self.limit, self.limit)

    def imitation_loss(self, actions_ba: torch.Tensor) -> torch.Tensor:
        """How badly each action is imitated, [B]: its negative log-likelihood, or the squared
        distance from a deterministic policy."""
        errors = actions_ba - self.mean
        if self.log_std is None:
            return errors.square().sum(-1)
        each = 0.5 * (errors * (-self.log_std).exp()).square() + self.log_std
        return each.sum(-1) + actions_ba.shape[-1] * _LOG_SQRT_2_PI


class BoundedActor(RealActor):
    """Maps observations to a `BoundedGaussian`. Outputs are the means, [..., A], before tanh."""

    trained_by, numbers_per_action = "offline learning", 1

    def __init__(self, cfg: BoundedActorCfg, interface: Interface):
        super().__init__(cfg, interface)
        log_std = None if cfg.is_deterministic else nn.Parameter(torch.zeros(self.num_actions))
        self.log_std: nn.Parameter | None
        self.register_parameter("log_std", log_std)

    def distribution(self, outputs: torch.Tensor) -> BoundedGaussian:
        """The distribution that the backbone's outputs describe."""
        mean, log_std = self.action_limit * outputs.tanh(), self.log_std
        if log_std is not None:
            log_std = log_std.clamp(*self.log_std_bounds)
        return BoundedGaussian(mean, log_std, self.action_limit)


class ActorPack(Deployed):
    """An actor alone."""

    critic = None

    def __init__(self, cfg: ActorPackCfg, interface: Interface):
        super().__init__()
        self.cfg, self.interface = cfg, interface
        self.actor: BoundedActor = cfg.actor_cfg.build(interface)

    def deployable(self) -> ControlPolicy:
        """The actor, ready to act."""
        return ControlPolicy(self.actor)


class ActorQV(ActorQ):
    """`actor`, `critic` of actions, and `value` of states; they share no parameters."""

    def __init__(self, cfg: IQLPackCfg, interface: Interface):
        super().__init__(cfg, interface)
        groups = self.critic.groups
        self.value: VNetwork = cfg.value_cfg.replace(observation_groups=groups).build(
            interface, groups
        )
