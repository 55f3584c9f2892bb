"""Stochastic policies over joined observations.

Legend: T time, B batch or environments, O observation width, A action dimension.
"""

import math
import typing
from collections.abc import Mapping

import torch
from torch import nn

from rrf.envs.control_env import Interface
from rrf.policies.control.configs import ActorCfg, CategoricalActorCfg, StateIndStdActorCfg
from rrf.policies.control.distributions import Categorical, DiagonalGaussian
from rrf.policies.control.state_network import StateNetwork, groups_of

ACTOR_GROUPS = ["actor", "policy"]


class Actor(StateNetwork):
    """Maps observations to a distribution over actions."""

    distribution_class: type

    def __init__(self, cfg: ActorCfg, interface: Interface, num_outputs: int):
        dims = interface.observation_dims
        super().__init__(
            cfg, groups_of(cfg.observation_groups, ACTOR_GROUPS, dims, "actor"), dims, num_outputs
        )

    def distribution(self, outputs: torch.Tensor) -> typing.Any:
        """The `Distribution` that the backbone's outputs describe."""
        raise NotImplementedError

    def constrain(self) -> None:
        """Clamp parameters to their allowed range; called after every optimizer step."""

    def exploration(self) -> dict[str, float]:
        """Metrics about the randomness of actions, to log."""
        return {}


class GaussianActor(Actor):
    """A Gaussian whose mean depends on the observation; its standard deviation is one vector."""

    distribution_class = DiagonalGaussian

    def __init__(self, cfg: StateIndStdActorCfg, interface: Interface):
        if interface.num_choices is not None:
            raise ValueError(
                f"{interface.task or 'this environment'} has {interface.num_choices} discrete "
                "actions; use components.CategoricalActorCfg"
            )
        super().__init__(cfg, interface, interface.num_actions)
        self.bounds = (cfg.min_std, cfg.max_std)
        std = torch.full((interface.num_actions,), cfg.init_std)
        self.uses_log_std = cfg.use_log_std
        if cfg.use_log_std:
            self.log_std = nn.Parameter(std.log())
        else:
            self.std = nn.Parameter(std)

    def distribution(self, outputs: torch.Tensor) -> DiagonalGaussian:
        std = self.log_std.exp() if self.uses_log_std else self.std
        return DiagonalGaussian(outputs, std.expand_as(outputs))

    @torch.no_grad()
    def constrain(self) -> None:
        low, high = self.bounds
        if self.uses_log_std:
            self.log_std.clamp_(math.log(low), math.log(high))
        else:
            self.std.clamp_(low, high)

    def exploration(self) -> dict[str, float]:
        std = self.log_std.exp() if self.uses_log_std else self.std
        return {"policy/std": std.mean().item()}


class CategoricalActor(Actor):
    """Predicts logits of discrete actions."""

    distribution_class = Categorical

    def __init__(self, cfg: CategoricalActorCfg, interface: Interface):
        if interface.num_choices is None:
            raise ValueError(
                f"{interface.task or 'this environment'} has continuous actions of "
                f"{interface.num_actions} numbers; use components.StateIndStdActorCfg"
            )
        super().__init__(cfg, interface, interface.num_choices)
        self.num_actions, self.num_choices = interface.num_actions, interface.num_choices

    def distribution(self, outputs: torch.Tensor) -> Categorical:
        return Categorical(outputs)


def critic_groups(
    asked: list[str] | None, actor_groups: list[str], dims: Mapping[str, int]
) -> list[str]:
    """The groups that a critic reads: `asked`, else "critic", else the actor's groups."""
    default = ["critic"] if "critic" in dims else actor_groups
    return groups_of(asked or default, default, dims, "critic")
