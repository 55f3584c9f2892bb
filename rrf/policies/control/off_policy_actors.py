"""Policies of off-policy algorithms.

Legend: B batch or environments, O observation width, D feature width, A action dimension,
K numbers that describe the distribution of one dimension.
"""

import math

import torch
from torch.nn import functional

from rrf.envs.control_env import Interface
from rrf.networks.configs import without_dropout
from rrf.policies.control.actor_critic import ControlPolicy, Deployed
from rrf.policies.control.batched_critics import QNetwork
from rrf.policies.control.encoded_network import EncodedNetwork
from rrf.policies.control.off_policy_configs import ActorQPackCfg, RealActorCfg
from rrf.policies.control.state_network import ACTOR_GROUPS, groups_of

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


def log_tanh_slope(u: torch.Tensor) -> torch.Tensor:
    """log(1 - tanh(u)^2), elementwise."""
    return 2 * (math.log(2) - u - functional.softplus(-2 * u))


class TanhGaussian:
    """A Gaussian squashed into a box by tanh (arXiv:1812.05905, appendix C).

    a = limit tanh(u) with u ~ N(mean, std), so log p(a) = log p(u) - log(limit) - log(1 -
    tanh(u)^2). The last logarithm is computed as 2 (log 2 - u - softplus(-2u)). This is exact even
    where tanh saturates, and it needs no epsilon. The parameters are [mean, log_std], both before
    tanh.
    """

    def __init__(self, mean_ba: torch.Tensor, log_std_ba: torch.Tensor, limit: float = 1.0):
        self.mean, self.log_std, self.limit = mean_ba, log_std_ba, limit

    @property
    def parameters(self) -> torch.Tensor:
        return torch.cat([self.mean, self.log_std], -1)

    @property
    def mode(self) -> torch.Tensor:
        """The greedy action, [B, A]: the median of each dimension."""
        return self.limit * self.mean.tanh()

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Actions [B, A] between minus and plus `limit`."""
        return self.at(torch.empty_like(self.mean).normal_(generator=generator))

    def at(self, noise_ba: torch.Tensor) -> torch.Tensor:
        """Actions [B, A] from standard normal noise, with gradient."""
        return self.limit * torch.addcmul(self.mean, self.log_std.exp(), noise_ba).tanh()

    def sample_with_log_prob(self, noise_ba: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [B, A] from standard normal noise, with gradient, and their log-prob [B]."""
        u = torch.addcmul(self.mean, self.log_std.exp(), noise_ba)
        each = 0.5 * noise_ba.square() + self.log_std + log_tanh_slope(u)
        return self.limit * u.tanh(), -each.sum(-1) - self._constant(u)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Log-probability of actions [B, A], summed over the dimensions: [B].

        An action exactly at the limit is treated as the largest float below it.
        """
        eps = torch.finfo(actions.dtype).eps
        u = (actions / self.limit).clamp(-1 + eps, 1 - eps).atanh()
        squares = ((u - self.mean) * (-self.log_std).exp()).square()
        return -(0.5 * squares + self.log_std + log_tanh_slope(u)).sum(-1) - self._constant(u)

    def kl_to(self, other: "TanhGaussian") -> torch.Tensor:
        """KL(self || other), [B]; squashing both distributions does not change it."""
        squares = (2 * self.log_std).exp() + (self.mean - other.mean).square()
        each = other.log_std - self.log_std + 0.5 * squares * (-2 * other.log_std).exp() - 0.5
        return each.sum(-1)

    def _constant(self, u: torch.Tensor) -> float:
        return u.shape[-1] * (_LOG_SQRT_2_PI + math.log(self.limit))


def require_real_actions(interface: Interface, trained_by: str) -> None:
    """Raise ValueError for discrete actions; `trained_by` names the algorithm in the message."""
    if interface.num_choices is not None:
        raise ValueError(
            f"{interface.task or 'this environment'} has {interface.num_choices} discrete "
            f"actions, which {trained_by} does not support; train it with PPO or discrete SAC, "
            f"e.g. rrf train --task {interface.task or 'TASK'} --algorithm sac"
        )


class RealActor(EncodedNetwork):
    """Maps observations to numbers that describe a distribution of real actions, [..., K A]."""

    trained_by: str  # in messages
    numbers_per_action: int  # K

    def __init__(self, cfg: RealActorCfg, interface: Interface):
        require_real_actions(interface, self.trained_by)
        dims = interface.observation_dims
        super().__init__(cfg, groups_of(cfg.observation_groups, ACTOR_GROUPS, dims, "actor"), dims)
        self.num_actions, self.action_limit = interface.num_actions, cfg.action_limit
        self.log_std_bounds = (cfg.min_log_std, cfg.max_log_std)
        backbone_cfg = without_dropout(cfg.backbone_cfg)
        num_outputs = self.numbers_per_action * interface.num_actions
        self.backbone = backbone_cfg.build(self.num_features, num_outputs)

    def forward(self, x_bo: torch.Tensor) -> torch.Tensor:
        """Outputs [B, K A] for joined observations; for actors without a memory."""
        return self.backbone(self.normalized(x_bo))

    def step(
        self, x_bo: torch.Tensor, memory: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Outputs [B, K A] for one time step, and the memory after it."""
        features, memory = self.encode(x_bo, memory)
        return self.backbone(features), memory


class SACActor(RealActor):
    """Maps observations to a squashed Gaussian. Outputs are [..., 2A]: means, then log stds."""

    distribution_class = TanhGaussian
    trained_by, numbers_per_action = "SAC", 2

    def distribution(self, outputs: torch.Tensor) -> TanhGaussian:
        """The distribution that the backbone's outputs describe."""
        mean, log_std = outputs.chunk(2, -1)
        return TanhGaussian(mean, log_std.clamp(*self.log_std_bounds), self.action_limit)


class ActorQ(Deployed):
    """What off-policy checkpoints store: `actor` and `critic`, which share no parameters."""

    def __init__(self, cfg: ActorQPackCfg, interface: Interface):
        super().__init__()
        self.cfg, self.interface = cfg, interface
        self.actor: SACActor = cfg.actor_cfg.build(interface)
        self.critic: QNetwork = cfg.critic_cfg.build(interface, self.actor.groups)

    def deployable(self) -> ControlPolicy:
        """The actor, ready to act."""
        return ControlPolicy(self.actor)
