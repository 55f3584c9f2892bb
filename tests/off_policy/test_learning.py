"""Off-policy algorithms learn what they are published to learn, and those with a memory what the
others cannot."""

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

HIDDEN = plain_mlp([64, 64], "ReLU")
RATES = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}
PENDULUM = GymnasiumEnvCfg(task="Pendulum-v1")
HIDDEN_VELOCITY = PENDULUM.replace(hidden=[2], num_envs=4)
TEST_SEED = 1000


def pack(critic: type = QNetworkCfg, encoder=None) -> ActorQPackCfg:
    return ActorQPackCfg(
        actor_cfg=SACActorCfg(backbone_cfg=HIDDEN, encoder=encoder),
        critic_cfg=critic(backbone_cfg=HIDDEN, encoder=encoder),
    )


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


def test_sac_swings_the_pendulum_up():
    algorithm = SACCfg(gamma=0.95, warmup_steps=500, **RATES)
    assert learn(PENDULUM, algorithm, pack(), 8000, target=-170) >= -200


def test_dsac_swings_the_pendulum_up():
    algorithm = DSACCfg(gamma=0.95, warmup_steps=500, **RATES)
    critic = DistributionalQCfg(backbone_cfg=HIDDEN, num_critics=1)
    policy = pack().replace(critic_cfg=critic)
    assert learn(PENDULUM, algorithm, policy, 20_000, target=-170) >= -200


def test_dsac_t_swings_the_pendulum_up():
    algorithm = DSACTCfg(gamma=0.95, warmup_steps=500, **RATES)
    policy = pack(DistributionalQCfg)
    assert learn(PENDULUM, algorithm, policy, 8000, target=-170) >= -200


def test_sac_balances_the_inverted_pendulum():
    cfg = GymnasiumEnvCfg(task="InvertedPendulum-v5")
    algorithm = SACCfg(warmup_steps=500, **RATES)
    assert learn(cfg, algorithm, pack(), 20_000, target=980) >= 950


def test_plain_sac_fails_where_the_velocity_is_hidden():
    algorithm = SACCfg(gamma=0.95, warmup_steps=1000, updates_per_step=0.25, **RATES)
    assert learn(HIDDEN_VELOCITY, algorithm, pack(), 40_000, target=-300) < -600


def test_recurrent_sac_infers_the_hidden_velocity():
    algorithm = SACSeqCfg(
        gamma=0.95, warmup_steps=1000, updates_per_step=0.25, sequence_length=16, **RATES
    )
    policy = pack(encoder=GRUEncoderCfg())
    assert learn(HIDDEN_VELOCITY, algorithm, policy, 40_000, target=-220) >= -300


def test_transformer_sac_infers_the_hidden_velocity():
    algorithm = SACTransCfg(gamma=0.95, warmup_steps=1000, updates_per_step=0.25, **RATES)
    policy = pack(encoder=TransformerEncoderCfg())
    assert learn(HIDDEN_VELOCITY, algorithm, policy, 40_000, target=-220) >= -300
