"""A G1 in three levels: the whole-body policy (System 0)."""

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.envs.humanoid.whole_body_configs import WholeBodyEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.runners.control.configs import OnPolicyRunnerCfg

_NETWORK = plain_mlp([256, 256, 128], "ELU")


def g1_whole_body_ppo() -> OnPolicyRunnerCfg:
    """A humanoid follows velocity, height and torso commands while its arms move (AMO-like)."""
    return OnPolicyRunnerCfg(
        experiment_name="g1-whole-body-ppo",
        env=WholeBodyEnvCfg(num_envs=512, physics="fast", histories="short"),
        policy=ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(
                backbone_cfg=_NETWORK, observation_groups=["actor", "history"], init_std=0.8
            ),
            critic_cfg=VNetworkCfg(backbone_cfg=_NETWORK, observation_groups=["critic", "history"]),
        ),
        algorithm=PPOCfg(
            entropy_coef=0.003,
            learning_rate=1e-3,
            desired_kl=0.01,
            num_learning_epochs=4,
            precision="auto",
        ),
        num_steps_per_env=24,
        max_iterations=1500,
    )
