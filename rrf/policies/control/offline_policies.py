"""What the checkpoints of offline algorithms store."""

from rrf.envs.control_env import Interface
from rrf.policies.control.actor_critic import ControlPolicy, Deployed, VNetwork
from rrf.policies.control.actor_q import ActorQ
from rrf.policies.control.bounded_actors import BoundedActor
from rrf.policies.control.offline_configs import ActorPackCfg, IQLPackCfg


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
