import math
import shutil

import pytest
import torch

from rrf.algorithms import PPOCfg, SAPGCfg
from rrf.algorithms.on_policy.losses import value_errors
from rrf.algorithms.on_policy.sapg import (
    LOG_CENTER,
    SOURCE,
    centered_surrogate,
    log_importance,
    one_step_returns,
)
from rrf.compiled import ppo as compiled_ppo
from rrf.policies import ActorCriticPackCfg, PopulationPackCfg, StateIndStdActorCfg
from rrf.runners import OnPolicyRunnerCfg, SAPGOnPolicyRunnerCfg
from tests.algorithms.on_policy import linear, populations
from tests.envs.toy import CorridorCfg

CORRIDOR = CorridorCfg(num_envs=6, length=4)


def learner(cfg=None, **settings):
    policy = populations.population(width=1, **settings)
    return populations.learner(cfg or SAPGCfg(), policy, num_envs=6, num_steps=5)


def test_clipping_is_centred_where_the_leader_was():
    # The leader was half as likely (mu = 0.5) to choose it, and is 0.7 times as likely now; with
    # clip 0.2 that is more than 0.6. A gain counts to there, a loss fully.
    log_ratio, log_center = torch.tensor([0.7, 0.7]).log(), torch.tensor([0.5, 0.5]).log()
    losses = centered_surrogate(log_ratio, log_center, torch.tensor([2.0, -2.0]), 0.2)
    assert losses.tolist() == pytest.approx([-1.2, 1.4])


def test_what_the_leader_would_never_do_does_not_count():
    # Its log-probability was 1000 below the follower's and rose by 900: nothing, and not 0 * inf.
    log_ratio = torch.tensor([-100.0], requires_grad=True)
    losses = centered_surrogate(log_ratio, torch.tensor([-1000.0]), torch.ones(1), 0.2)
    losses.sum().backward()
    assert losses.item() == log_ratio.grad.item() == 0.0


def test_importance_is_capped():
    found = log_importance(torch.tensor([0.2, 0.9]).log(), torch.tensor([0.4, 0.1]).log(), 2.0)
    assert found.exp().tolist() == pytest.approx([0.5, 2.0])


def test_importance_makes_follower_samples_speak_for_the_leader():
    # A bandit that pays a^2: the leader N(0, 1) earns 1 on average. Its follower is N(1, 1.5).
    follower, leader = torch.distributions.Normal(1.0, 1.5), torch.distributions.Normal(0.0, 1.0)
    torch.manual_seed(0)
    actions = follower.sample((200_000,))
    log_mu = log_importance(leader.log_prob(actions), follower.log_prob(actions), math.inf)
    assert (log_mu.exp() * actions.square()).mean().item() == pytest.approx(1.0, abs=0.02)
    assert actions.square().mean().item() == pytest.approx(3.25, abs=0.05)


def test_one_step_returns_by_hand():
    # Going on: 1 + 0.5 * 4. Terminated: 1. Cut off where V is 6: 1 + 0.5 * 6.
    found = one_step_returns(
        torch.ones(3),
        torch.tensor([4.0, 100.0, 100.0]),
        torch.tensor([False, True, True]),
        torch.tensor([0.0, 0.0, 6.0]),
        0.5,
    )
    assert found.tolist() == [3.0, 1.0, 4.0]


def test_environments_are_split_into_blocks():
    sapg = learner()
    assert sapg.members.tolist() == [0, 0, 1, 1, 2, 2]
    linear.fill(sapg, CORRIDOR.build())
    assert sapg.rollout["actor_obs"][:-1, :, -1].unique(dim=0).tolist() == [[0, 0, 1, 1, 2, 2]]
    _, ended, final = sapg.rollout.finals[0]
    assert final["member"].squeeze(-1).tolist() == ended.div(2, rounding_mode="floor").tolist()


