"""Policies of off-policy algorithms.

Legend: B batch or environments, O observation width, D feature width, A action dimension,
K numbers that describe the distribution of one dimension.
"""

import torch

from rrf.envs.control_env import Interface
from rrf.networks.configs import without_dropout
from rrf.policies.control.actor_critic import ControlPolicy, Deployed
from rrf.policies.control.batched_critics import QNetwork
from rrf.policies.control.encoded_network import EncodedNetwork
from rrf.policies.control.off_policy_configs import ActorQPackCfg, RealActorCfg
from rrf.policies.control.state_network import ACTOR_GROUPS, groups_of
from rrf.policies.control.tanh_gaussian import TanhGaussian


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
