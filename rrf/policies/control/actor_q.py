"""An actor and its action-value critics as one module, which off-policy checkpoints store."""

from rrf.envs.control_env import Interface
from rrf.policies.control.actor_critic import ControlPolicy, Deployed
from rrf.policies.control.batched_critics import QNetwork
from rrf.policies.control.off_policy_actors import SACActor
from rrf.policies.control.off_policy_configs import ActorQPackCfg


class ActorQ(Deployed):
    """`actor` and `critic` share no parameters."""

    def __init__(self, cfg: ActorQPackCfg, interface: Interface):
        super().__init__()
        self.cfg, self.interface = cfg, interface
        self.actor: SACActor = cfg.actor_cfg.build(interface)
        self.critic: QNetwork = cfg.critic_cfg.build(interface, self.actor.groups)

    def deployable(self) -> ControlPolicy:
        """The actor, ready to act."""
        return ControlPolicy(self.actor)
