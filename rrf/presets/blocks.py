"""PPO with special networks on Pendulum-v1; other settings are those of `pendulum_ppo`."""

from rrf.algorithms.on_policy.auxiliary_configs import AuxiliaryPPOCfg
from rrf.networks.block_configs import MixtureOfExpertsCfg, VAEBackboneCfg
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.policies.control.configs import ActorCriticPackCfg, StateIndStdActorCfg
from rrf.policies.control.filtered_actor_configs import FilteredActorCfg
from rrf.presets.gymnasium import as_variant, pendulum_ppo
from rrf.runners.control.configs import OnPolicyRunnerCfg


def pendulum_moe() -> OnPolicyRunnerCfg:
    """A mixture of four experts on Pendulum-v1, of which two act in each state."""
    experts = plain_mlp([32, 32], "Tanh")
    backbone = MixtureOfExpertsCfg(
        hidden_features=experts.hidden_features, activations=experts.activations
    )
    return _with_backbone("pendulum-moe", backbone, auxiliary_coef=0.01)


def pendulum_vae() -> OnPolicyRunnerCfg:
    """An actor on Pendulum-v1 that reads the latent vector of an autoencoder."""
    reader = plain_mlp([64], "Tanh")
    backbone = VAEBackboneCfg(
        hidden_features=reader.hidden_features, activations=reader.activations, latent_dim=4
    )
    return _with_backbone("pendulum-vae", backbone, auxiliary_coef=0.1)


def pendulum_fft() -> OnPolicyRunnerCfg:
    """An actor on Pendulum-v1 whose actions pass a low-pass filter over the last eight steps."""
    base = pendulum_ppo()
    actor = FilteredActorCfg(backbone_cfg=base.policy.actor_cfg.backbone_cfg)
    return base.replace(
        experiment_name="pendulum-fft",
        policy=ActorCriticPackCfg(actor_cfg=actor, critic_cfg=base.policy.critic_cfg),
    )


def _with_backbone(name: str, backbone: MLPCfg, auxiliary_coef: float) -> OnPolicyRunnerCfg:
    base = pendulum_ppo()
    return base.replace(
        experiment_name=name,
        policy=ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(backbone_cfg=backbone),
            critic_cfg=base.policy.critic_cfg,
        ),
        algorithm=as_variant(base.algorithm, AuxiliaryPPOCfg, auxiliary_coef=auxiliary_coef),
    )
