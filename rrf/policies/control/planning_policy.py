"""What the checkpoints of TD-MPC and TD-MPC2 store, and the policy that plans with it."""

import torch
from tensordict import TensorDict

from rrf.envs.control_env import Interface
from rrf.policies.control.actor_critic import ControlPolicy, Deployed
from rrf.policies.control.world_model import WorldModel
from rrf.policies.control.world_model_configs import WorldModelPackCfg


class WorldModelPack(Deployed):
    """A world model. It is the actor; its critics judge latent states, not observations."""

    critic = None

    def __init__(self, cfg: WorldModelPackCfg, interface: Interface):
        super().__init__()
        self.cfg, self.interface = cfg, interface
        self.actor: WorldModel = cfg.actor_cfg.build(interface)

    def deployable(self) -> "PlanningPolicy":
        """The model, ready to plan."""
        return PlanningPolicy(self.actor)


class PlanningPolicy(ControlPolicy):
    """Plans all environments in one batch. Its memory is the plans, which the next ones begin
    with."""

    actor: WorldModel
    _generator: torch.Generator | None = None

    @torch.no_grad()
    def act(
        self,
        observations: TensorDict,
        greedy: bool = True,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Actions [N, A] for the observations [N] of N environments.

        A plan is random even if it is greedy. Without a generator, the random numbers begin with
        the same seed in every policy.
        """
        x = self.actor.read(observations)
        if self._memory is None:
            self._memory = self.actor.initial_memory(len(x))
        if generator is None:
            if self._generator is None:
                self._generator = torch.Generator(x.device).manual_seed(0)
            generator = self._generator
        noise = self.actor.draw_noise(len(x), generator)
        actions, self._memory = self.actor.act(x, self._memory, greedy, noise)
        return actions
