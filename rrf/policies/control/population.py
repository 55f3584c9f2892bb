"""Actor and critic of a population: shared networks that read a latent of the acting member.

The members' latents are a table [M, D]. They are learned with the networks (arXiv:2407.20230), or
bred by the members' returns (arXiv:2503.19037). The algorithm adds the member's number as another
observation group, "member" [N, 1]; it is the last column of the joined observation. Member 0 is the
leader. It is deployed as a plain actor whose first layer includes the leader's latent in its bias.

A single member needs no latent. Then everything is bit for bit the same as without a population.

Legend: B batch, O observation width, M members, D latent width, A action width, K outputs.
"""

import math

import torch
from torch import nn

from rrf.envs.control_env import Interface
from rrf.policies.control.actor_critic import (
    Actor,
    ActorCritic,
    ControlPolicy,
    DiagonalGaussian,
    GaussianActor,
)
from rrf.policies.control.configs import (
    PopulationPackCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.policies.control.normalizer import EmpiricalNormalizer
from rrf.policies.control.state_network import StateNetwork

MEMBER = "member"
"""The observation group that holds the member's number."""


class MemberNormalizer(nn.Module):
    """Normalises all columns except the last one, which is the member's number."""

    def __init__(self, inner: EmpiricalNormalizer | None):
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.inner is None:
            return x
        return torch.cat([self.inner(x[..., :-1]), x[..., -1:]], -1)

    def update(self, batch: torch.Tensor) -> None:
        """Merge a batch into the statistics."""
        if self.inner is not None:
            self.inner.update(batch[..., :-1])


class MemberBackbone(nn.Module):
    """Outputs [B, K] for an observation and a member's number, [B, O + 1]."""

    latents: torch.Tensor

    def __init__(self, inner: nn.Module, latents_md: torch.Tensor, is_learned: bool):
        super().__init__()
        self.inner = inner
        self.log_std: nn.Parameter | None = None  # [M, A]; appended to the outputs
        if is_learned:
            self.latents = nn.Parameter(latents_md.clone())
        else:
            self.register_buffer("latents", latents_md.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        member = x[..., -1].long()
        outputs = self.inner(torch.cat([x[..., :-1], self.latents[member]], -1))
        if self.log_std is None:
            return outputs
        return torch.cat([outputs, self.log_std[member]], -1)


class PopulationActor(GaussianActor):
    """A Gaussian actor whose members can have their own standard deviations."""

    def join(self, latents_md: torch.Tensor, cfg: PopulationPackCfg) -> None:
        """Turn this actor into the actor of a population."""
        backbone = _join(self, latents_md, cfg, self.log_std.numel())
        self.num_members, self.has_own_std = len(latents_md), cfg.std_per_member
        if self.has_own_std:
            table = self.log_std.detach().expand(self.num_members, -1)
            del self.log_std
            backbone.log_std = nn.Parameter(table.clone())

    @property
    def log_stds(self) -> torch.Tensor:
        """The logarithms of the members' standard deviations, [M, A]."""
        if not self.has_own_std:
            return self.log_std.expand(self.num_members, -1)
        assert isinstance(self.backbone, MemberBackbone)
        assert self.backbone.log_std is not None
        return self.backbone.log_std

    def distribution(self, outputs: torch.Tensor) -> DiagonalGaussian:
        if not self.has_own_std:
            return super().distribution(outputs)
        mean, log_std = outputs.chunk(2, -1)
        return DiagonalGaussian(mean, log_std.exp())

    @torch.no_grad()
    def constrain(self) -> None:
        low, high = self.bounds
        table = self.log_stds if self.has_own_std else self.log_std
        table.clamp_(math.log(low), math.log(high))

    def exploration(self) -> dict[str, float]:
        stds = self.log_stds.exp().mean(-1)
        return {"policy/std": stds.mean().item(), "policy/std_leader": stds[0].item()}


class PopulationActorCritic(ActorCritic):
    """The actor and critic that M members share."""

    cfg: PopulationPackCfg

    def __init__(self, cfg: PopulationPackCfg, interface: Interface):
        nn.Module.__init__(self)
        self.cfg, self.interface, self.num_members = cfg, interface, cfg.num_members
        if cfg.num_members == 1:
            super().__init__(cfg, interface)
            return
        _require_plain(cfg)
        assert isinstance(cfg.actor_cfg, StateIndStdActorCfg)
        actor = PopulationActor(cfg.actor_cfg, interface)
        self.actor: Actor = actor
        self.critic = cfg.critic_cfg.build(interface, actor.groups)
        latents_md = torch.randn(cfg.num_members, cfg.latent_dim)
        actor.join(latents_md, cfg)
        _join(self.critic, latents_md, cfg, 1)

    @property
    def latents(self) -> torch.Tensor:
        """The latents of the actor, [M, D]."""
        assert isinstance(self.actor.backbone, MemberBackbone)
        return self.actor.backbone.latents

    @torch.no_grad()
    def set_latents(self, latents_md: torch.Tensor) -> None:
        """Replace the latents of actor and critic."""
        for network in (self.actor, self.critic):
            network.backbone.latents.copy_(latents_md)

    @torch.no_grad()
    def inherit_std(self, origins_m: torch.Tensor) -> None:
        """Give every member the standard deviation of its origin (int64 [M]).

        Does nothing if the members share one standard deviation.
        """
        assert isinstance(self.actor, PopulationActor)
        if self.actor.has_own_std:
            self.actor.log_stds.copy_(self.actor.log_stds[origins_m])

    def deployable(self) -> ControlPolicy:
        """The leader, ready to act."""
        return ControlPolicy(self.leader())

    @torch.no_grad()
    def leader(self) -> Actor:
        """A plain actor that acts like member 0 does now. It shares no tensors with this module.

        With a single member it is the actor itself.
        """
        if self.num_members == 1:
            return self.actor
        population = self.actor
        assert isinstance(population, PopulationActor)
        backbone = population.backbone
        assert isinstance(backbone, MemberBackbone)
        with torch.random.fork_rng(devices=[]):
            actor: GaussianActor = self.cfg.actor_cfg.build(self.interface)
        weights = {name: value.clone() for name, value in backbone.inner.state_dict().items()}
        first, width = weights["layers.0.weight"], actor.width
        weights["layers.0.bias"] += first[:, width:] @ backbone.latents[0]
        weights["layers.0.weight"] = first[:, :width].clone()
        actor.backbone.load_state_dict(weights)
        actor.log_std.copy_(population.log_stds[0])
        if actor.normalizer is not None:
            assert isinstance(population.normalizer, MemberNormalizer)
            assert population.normalizer.inner is not None
            actor.normalizer.load_state_dict(population.normalizer.inner.state_dict())
        return actor.to(first.device)


def _join(
    network: StateNetwork, latents_md: torch.Tensor, cfg: PopulationPackCfg, num_outputs: int
) -> MemberBackbone:
    """Make a network read the member's number in addition to its observations."""
    network.groups = [*network.groups, MEMBER]
    network.normalizer = MemberNormalizer(network.normalizer)  # type: ignore[assignment]
    width = network.width + latents_md.shape[-1]
    backbone = MemberBackbone(
        network.cfg.backbone_cfg.build(width, num_outputs), latents_md, cfg.learn_latents
    )
    network.backbone = backbone
    return backbone


def _require_plain(cfg: PopulationPackCfg) -> None:
    actor_cfg = cfg.actor_cfg
    if type(actor_cfg) is not StateIndStdActorCfg or not actor_cfg.use_log_std:
        raise ValueError(
            "the actor of a population must be components.StateIndStdActorCfg with "
            f"use_log_std=true, but actor_cfg is {type(actor_cfg).__name__}"
        )
    if type(cfg.critic_cfg) is not VNetworkCfg:
        raise ValueError(
            "the critic of a population must be components.VNetworkCfg, whose network is made anew "
            f"with the members' latents, but critic_cfg is {type(cfg.critic_cfg).__name__}"
        )
    if actor_cfg.memory is not None or cfg.critic_cfg.memory is not None:
        raise ValueError(
            "the leader learns from single steps of other members, but networks with a memory "
            "learn from sequences; set actor_cfg.memory=null and critic_cfg.memory=null"
        )
