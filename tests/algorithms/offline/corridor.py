"""A dataset of random walks in the corridor, and small complete configs of every algorithm."""

import numpy as np

from rrf.algorithms.offline.configs import CloningCfg, CQLCfg, IQLCfg, TD3BCCfg
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.schema import Episode, Schema, Vector
from rrf.networks import plain_mlp
from rrf.policies.control.configs import VNetworkCfg
from rrf.policies.control.off_policy_configs import ActorQPackCfg, QNetworkCfg, SACActorCfg
from rrf.policies.control.offline_configs import (
    ActorPackCfg,
    BoundedActorCfg,
    BoundedActorQPackCfg,
    IQLPackCfg,
)
from rrf.runners.control.off_policy_configs import OfflineRunnerCfg
from tests.envs.toy import CorridorCfg

SCHEMA = Schema(
    10, (0, 0), (), Vector(("position",), "m"), Vector(("velocity",), "1"),
    has_success=False, has_terminated=True,
)  # fmt: skip
SMALL = plain_mlp([32, 32], "ReLU")
_BOTH = {"backbone_cfg": SMALL, "obs_normalization": True}
_CRITIC = QNetworkCfg(observation_groups=["policy"], **_BOTH)
_RATES = {"actor_lr": 3e-3, "critic_lr": 3e-3, "batch_size": 64, "gamma": 0.9, "tau": 0.02}
ALGORITHMS = {
    "cloning": (
        CloningCfg(actor_lr=3e-3, batch_size=64),
        ActorPackCfg(actor_cfg=BoundedActorCfg(**_BOTH)),
    ),
    "td3_bc": (
        TD3BCCfg(alpha=40.0, **_RATES),  # little is worth imitating here
        BoundedActorQPackCfg(
            actor_cfg=BoundedActorCfg(is_deterministic=True, **_BOTH), critic_cfg=_CRITIC
        ),
    ),
    "iql": (
        IQLCfg(value_lr=3e-3, expectile=0.9, beta=10.0, **_RATES),
        IQLPackCfg(
            actor_cfg=BoundedActorCfg(**_BOTH),
            critic_cfg=_CRITIC,
            value_cfg=VNetworkCfg(backbone_cfg=SMALL),
        ),
    ),
    "cql": (
        CQLCfg(cql_alpha=0.5, alpha_lr=3e-3, init_alpha=0.1, **_RATES),
        ActorQPackCfg(actor_cfg=SACActorCfg(**_BOTH), critic_cfg=_CRITIC),
    ),
}


def walk(rng: np.random.Generator, number: int, length: int = 10) -> Episode:
    """An episode of uniformly random velocities."""
    position, states, actions, rewards, terminated = rng.uniform(-1, 0), [], [], [], []
    for _ in range(length):
        action = rng.uniform(-1, 1)
        states.append([position])
        actions.append([action])
        position += 0.2 * action
        rewards.append(-abs(position - 1))
        terminated.append(position < -2)
        if terminated[-1]:
            break
    return Episode(
        images={},
        state=np.array(states, np.float32),
        action=np.array(actions, np.float32),
        instruction="walk to 1",
        source=f"corridor:{number}",
        reward=np.array(rewards, np.float32),
        terminated=np.array(terminated),
    )


def record(root, num_episodes: int = 200):
    """The dataset of so many walks."""
    rng = np.random.default_rng(0)
    write_dataset(root, SCHEMA, (walk(rng, number) for number in range(num_episodes)))
    return root


def run_cfg(name: str, dataset, **changes) -> OfflineRunnerCfg:
    """A short run of the named algorithm."""
    algorithm, policy = ALGORITHMS[name]
    defaults = {
        "env": CorridorCfg(num_envs=4),
        "dataset": str(dataset),
        "policy": policy,
        "algorithm": algorithm,
        "updates_per_iteration": 120,
        "num_steps_per_env": 10,
        "max_iterations": 4,
        "save_interval": 2,
        "replay_size": 400,
    }
    return OfflineRunnerCfg(**(defaults | changes))
