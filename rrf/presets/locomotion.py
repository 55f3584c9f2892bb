"""Walking robots at commanded velocities: mjlab's tasks, networks and reward weights.

Sized for two CPU cores (512 environments, native MuJoCo). On a GPU, mjlab itself steps them:
`rrf train go1-flat-ppo device=cuda:0 env.num_envs=4096 max_iterations=1500`.
"""

from rrf.algorithms.on_policy_configs import PPOCfg
from rrf.components.actor_configs import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.envs.control_configs import MjlabEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.runners.control_configs import OnPolicyRunnerCfg

_NETWORK = plain_mlp([512, 256, 128], "ELU")


def go1_flat_ppo() -> OnPolicyRunnerCfg:
    """A quadruped on flat ground."""
    return _velocity("go1-flat-ppo", "Flat-Unitree-Go1", max_iterations=300)


def go1_rough_ppo() -> OnPolicyRunnerCfg:
    """A quadruped on stairs, slopes and rubble."""
    return _velocity("go1-rough-ppo", "Rough-Unitree-Go1", max_iterations=1500)


def g1_flat_ppo() -> OnPolicyRunnerCfg:
    """A humanoid on flat ground."""
    return _velocity("g1-flat-ppo", "Flat-Unitree-G1", max_iterations=1500)


def g1_rough_ppo() -> OnPolicyRunnerCfg:
    """A humanoid on stairs, slopes and rubble."""
    return _velocity("g1-rough-ppo", "Rough-Unitree-G1", max_iterations=3000)


def _velocity(name: str, task: str, max_iterations: int) -> OnPolicyRunnerCfg:
    return OnPolicyRunnerCfg(
        experiment_name=name,
        env=MjlabEnvCfg(task=f"Mjlab-Velocity-{task}", num_envs=512),
        policy=ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(backbone_cfg=_NETWORK),
            critic_cfg=VNetworkCfg(backbone_cfg=_NETWORK),
        ),
        algorithm=PPOCfg(entropy_coef=0.01, learning_rate=1e-3, desired_kl=0.01),
        num_steps_per_env=24,
        max_iterations=max_iterations,
    )
