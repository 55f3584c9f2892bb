"""Small complete configs of every off-policy algorithm, on a corridor to walk along."""

from rrf.algorithms import DSACCfg, DSACTCfg, SACCfg, SACSeqCfg, SACTransCfg
from rrf.networks import plain_mlp
from rrf.policies import (
    ActorQPackCfg,
    DistributionalQCfg,
    GRUEncoderCfg,
    QNetworkCfg,
    SACActorCfg,
    TransformerEncoderCfg,
)
from rrf.runners import OffPolicyRunnerCfg
from tests.envs.toy import CorridorCfg

SMALL = plain_mlp([16, 16], "ReLU")
GRU = GRUEncoderCfg(hidden_size=8)
TRANSFORMER = TransformerEncoderCfg(num_layers=2, width=8, num_heads=2, context=8)
COMMON = {
    "actor_lr": 1e-3,
    "critic_lr": 1e-3,
    "alpha_lr": 1e-3,
    "warmup_steps": 40,
    "updates_per_step": 0.25,
}


def pack(critic: type = QNetworkCfg, encoder=None, num_critics: int = 2, **both) -> ActorQPackCfg:
    """Small networks."""
    both = {"backbone_cfg": SMALL, "encoder": encoder, **both}
    return ActorQPackCfg(
        actor_cfg=SACActorCfg(**both), critic_cfg=critic(num_critics=num_critics, **both)
    )


ALGORITHMS = {
    "sac": (SACCfg(batch_size=32, n_steps=3, **COMMON), pack()),
    "dsac": (DSACCfg(batch_size=32, **COMMON), pack(DistributionalQCfg, num_critics=1)),
    "dsact": (DSACTCfg(batch_size=32, **COMMON), pack(DistributionalQCfg)),
    "sac_seq": (
        SACSeqCfg(batch_size=4, sequence_length=6, burn_in=2, stride=4, **COMMON),
        pack(encoder=GRU),
    ),
    "sac_trans": (
        SACTransCfg(batch_size=4, sequence_length=4, burn_in=4, **COMMON),
        pack(encoder=TRANSFORMER),
    ),
}


def run_cfg(name: str, **changes) -> OffPolicyRunnerCfg:
    """A short run of the named algorithm: 4 environments, 3 iterations of 40 transitions."""
    algorithm, policy = ALGORITHMS[name]
    defaults = {
        "env": CorridorCfg(num_envs=4),
        "policy": policy,
        "algorithm": algorithm,
        "num_steps_per_env": 10,
        "max_iterations": 4,
        "save_interval": 2,
        "replay_size": 400,
    }
    return OffPolicyRunnerCfg(**(defaults | changes))
