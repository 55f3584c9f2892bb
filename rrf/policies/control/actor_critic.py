"""On-policy actors with the distributions of their actions, and critics; both together are the
module that a checkpoint stores.

A distribution consists of a single parameter tensor, which a rollout can store.

Legend: N environments, B batch or environments, O observation width, A action dimension, C choices,
P parameters of one distribution.
"""

import math
import typing

import torch
from tensordict import TensorDict
from torch import nn

from rrf.policies.control.configs import (
    ActorCfg,
    ActorCriticPackCfg,
    CategoricalActorCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.policies.control.state_network import (
    ACTOR_GROUPS,
    StateNetwork,
    critic_groups,
    forget,
    groups_of,
)

if typing.TYPE_CHECKING:
    from rrf.envs.control_env import Interface

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class Distribution(typing.Protocol):
    """A policy's distribution over actions in B states."""

    parameters: torch.Tensor  # float32 [B, P]; `of_parameters` makes a distribution of it again

    @classmethod
    def of_parameters(cls, parameters: torch.Tensor) -> "Distribution": ...

    @property
    def mode(self) -> torch.Tensor:
        """The greedy action, [B, A]; for a Gaussian the mean, with gradient."""
        ...

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor: ...

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Summed over the dimensions, [B]."""
        ...

    def entropy(self) -> torch.Tensor:
        """In nats, summed over the dimensions, [B]."""
        ...

    def kl_to(self, other: typing.Any) -> torch.Tensor:
        """KL(self || other), [B]."""
        ...


class DiagonalGaussian:
    """Independent normal distributions. The parameters are [mean, std]."""

    def __init__(self, mean_ba: torch.Tensor, std_ba: torch.Tensor):
        self.mean, self.std = mean_ba, std_ba

    @classmethod
    def of_parameters(cls, parameters: torch.Tensor) -> "DiagonalGaussian":
        return cls(*parameters.chunk(2, -1))

    @property
    def parameters(self) -> torch.Tensor:
        return torch.cat([self.mean, self.std], -1)

    @property
    def mode(self) -> torch.Tensor:
        return self.mean

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + self.std * noise

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        squares = ((actions - self.mean) / self.std).square()
        return -(0.5 * squares + self.std.log() + _LOG_SQRT_2_PI).sum(-1)

    def entropy(self) -> torch.Tensor:
        return (0.5 + _LOG_SQRT_2_PI + self.std.log()).sum(-1)

    def kl_to(self, other: "DiagonalGaussian") -> torch.Tensor:
        squares = self.std.square() + (self.mean - other.mean).square()
        each = (other.std / self.std).log() + squares / (2 * other.std.square()) - 0.5
        return each.sum(-1)


class Categorical:
    """A choice among C. The parameters are log-probabilities; actions are indices, [B, 1]."""

    def __init__(self, logits_bc: torch.Tensor):
        self.parameters = nn.functional.log_softmax(logits_bc, -1)

    @classmethod
    def of_parameters(cls, parameters: torch.Tensor) -> "Categorical":
        return cls(parameters)

    @property
    def mode(self) -> torch.Tensor:
        return self.parameters.argmax(-1, keepdim=True).float()

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        return torch.multinomial(self.parameters.exp(), 1, generator=generator).float()

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        return self.parameters.gather(-1, actions.long()).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        return -(self.parameters.exp() * self.parameters).sum(-1)

    def kl_to(self, other: "Categorical") -> torch.Tensor:
        return (self.parameters.exp() * (self.parameters - other.parameters)).sum(-1)


class Actor(StateNetwork):
    """Maps observations to a distribution over actions."""

    distribution_class: type

    def __init__(self, cfg: ActorCfg, interface: "Interface", num_outputs: int):
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

    def __init__(self, cfg: StateIndStdActorCfg, interface: "Interface"):
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

    def __init__(self, cfg: CategoricalActorCfg, interface: "Interface"):
        if interface.num_choices is None:
            raise ValueError(
                f"{interface.task or 'this environment'} has continuous actions of "
                f"{interface.num_actions} numbers; use components.StateIndStdActorCfg"
            )
        super().__init__(cfg, interface, interface.num_choices)
        self.num_actions, self.num_choices = interface.num_actions, interface.num_choices

    def distribution(self, outputs: torch.Tensor) -> Categorical:
        return Categorical(outputs)


class VNetwork(StateNetwork):
    """Predicts the value of a state; its outputs are [..., 1]."""

    def __init__(self, cfg: VNetworkCfg, interface: "Interface", actor_groups: list[str]):
        dims = interface.observation_dims
        super().__init__(cfg, critic_groups(cfg.observation_groups, actor_groups, dims), dims, 1)

    def value(self, x: torch.Tensor) -> torch.Tensor:
        """Values [...] for joined observations [..., O]; for critics without a memory."""
        return self(x).squeeze(-1)


class Deployed(nn.Module):
    """The module that a checkpoint stores: an actor and its critic or critics."""

    def deployable(self) -> "ControlPolicy":
        """The policy, ready to act."""
        raise NotImplementedError


class ActorCritic(Deployed):
    """`actor` and `critic` share no parameters, so that each can learn in its own thread."""

    num_members = 1
    """Members of the population that the networks describe."""

    def __init__(self, cfg: ActorCriticPackCfg, interface: "Interface"):
        super().__init__()
        cfg = cfg.replace(actor_cfg=cfg.actor_cfg.suited(interface.num_choices))
        self.cfg, self.interface = cfg, interface
        self.actor: Actor = cfg.actor_cfg.build(interface)
        self.critic: VNetwork = cfg.critic_cfg.build(interface, self.actor.groups)

    def deployable(self) -> "ControlPolicy":
        """The actor, ready to act."""
        return ControlPolicy(self.actor)


class ControlPolicy:
    """Acts greedily or by sampling, and keeps the memory of a recurrent actor."""

    def __init__(self, actor):
        self.actor = actor
        self._memory: torch.Tensor | None = None

    def reset(self, where_n: torch.Tensor | None = None) -> None:
        """Clear the memory of all environments, or of those marked in `where_n` (bool [N])."""
        if where_n is None:
            self._memory = None
        elif self._memory is not None:
            self._memory = forget(self._memory, where_n)

    @torch.no_grad()
    def act(
        self,
        observations: TensorDict,
        greedy: bool = True,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Actions [N, A] for the observations [N] of N environments."""
        x = self.actor.read(observations)
        if self._memory is None:
            self._memory = self.actor.initial_memory(len(x))
        outputs, self._memory = self.actor.step(x, self._memory)
        distribution = self.actor.distribution(outputs)
        return distribution.mode if greedy else distribution.sample(generator)
