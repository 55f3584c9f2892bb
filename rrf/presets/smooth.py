"""PPO variants with smooth actions on Pendulum-v1; other settings are those of `pendulum_ppo`."""

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.algorithms.smooth.configs import CAPSCfg, L2C2Cfg, LCPCfg, LipsCfg, LipsNetPPOCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import ActorCriticPackCfg, LipsNetActorCfg
from rrf.presets.gymnasium import as_variant, pendulum_ppo
from rrf.runners.control.configs import OnPolicyRunnerCfg


def pendulum_caps() -> OnPolicyRunnerCfg:
    """CAPS on Pendulum-v1: similar states shall lead to similar actions."""
    return _pendulum("pendulum-caps", CAPSCfg)


def pendulum_l2c2() -> OnPolicyRunnerCfg:
    """L2C2 on Pendulum-v1: a Lipschitz constraint between a state and the next."""
    return _pendulum("pendulum-l2c2", L2C2Cfg)


def pendulum_lips() -> OnPolicyRunnerCfg:
    """Lips on Pendulum-v1: a penalty on the Jacobian of the mean action."""
    cfg = _pendulum("pendulum-lips", LipsCfg)
    return cfg.replace(algorithm=cfg.algorithm.replace(jacobian_coef=7.5e-3))


def pendulum_lcp() -> OnPolicyRunnerCfg:
    """LCP on Pendulum-v1: a penalty on the gradient of the log-probability."""
    return _pendulum("pendulum-lcp", LCPCfg)


def pendulum_lipsnet() -> OnPolicyRunnerCfg:
    """LipsNet on Pendulum-v1: an actor that learns its own Lipschitz constant.

    It uses ReLU, because the bound is exact only for piecewise linear networks.
    """
    cfg = _pendulum("pendulum-lipsnet", LipsNetPPOCfg)
    actor = LipsNetActorCfg(backbone_cfg=plain_mlp([64, 64], "ReLU"))
    pack = ActorCriticPackCfg(actor_cfg=actor, critic_cfg=cfg.policy.critic_cfg)
    return cfg.replace(policy=pack)


def _pendulum(name: str, algorithm: type[PPOCfg]) -> OnPolicyRunnerCfg:
    base = pendulum_ppo()
    return base.replace(experiment_name=name, algorithm=as_variant(base.algorithm, algorithm))
