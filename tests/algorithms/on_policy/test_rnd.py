import pytest
import torch
from tensordict import TensorDict

from rrf.algorithms import PPOCfg, RNDCfg
from rrf.networks import plain_mlp
from rrf.storage.rollout import ControlStep
from tests.algorithms.on_policy import linear
from tests.envs.toy import CorridorCfg

SMALL = plain_mlp([16], "Tanh")


def learner(num_envs=2, num_steps=3, **settings):
    torch.manual_seed(0)
    cfg = PPOCfg(rnd_cfg=RNDCfg(network_cfg=SMALL, num_features=8, **settings))
    return linear.algorithm(cfg, linear.policy([[1.0]]), num_envs, num_steps)


def observed(*rows):
    return TensorDict({"policy": torch.tensor(rows).unsqueeze(-1)}, batch_size=[len(rows)])


def step(following, dones=(False, False), final=None):
    return ControlStep(
        observed(0.0, 0.0),
        torch.zeros(2, 1),
        torch.tensor([10.0, 20.0]),
        torch.tensor(dones),
        torch.tensor([False, False]),
        following,
        final,
    )


def test_more_mini_batches_than_samples_are_refused():
    with pytest.raises(ValueError, match=r"rnd_cfg\.num_mini_batches is 7, allowed: up to 6"):
        learner(num_mini_batches=7)


def test_what_was_seen_often_earns_less_than_what_is_new():
    algorithm = learner(num_envs=64, num_steps=1, learning_rate=1e-2, num_mini_batches=8)
    rnd = algorithm.extensions["rnd"]
    seen = observed(*torch.linspace(-1, 0, 64).tolist())
    for _ in range(40):
        rnd.rewards(step_of(seen), torch.zeros(64))
        rnd.learn()
    with torch.no_grad():
        known = rnd.errors(seen["policy"]).mean()
        new = rnd.errors(torch.linspace(1, 2, 64).unsqueeze(-1)).mean()
    assert new > 10 * known


def step_of(following):
    count = len(following)
    return ControlStep(
        following,
        torch.zeros(count, 1),
        torch.zeros(count),
        torch.zeros(count, dtype=torch.bool),
        torch.zeros(count, dtype=torch.bool),
        following,
        None,
    )


def test_intrinsic_reward_is_weighted_and_added():
    algorithm = learner(weight=0.5)
    rnd = algorithm.extensions["rnd"]
    rewards = algorithm.rewards(step(observed(1.0, 2.0)))
    with torch.no_grad():
        errors = rnd.errors(torch.tensor([[1.0], [2.0]]))
    # The scaler's statistics after one step are those of the two errors themselves.
    std = (errors - errors.mean()).square().mean().sqrt()
    expected = torch.tensor([10.0, 20.0]) + 0.5 * errors / std
    torch.testing.assert_close(rewards, expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(rnd.intrinsic_rewards, 0.5 * errors / std, rtol=1e-4, atol=0)


def test_an_episodes_last_state_counts_and_not_the_next_ones_first():
    algorithm = learner()
    rnd = algorithm.extensions["rnd"]
    rnd.rewards(step(observed(1.0, 2.0), (False, True), observed(7.0)), torch.zeros(2))
    assert rnd._seen[0].squeeze(-1).tolist() == [1.0, 7.0]


def test_weight_moves_in_a_straight_line():
    rnd = learner(weight=1.0, final_weight=0.2, num_weight_iterations=4).extensions["rnd"]
    weights = []
    for _ in range(6):
        rnd.rewards(step(observed(1.0, 2.0)), torch.zeros(2))
        weights.append(rnd.learn()["rnd/weight"])
    assert weights == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_state_goes_into_the_checkpoint_and_back():
    env = CorridorCfg(num_envs=2).build()
    first, second = learner(), learner()
    first.update(linear.fill(first, env)[-1])
    tensors, facts = first.state()
    second.load_state(tensors, facts)
    for name, value in first.state()[0].items():
        assert torch.equal(value, second.state()[0][name]), name
    assert second.extensions["rnd"].num_updates == 1


def test_the_random_network_is_never_trained():
    algorithm = learner()
    before = [value.clone() for value in algorithm.extensions["rnd"].target.parameters()]
    env = CorridorCfg(num_envs=2).build()
    metrics = algorithm.update(linear.fill(algorithm, env)[-1])
    assert metrics["loss/rnd"] > 0
    for value, kept in zip(algorithm.extensions["rnd"].target.parameters(), before, strict=True):
        assert torch.equal(value, kept)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"RND reads observation group 'polcy'.*'policy'\?"):
        learner(observation_groups=["polcy"])
    with pytest.raises(ValueError, match=r"weight is -1.0"):
        RNDCfg(weight=-1.0)
