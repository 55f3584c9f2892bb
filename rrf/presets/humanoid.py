"""A G1 in three levels: the whole-body policy (System 0)."""

from rrf.algorithms.on_policy.configs import PPOCfg, SymmetryCfg
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.humanoid.motion_configs import MotionTrackingEnvCfg
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.runners.control.configs import OnPolicyRunnerCfg

_NETWORK = plain_mlp([256, 256, 128], "ELU")


def g1_whole_body_ppo() -> OnPolicyRunnerCfg:
    """A humanoid follows velocity, height and torso commands while its arms move (AMO-like)."""
    env = WholeBodyEnvCfg(num_envs=1024, physics="fast", histories="none", first_level=0.0)
    return _trained(
        "g1-whole-body-ppo", env, SymmetryCfg(mirrors="rrf.algorithms.mirrors:whole_body")
    )


def g1_tracking_ppo() -> OnPolicyRunnerCfg:
    """A humanoid follows motion clips, from what it can measure itself (Sonic-like)."""
    return _trained("g1-tracking-ppo", MotionTrackingEnvCfg(num_envs=1024, physics="fast"), None)


def _trained(name: str, env: ControlEnvCfg, symmetry: SymmetryCfg | None) -> OnPolicyRunnerCfg:
    return OnPolicyRunnerCfg(
        experiment_name=name,
        env=env,
        policy=ActorCriticPackCfg(
            # Robots that are stiff fall over noise that is small for others: 0.3 are 0.075 rad.
            actor_cfg=StateIndStdActorCfg(backbone_cfg=_NETWORK, init_std=0.3, min_std=0.12),
            critic_cfg=VNetworkCfg(backbone_cfg=_NETWORK),
        ),
        algorithm=PPOCfg(
            learning_rate=1e-4,  # where it starts: with more, the first step ruins an `init_from`
            entropy_coef=0.0,
            desired_kl=0.02,
            num_learning_epochs=4,
            symmetry_cfg=symmetry,
            precision="auto",
        ),
        num_steps_per_env=24,
        max_iterations=1500,
    )
