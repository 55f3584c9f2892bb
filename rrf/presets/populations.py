"""A task on which a single policy gets stuck at a small reward, but populations find the large one.

All three runs take the same number of environment steps.
"""

import typing

from rrf.algorithms.on_policy.configs import EPOCfg, PPOCfg, SAPGCfg
from rrf.envs.two_goals.configs import TwoGoalsEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import (
    ActorCriticPackCfg,
    PopulationPackCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.runners.control.configs import (
    EPOOnPolicyRunnerCfg,
    OnPolicyRunnerCfg,
    SAPGOnPolicyRunnerCfg,
)

_SMALL = plain_mlp([32, 32], "Tanh")
_NETWORKS: dict[str, typing.Any] = {
    "actor_cfg": StateIndStdActorCfg(backbone_cfg=_SMALL, init_std=0.5, obs_normalization=False),
    "critic_cfg": VNetworkCfg(backbone_cfg=_SMALL, obs_normalization=False),
}
_LEARNING: dict[str, typing.Any] = {
    "num_learning_epochs": 4,
    "num_mini_batches": 2,
    "learning_rate": 3e-3,
    "schedule": "fixed",
    "gamma": 0.95,
    "learner_threads": 1,
}
_POPULATION: dict[str, typing.Any] = _LEARNING | {"follower_entropy_coef": 0.3}


def two_goals_ppo() -> OnPolicyRunnerCfg:
    """PPO with a single policy, which gets stuck at the small reward."""
    return OnPolicyRunnerCfg(
        policy=ActorCriticPackCfg(**_NETWORKS),
        algorithm=PPOCfg(**_LEARNING),
        **_run("two-goals-ppo"),
    )


def two_goals_sapg() -> SAPGOnPolicyRunnerCfg:
    """SAPG: a leader that learns from three followers."""
    return SAPGOnPolicyRunnerCfg(
        policy=PopulationPackCfg(**_NETWORKS, num_members=4, latent_dim=8),
        algorithm=SAPGCfg(**_POPULATION),
        **_run("two-goals-sapg"),
    )


def two_goals_epo() -> EPOOnPolicyRunnerCfg:
    """EPO: a leader and three followers, which are bred."""
    return EPOOnPolicyRunnerCfg(
        policy=PopulationPackCfg(**_NETWORKS, num_members=4, latent_dim=8, learn_latents=False),
        algorithm=EPOCfg(**_POPULATION, evolution_interval=5, mutation_std=0.5),
        **_run("two-goals-epo"),
    )


def _run(name: str) -> dict[str, typing.Any]:
    return {
        "experiment_name": name,
        "env": TwoGoalsEnvCfg(num_envs=32),
        "num_steps_per_env": 30,
        "max_iterations": 80,
        "save_interval": 80,
        "init_at_random_ep_len": False,
    }
