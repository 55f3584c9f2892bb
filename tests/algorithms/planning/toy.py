"""Small complete configs of the planning algorithms, on a corridor to walk along."""

from rrf.algorithms import TDMPC2Cfg, TDMPCCfg
from rrf.networks import normed_mlp, plain_mlp
from rrf.policies import PlannerCfg, WorldModelCfg, WorldModelPackCfg
from rrf.runners import PlanningRunnerCfg
from tests.envs.toy import CorridorCfg

PLANNER = PlannerCfg(num_samples=24, num_policy_samples=4, num_elites=8, iterations=3, horizon=3)
MODEL = WorldModelCfg(
    backbone_cfg=normed_mlp([32, 32]),
    encoder_backbone_cfg=normed_mlp([16]),
    latent_dim=16,
    num_critics=3,
    planner=PLANNER,
)
PLAIN_MODEL = MODEL.replace(
    backbone_cfg=plain_mlp([32, 32], "ELU"),
    encoder_backbone_cfg=plain_mlp([16], "ELU"),
    simnorm_group=None,
    num_bins=None,
    num_critics=2,
    policy_std=0.05,
    takes_lowest=True,
    init="orthogonal",
)
COMMON = {
    "gamma": 0.9,
    "batch_size": 32,
    "actor_lr": 3e-3,
    "critic_lr": 3e-3,
    "warmup_steps": 40,
    "pretraining_updates": 10,
    "updates_per_step": 0.1,
}
ALGORITHMS = {
    "tdmpc2": (TDMPC2Cfg(**COMMON), MODEL),
    "tdmpc": (TDMPCCfg(**COMMON), PLAIN_MODEL),
}


def run_cfg(name: str, **changes) -> PlanningRunnerCfg:
    """A short run of the named algorithm: 4 environments, 4 iterations of 40 transitions."""
    algorithm, model = ALGORITHMS[name]
    defaults = {
        "env": CorridorCfg(num_envs=4),
        "policy": WorldModelPackCfg(actor_cfg=model),
        "algorithm": algorithm,
        "num_steps_per_env": 10,
        "max_iterations": 4,
        "save_interval": 2,
        "replay_size": 400,
    }
    return PlanningRunnerCfg(**(defaults | changes))
