"""An expert in the corridor: it walks to 1 and stays there."""

import numpy as np

from rrf.algorithms import DiscriminatorCfg, GAILCfg
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.schema import Episode
from rrf.networks import plain_mlp
from rrf.policies import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.runners import ImitationRunnerCfg
from tests.algorithms.offline.corridor import SCHEMA
from tests.envs.toy import CorridorCfg

SMALL = plain_mlp([16, 16], "Tanh")
EXPERTS_RETURN = -5.85


def walk(rng: np.random.Generator, number: int, length: int = 11) -> Episode:
    """An episode of the expert, with the frame after the time limit."""
    position, states, actions = rng.uniform(-1, 0), [], []
    for _ in range(length):
        states.append([position])
        actions.append([float(np.clip((1 - position) / 0.2, -1, 1))])
        position += 0.2 * actions[-1][0]
    return Episode(
        images={},
        state=np.array(states, np.float32),
        action=np.array(actions, np.float32),
        instruction="walk to 1",
        source=f"corridor:{number}",
        reward=-np.abs(np.array(states, np.float32)[:, 0] - 1),
        terminated=np.zeros(length, bool),
    )


def record(root, num_episodes: int = 8):
    """The dataset of so many walks."""
    rng = np.random.default_rng(0)
    write_dataset(root, SCHEMA, (walk(rng, number) for number in range(num_episodes)))
    return root


def run_cfg(dataset, **changes) -> ImitationRunnerCfg:
    """A short run; keywords that are fields of GAILCfg change the algorithm."""
    own = {key: changes.pop(key) for key in set(changes) & set(vars(GAILCfg()))}
    defaults = {
        "env": CorridorCfg(num_envs=16),
        "dataset": str(dataset),
        "policy": ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(backbone_cfg=SMALL, init_std=0.5),
            critic_cfg=VNetworkCfg(backbone_cfg=SMALL),
        ),
        "algorithm": GAILCfg(
            discriminator_cfg=DiscriminatorCfg(network_cfg=SMALL, learning_rate=3e-3),
            **{
                "num_learning_epochs": 5,
                "num_mini_batches": 4,
                "learning_rate": 3e-3,
                "schedule": "fixed",
                "entropy_coef": 0.0,
                "gamma": 0.9,
                "learner_threads": 1,
            }
            | own,
        ),
        "num_steps_per_env": 20,
        "max_iterations": 4,
        "save_interval": 2,
    }
    return ImitationRunnerCfg(**(defaults | changes))