def test_the_leader_takes_over_as_many_steps_as_it_took():
    sapg = learner(SAPGCfg(off_policy_ratio=1.0, gamma=0.9))
    material = sapg.returns(linear.fill(sapg, CORRIDOR.build())[-1])
    assert len(material) == 30 + 10
    own, taken = slice(0, 30), slice(30, 40)
    assert material.extra[SOURCE][taken].tolist() == [3] * 10
    assert material.extra[LOG_CENTER][own].abs().max() == 0
    assert material.actor_obs[taken, -1].abs().max() == 0  # all bear the leader's number
    assert material.next_critic_obs[taken, -1].abs().max() == 0
    for row in range(30, 40):
        # Found again among the followers', by its observation and action.
        same = (material.actor_obs[own, 0] == material.actor_obs[row, 0]) & (
            material.actions[own, 0] == material.actions[row, 0]
        )
        original = same.nonzero().item()
        assert original % 6 >= 2
        distribution = sapg.policy.actor.distribution(sapg.policy.actor(material.actor_obs[row]))
        log_prob = distribution.log_prob(material.actions[row])
        torch.testing.assert_close(material.log_prob[row], log_prob.detach())
        log_mu = (log_prob - material.log_prob[original]).clamp(max=math.log(2.0))
        torch.testing.assert_close(material.extra[LOG_CENTER][row], log_mu.detach())


@pytest.mark.parametrize("scales", [False, True])
def test_taken_over_steps_are_worth_what_the_leader_makes_of_them(scales):
    sapg = learner(SAPGCfg(off_policy_ratio=2.0, gamma=0.9, normalize_rewards=scales))
    seen = linear.fill(sapg, CORRIDOR.build())
    critic, rollout = sapg.policy.critic, sapg.rollout
    rewards = rollout["rewards"].clone()
    material = sapg.returns(seen[-1])
    if scales:
        rewards = rewards / sapg.reward_scaler.statistics.std
    for row in range(30, 50):
        original = (material.critic_obs[:30, 0] == material.critic_obs[row, 0]).nonzero()[0].item()
        t, env = divmod(original, 6)
        with torch.no_grad():
            position = rollout["critic_obs"][t + 1, env, 0]
            if rollout["time_outs"][t, env]:
                _, ended, final = next(f for f in rollout.finals if f[0] == t)
                position = final["policy"][(ended == env).nonzero().item(), 0]
            coming = critic.value(torch.tensor([position, 0.0]))
            value = critic.value(material.critic_obs[row])
        torch.testing.assert_close(material.returns[row], rewards[t, env] + 0.9 * coming)
        torch.testing.assert_close(material.values[row], value)


def test_in_bfloat16_what_is_taken_over_is_judged_as_learning_computes_it():
    sapg = learner(SAPGCfg(off_policy_ratio=2.0, precision="bf16"))
    material = sapg.returns(linear.fill(sapg, CORRIDOR.build())[-1])
    _, metrics = sapg.actor_loss(material.rows(torch.arange(len(material))))
    assert metrics["policy/kl"].item() == 0.0
    assert metrics["policy/clip_fraction"].item() == 0.0


def test_advantages_are_normalised_for_each_member_by_itself():
    sapg = learner()
    material = sapg.returns(linear.fill(sapg, CORRIDOR.build())[-1])
    for source in range(4):
        advantages = material.advantages[material.extra[SOURCE] == source]
        assert advantages.mean().item() == pytest.approx(0.0, abs=1e-5)
        assert advantages.std().item() == pytest.approx(1.0, abs=1e-4)


def test_followers_are_paid_more_for_randomness():
    cfg = SAPGCfg(entropy_coef=0.1, follower_entropy_coef=0.4)
    sapg = learner(cfg)
    assert sapg.entropy_coefs.tolist() == pytest.approx([0.1, 0.3, 0.5])
    material = sapg.returns(linear.fill(sapg, CORRIDOR.build())[-1])
    batch = material.rows(torch.tensor([0, 2, 5]))  # members 0, 1 and 2
    bonus = sapg.entropy_bonus(batch, torch.tensor([3.0, 1.0, 2.0]))
    assert bonus.item() == pytest.approx((0.3 + 0.3 + 1.0) / 3)


def test_steps_taken_over_weigh_alike_in_both_losses():
    sapg = learner(SAPGCfg(off_policy_coef=0.25, num_mini_batches=1))
    batch = sapg.returns(linear.fill(sapg, CORRIDOR.build())[-1]).rows(torch.arange(40))
    plain = value_errors(batch.returns + 1, batch.values, batch.returns, sapg.cfg.clip_param)
    found = sapg.value_losses(batch, batch.returns + 1)
    expected = torch.where(batch.extra(SOURCE) == 3, 0.25, 1.0)
    assert set(expected.tolist()) == {0.25, 1.0}
    torch.testing.assert_close(found, expected * plain)


