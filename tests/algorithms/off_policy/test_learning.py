"""Off-policy algorithms learn what they are published to learn, and those with a memory what the
others cannot.

`make test` lets each of them learn a tiny task (SAC: `test_off_policy_runner.py`); in
`make test-all` they learn the pendulum, those with a memory one whose velocity is hidden.
"""

import pytest
import torch

from rrf.algorithms import DSACCfg, DSACTCfg, SACCfg, SACSeqCfg, SACTransCfg
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.networks import plain_mlp
from rrf.policies import (
    ActorQPackCfg,
    DistributionalQCfg,
    GRUEncoderCfg,
    QNetworkCfg,
    SACActorCfg,
    TransformerEncoderCfg,
)
from rrf.storage.rollout import ControlStep
from tests.algorithms.off_policy.recall import RecallCfg
from tests.envs.toy import CorridorCfg

HIDDEN = plain_mlp([64, 64], "ReLU")
RATES = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}
PENDULUM = GymnasiumEnvCfg(task="Pendulum-v1")
HIDDEN_VELOCITY = PENDULUM.replace(hidden=[2], num_envs=4)
TEST_SEED = 1000
SMALL = plain_mlp([32, 32], "ReLU")
TINY = {
    "init_alpha": 0.1,
    "warmup_steps": 200,
    "updates_per_step": 0.25,
    "actor_lr": 3e-3,
    "critic_lr": 3e-3,
    "alpha_lr": 3e-3,
}


def pack(critic: type = QNetworkCfg, encoder=None, hidden=HIDDEN) -> ActorQPackCfg:
    return ActorQPackCfg(
        actor_cfg=SACActorCfg(backbone_cfg=hidden, encoder=encoder),
        critic_cfg=critic(backbone_cfg=hidden, encoder=encoder),
    )


ONE_DISTRIBUTION = DistributionalQCfg(backbone_cfg=SMALL, num_critics=1)


def greedy_return(cfg: GymnasiumEnvCfg, policy, seed: int, num_episodes: int = 20) -> float:
    """Mean return of the greedy policy in its first episode from each of `num_episodes` starts."""
    env = cfg.replace(num_envs=num_episodes).build(seed=seed, device="cpu")
    acting, observations = policy.deployable(), env.get_observations()
    returns, runs = torch.zeros(num_episodes), torch.ones(num_episodes, dtype=torch.bool)
    while runs.any():
        observations, rewards, dones, _ = env.step(acting.act(observations))
        returns += rewards * runs
        runs &= ~dones
        acting.reset(dones)
    return returns.mean().item()


def learn(cfg: GymnasiumEnvCfg, algorithm_cfg, policy_cfg, num_steps: int, target: float) -> float:
    """Train for `num_steps` transitions, or until 20 episodes reach `target`; then the return of 20
    others."""
    env = cfg.build(seed=0, device="cpu")
    torch.manual_seed(0)
    policy = policy_cfg.build(env.interface)
    generator = torch.Generator().manual_seed(0)
    algorithm = algorithm_cfg.build(policy, cfg.num_envs, 100_000, generator)
    observations = env.get_observations()
    for seen in range(cfg.num_envs, num_steps + 1, cfg.num_envs):
        actions = algorithm.act(observations)
        step = ControlStep.of(observations, actions, env.step(actions))
        algorithm.observe(step)
        observations = step.next_observations
        algorithm.update()
        if seen % 1000 == 0 and greedy_return(cfg, policy, seed=1) >= target:
            break
    return greedy_return(cfg, policy, TEST_SEED)


@pytest.mark.parametrize(
    ("algorithm", "policy"),
    [
        (DSACCfg, pack(hidden=SMALL).replace(critic_cfg=ONE_DISTRIBUTION)),
        (DSACTCfg, pack(DistributionalQCfg, hidden=SMALL)),
    ],
)
def test_the_end_of_a_corridor_is_reached(algorithm, policy):
    cfg = algorithm(gamma=0.9, batch_size=64, **TINY)
    # Standing still returns -16.2, the best there is -5.85.
    assert learn(CorridorCfg(num_envs=4), cfg, policy, 2000, target=-6.0) >= -9.0


