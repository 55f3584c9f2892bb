"""Pendulum-v1 whose angle is seen at every step, and whose angular velocity every ten steps.

An iteration has 1,000 transitions; a run has 20,000, from four environments.
"""

import typing

from rrf.algorithms.off_policy.configs import SACBeliefCfg, SACCfg
from rrf.envs.gymnasium.configs import SlowSensorEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.belief_configs import BeliefFlowCfg, GRUDCfg
from rrf.policies.control.off_policy_configs import (
    ActorQPackCfg,
    QNetworkCfg,
    SACActorCfg,
    SequenceEncoderCfg,
)
from rrf.runners.control.off_policy_configs import OffPolicyRunnerCfg

_SMALL = plain_mlp([64, 64], "ReLU")
_LEARNING: dict[str, typing.Any] = {
    **{"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3},
    **{"gamma": 0.95, "warmup_steps": 1000, "updates_per_step": 0.25},
}


def pendulum_belief_flow() -> OffPolicyRunnerCfg:
    """SAC with a belief that predicts at every step and corrects where the velocity is seen."""
    encoder = BeliefFlowCfg(num_fast=2, num_slow=1)
    return _run("pendulum-belief-flow", SACBeliefCfg(sequence_length=16, **_LEARNING), encoder)


def pendulum_gru_d() -> OffPolicyRunnerCfg:
    """SAC with GRU-D, trained by the same losses."""
    encoder = GRUDCfg(num_fast=2, num_slow=1)
    return _run("pendulum-gru-d", SACBeliefCfg(sequence_length=16, **_LEARNING), encoder)


def pendulum_hold() -> OffPolicyRunnerCfg:
    """SAC without a memory: the policy reads the velocity that was seen last, and its age."""
    return _run("pendulum-hold", SACCfg(**_LEARNING), None)


def _run(name: str, algorithm: SACCfg, encoder: SequenceEncoderCfg | None) -> OffPolicyRunnerCfg:
    return OffPolicyRunnerCfg(
        experiment_name=name,
        env=SlowSensorEnvCfg(task="Pendulum-v1", num_envs=4, slow=[2], slow_interval=10),
        policy=ActorQPackCfg(
            actor_cfg=SACActorCfg(backbone_cfg=_SMALL, encoder=encoder),
            critic_cfg=QNetworkCfg(backbone_cfg=_SMALL, encoder=encoder),
        ),
        algorithm=algorithm,
        num_steps_per_env=250,
        max_iterations=20,
        save_interval=5,
        num_checkpoints_kept=1,
        replay_size=20_000,
    )
