"""PPO whose actor's backbone learns a loss of its own beside the policy's.

Such backbones are a mixture of experts, whose load is balanced, and a variational autoencoder,
which learns to reconstruct its input (`rrf.networks.blocks`, `rrf.networks.blocks`). The
loss is computed on the normalised observations of every mini-batch.
"""

from rrf.algorithms.on_policy.auxiliary_configs import AuxiliaryPPOCfg
from rrf.algorithms.on_policy.extension import Extension, Penalty
from rrf.algorithms.on_policy.ppo import PPO
from rrf.policies.control.actor_critic import Distribution
from rrf.storage.rollout import Batch


class AuxiliaryLoss(Extension):
    """Adds the loss of the actor's backbone."""

    def __init__(self, coef: float, algorithm: PPO):
        """
        Raises:
            ValueError: If the actor's backbone has no such loss, if the critic's has one, which
                nothing would train, or for an actor with a memory.
        """
        actor, critic = algorithm.policy.actor, algorithm.policy.critic
        if not hasattr(actor.backbone, "auxiliary_loss"):
            raise ValueError(
                f"the actor's backbone is a {type(actor.backbone).__name__}, which has no loss of "
                "its own; set policy.actor_cfg.backbone_cfg to a networks.MixtureOfExpertsCfg or a "
                "networks.VAEBackboneCfg, or train it with algorithms.PPOCfg"
            )
        if hasattr(critic.backbone, "auxiliary_loss"):
            raise ValueError(
                f"the critic's backbone is a {type(critic.backbone).__name__}, whose own loss is "
                "not trained; set policy.critic_cfg.backbone_cfg to a networks.MLPCfg"
            )
        if actor.memory is not None:
            raise ValueError(
                "a backbone with a loss of its own learns from single steps, but this actor has a "
                "memory; set policy.actor_cfg.memory=null"
            )
        self.coef, self.actor, self.generator = coef, actor, algorithm.generator

    def penalty(self, batch: Batch, distribution: Distribution) -> Penalty:
        x = self.actor.normalized(batch.actor_obs)
        loss, metrics = self.actor.backbone.auxiliary_loss(x, self.generator)
        return self.coef * loss, metrics


class AuxiliaryPPO(PPO):
    """PPO with `AuxiliaryLoss`."""

    def __init__(self, cfg: AuxiliaryPPOCfg, *args, **runtime):
        super().__init__(cfg, *args, **runtime)
        self.extensions["auxiliary"] = AuxiliaryLoss(cfg.auxiliary_coef, self)