@pytest.mark.slow
def test_sac_swings_the_pendulum_up():
    algorithm = SACCfg(gamma=0.95, warmup_steps=500, **RATES)
    assert learn(PENDULUM, algorithm, pack(), 8000, target=-170) >= -200


@pytest.mark.slow
def test_dsac_swings_the_pendulum_up():
    algorithm = DSACCfg(gamma=0.95, warmup_steps=500, **RATES)
    critic = DistributionalQCfg(backbone_cfg=HIDDEN, num_critics=1)
    policy = pack().replace(critic_cfg=critic)
    assert learn(PENDULUM, algorithm, policy, 20_000, target=-170) >= -200


@pytest.mark.slow
def test_dsac_t_swings_the_pendulum_up():
    algorithm = DSACTCfg(gamma=0.95, warmup_steps=500, **RATES)
    policy = pack(DistributionalQCfg)
    assert learn(PENDULUM, algorithm, policy, 8000, target=-170) >= -200


@pytest.mark.slow
def test_sac_balances_the_inverted_pendulum():
    cfg = GymnasiumEnvCfg(task="InvertedPendulum-v5")
    algorithm = SACCfg(warmup_steps=500, **RATES)
    assert learn(cfg, algorithm, pack(), 20_000, target=980) >= 950


def test_plain_sac_cannot_answer_with_what_it_saw_once():
    algorithm = SACCfg(gamma=0.5, batch_size=64, **TINY)
    # Always the middle costs 7 * 0.8 ** 2 = 4.5.
    assert learn(RecallCfg(), algorithm, pack(hidden=SMALL), 2000, target=-0.1) < -4.0


def test_recurrent_sac_answers_with_what_it_saw_once():
    algorithm = SACSeqCfg(gamma=0.5, batch_size=16, sequence_length=8, burn_in=4, stride=4, **TINY)
    policy = pack(encoder=GRUEncoderCfg(hidden_size=16), hidden=SMALL)
    # Below the cost of a single answer that was forgotten, 0.8 ** 2.
    assert learn(RecallCfg(), algorithm, policy, 2000, target=-0.1) >= -0.5


@pytest.mark.slow
def test_transformer_sac_answers_with_what_it_saw_once():
    algorithm = SACTransCfg(gamma=0.5, batch_size=16, sequence_length=4, burn_in=4, **TINY)
    encoder = TransformerEncoderCfg(num_layers=1, width=16, num_heads=2, context=8)
    policy = pack(encoder=encoder, hidden=SMALL)  # the last answer needs its longest look back
    assert learn(RecallCfg(), algorithm, policy, 2000, target=-0.1) >= -0.5


@pytest.mark.slow
def test_plain_sac_fails_where_the_velocity_is_hidden():
    algorithm = SACCfg(gamma=0.95, warmup_steps=1000, updates_per_step=0.25, **RATES)
    assert learn(HIDDEN_VELOCITY, algorithm, pack(), 40_000, target=-300) < -600


@pytest.mark.slow
def test_recurrent_sac_infers_the_hidden_velocity():
    algorithm = SACSeqCfg(
        gamma=0.95, warmup_steps=1000, updates_per_step=0.25, sequence_length=16, **RATES
    )
    policy = pack(encoder=GRUEncoderCfg())
    assert learn(HIDDEN_VELOCITY, algorithm, policy, 40_000, target=-220) >= -300


@pytest.mark.slow
def test_transformer_sac_infers_the_hidden_velocity():
    algorithm = SACTransCfg(gamma=0.95, warmup_steps=1000, updates_per_step=0.25, **RATES)
    policy = pack(encoder=TransformerEncoderCfg())
    assert learn(HIDDEN_VELOCITY, algorithm, policy, 40_000, target=-220) >= -300
