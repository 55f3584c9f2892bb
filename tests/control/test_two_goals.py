"""Where one policy sticks to the small reward it starts with, a population finds the large one."""

import pytest

from rrf.algorithms import EPOCfg, PPOCfg, SAPGCfg
from rrf.components import (
    ActorCriticPackCfg,
    PopulationPackCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.networks import plain_mlp
from rrf.runners import EPOOnPolicyRunnerCfg, OnPolicyRunnerCfg, SAPGOnPolicyRunnerCfg
from tests.control.two_goals import LENGTH, TwoGoalsCfg, greedy_return

SEEDS = (1, 2, 3)
MLP = plain_mlp([32, 32], "Tanh")
NETWORKS = {
    "actor_cfg": StateIndStdActorCfg(backbone_cfg=MLP, init_std=0.5, obs_normalization=False),
    "critic_cfg": VNetworkCfg(backbone_cfg=MLP, obs_normalization=False),
}
LEARNING = {
    "num_learning_epochs": 4,
    "num_mini_batches": 2,
    "learning_rate": 3e-3,
    "schedule": "fixed",
    "gamma": 0.95,
    "learner_threads": 1,
}
POPULATION = LEARNING | {"follower_entropy_coef": 0.3}
COMMON = {
    "env": TwoGoalsCfg(num_envs=32),
    "num_steps_per_env": LENGTH,
    "max_iterations": 80,
    "save_interval": 80,
    "init_at_random_ep_len": False,
}


def ppo(seed):
    policy = ActorCriticPackCfg(**NETWORKS)
    return OnPolicyRunnerCfg(**COMMON, seed=seed, policy=policy, algorithm=PPOCfg(**LEARNING))


def sapg(seed):
    policy = PopulationPackCfg(**NETWORKS, num_members=4, latent_dim=8)
    return SAPGOnPolicyRunnerCfg(
        **COMMON, seed=seed, policy=policy, algorithm=SAPGCfg(**POPULATION)
    )


def epo(seed):
    policy = PopulationPackCfg(**NETWORKS, num_members=4, latent_dim=8, learn_latents=False)
    algorithm = EPOCfg(**POPULATION, evolution_interval=5, mutation_std=0.5)
    return EPOOnPolicyRunnerCfg(**COMMON, seed=seed, policy=policy, algorithm=algorithm)


def returns(make, tmp_path):
    """What the deployed policies earn, best first."""
    found = []
    for seed in SEEDS:
        runner = make(seed).build(tmp_path / f"{make.__name__}_{seed}")
        runner.run()
        found.append(greedy_return(runner.policy))
    return sorted(found, reverse=True)


def test_one_policy_sticks_to_the_small_reward(tmp_path):
    assert returns(ppo, tmp_path) == pytest.approx([3.0, 3.0, 3.0])


@pytest.mark.parametrize("make", [sapg, epo])
def test_a_populations_leader_finds_the_large_reward(make, tmp_path):
    # As many steps of the environment as the single policy had, by two seeds of three at least.
    assert returns(make, tmp_path)[1] > 15.0
