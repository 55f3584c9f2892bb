"""Small complete configs of the model-based algorithms, on a corridor to walk along."""

from rrf.algorithms.model_based.configs import EnsembleCfg, MBPOCfg, ModelPPOCfg
from rrf.networks import plain_mlp
from rrf.policies import ActorQPackCfg, QNetworkCfg, SACActorCfg
from rrf.policies.control.configs import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.runners import OffPolicyRunnerCfg, OnPolicyRunnerCfg
from tests.envs.toy import CorridorCfg

SMALL = plain_mlp([16, 16], "ReLU")
MODEL = EnsembleCfg(
    num_members=3,
    num_elites=2,
    network_cfg=plain_mlp([16], "SiLU"),
    weight_decays=[1e-5, 1e-5],
    batch_size=32,
    max_updates=60,
    learning_rate=5e-3,
)
MBPO = MBPOCfg(
    gamma=0.9,
    batch_size=32,
    actor_lr=3e-3,
    critic_lr=3e-3,
    alpha_lr=3e-3,
    init_alpha=0.1,
    warmup_steps=40,
    updates_per_step=0.5,
    train_interval=40,
    branches_per_training=50,
    branch_schedule=(0, 100, 1, 3),
    real_fraction=0.25,
    model_cfg=MODEL,
)
MODEL_PPO = ModelPPOCfg(
    num_mini_batches=2,
    num_learning_epochs=2,
    learner_threads=1,
    normalize_rewards=True,
    model_cfg=MODEL,
    warmup_iterations=1,
    branches_per_iteration=20,
    branch_length=4,
)
_ACTOR_Q = ActorQPackCfg(
    actor_cfg=SACActorCfg(backbone_cfg=SMALL),
    critic_cfg=QNetworkCfg(backbone_cfg=SMALL, observation_groups=["policy"]),
)
_ACTOR_CRITIC = ActorCriticPackCfg(
    actor_cfg=StateIndStdActorCfg(backbone_cfg=SMALL),
    critic_cfg=VNetworkCfg(backbone_cfg=SMALL, observation_groups=["policy"]),
)


def mbpo_run(**changes) -> OffPolicyRunnerCfg:
    """4 environments, 4 iterations of 40 transitions."""
    defaults = {
        "env": CorridorCfg(num_envs=4),
        "policy": _ACTOR_Q,
        "algorithm": MBPO,
        "num_steps_per_env": 10,
        "max_iterations": 4,
        "save_interval": 2,
        "replay_size": 400,
    }
    return OffPolicyRunnerCfg(**(defaults | changes))


def model_ppo_run(**changes) -> OnPolicyRunnerCfg:
    """4 environments, 4 iterations of 40 transitions."""
    defaults = {
        "env": CorridorCfg(num_envs=4),
        "policy": _ACTOR_CRITIC,
        "algorithm": MODEL_PPO,
        "num_steps_per_env": 10,
        "max_iterations": 4,
        "save_interval": 2,
    }
    return OnPolicyRunnerCfg(**(defaults | changes))