def test_what_the_leader_takes_over_was_seen_once():
    actor = StateIndStdActorCfg(backbone_cfg=populations.MLP, obs_normalization=True)
    sapg = learner(SAPGCfg(off_policy_ratio=2), actor_cfg=actor)
    after = linear.fill(sapg, CORRIDOR.build())[-1]
    seen = sapg.rollout["actor_obs"][:-1, ..., :-1].flatten(0, 1).clone()
    sapg.update(after)
    normalizer = sapg.policy.actor.normalizer.inner
    assert normalizer.count == len(seen) == 30
    torch.testing.assert_close(normalizer.mean, seen.mean(0))


def test_with_one_member_it_is_ppo_to_the_last_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_ppo, "library", lambda: None)  # whose rounding is another
    common = {
        "env": CORRIDOR,
        "num_steps_per_env": 6,
        "max_iterations": 4,
        "seed": 3,
    }
    nets = ActorCriticPackCfg()
    single = PopulationPackCfg(num_members=1)
    algorithm = {"num_mini_batches": 3, "entropy_coef": 0.02}
    ppo = OnPolicyRunnerCfg(**common, policy=nets, algorithm=PPOCfg(**algorithm))
    sapg = SAPGOnPolicyRunnerCfg(**common, policy=single, algorithm=SAPGCfg(**algorithm))
    results = []
    for name, cfg in (("ppo", ppo), ("sapg", sapg)):
        runner = cfg.build(tmp_path / name)
        runner.run()
        results.append(runner.policy.state_dict())
    assert results[0].keys() == results[1].keys()
    for name, value in results[0].items():
        assert torch.equal(value, results[1][name]), name


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    cfg = SAPGOnPolicyRunnerCfg(
        env=CORRIDOR,
        num_steps_per_env=6,
        max_iterations=4,
        save_interval=2,
        num_checkpoints_kept=9,
        policy=populations.pack(),
    )
    whole = cfg.build(tmp_path / "whole")
    whole.run()
    assert "rollout/return_leader" in whole.metrics
    shutil.copytree(tmp_path / "whole/global_step_2", tmp_path / "rest/global_step_2")
    rest = cfg.build(tmp_path / "rest")
    rest.run()
    for name, value in whole.policy.state_dict().items():
        assert torch.equal(value, rest.policy.state_dict()[name]), name
    for name in ("rollout/return_leader", "rollout/length_leader"):
        assert whole.metrics[name] == rest.metrics[name]


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"5 environments .* multiple"):
        populations.learner(SAPGCfg(), populations.population(), num_envs=5)
    with pytest.raises(ValueError, match="PopulationPackCfg"):
        linear.algorithm(SAPGCfg(), linear.policy([[1.0]]))
    with pytest.raises(ValueError, match=r"env.num_envs is 6, .* policy.num_members, which is 4"):
        SAPGOnPolicyRunnerCfg(env=CORRIDOR, policy=populations.pack(num_members=4))
    with pytest.raises(ValueError, match="normalize_advantage_per_mini_batch=false"):
        learner(SAPGCfg(normalize_advantage_per_mini_batch=True))
    with pytest.raises(ValueError, match=r"10 samples .* take over 1 of .* 20; allowed: 0, or fr"):
        learner(SAPGCfg(off_policy_ratio=0.1))
    with pytest.raises(ValueError, match=r"take over 0 of .* allowed: 0, or from 0.2 to 2"):
        learner(SAPGCfg(off_policy_ratio=0.04))
    with pytest.raises(ValueError, match=r"over 30 of .* 20; allowed: 0, or from 0.2 to 2"):
        learner(SAPGCfg(off_policy_ratio=3.0))
    few = {"num_envs": 3, "num_steps": 1}
    with pytest.raises(ValueError, match="1 sample of each member"):
        populations.learner(SAPGCfg(num_mini_batches=1), populations.population(), **few)
    with pytest.raises(ValueError, match=r"PPO trains one actor, .* a population of 3; use"):
        populations.learner(PPOCfg(), populations.population())
    with pytest.raises(ValueError, match=r"max_importance is 0.0"):
        SAPGCfg(max_importance=0.0)
