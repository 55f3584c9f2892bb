"""An actor and its critic as one module, which on-policy checkpoints store."""

import torch
from tensordict import TensorDict
from torch import nn

from rrf.envs.control_env import Interface
from rrf.policies.control.actors import Actor
from rrf.policies.control.configs import ActorCriticPackCfg
from rrf.policies.control.critics import VNetwork
from rrf.policies.control.state_network import forget


class Deployed(nn.Module):
    """The module that a checkpoint stores: an actor and its critic or critics."""

    def deployable(self) -> "ControlPolicy":
        """The policy, ready to act."""
        raise NotImplementedError


class ActorCritic(Deployed):
    """`actor` and `critic` share no parameters, so that each can learn in its own thread."""

    def __init__(self, cfg: ActorCriticPackCfg, interface: Interface):
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
