"""Reinforcement learning of a policy in two parts, whose features are held between looks."""

import numpy as np
import pytest
import torch

from rrf.algorithms.vla.configs import GRPOCfg, VLAPPOCfg
from rrf.config import trust
from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.networks.configs import ImageEncoderCfg
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.orchestra.actor_group import plain_episode, played_episode
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.inline_run import build_runner, check_fit
from rrf.orchestra.rollout_role import RolloutRole
from rrf.policies import DiscreteTokenHeadCfg, FlowMatchingHeadCfg, GaussianHeadCfg
from rrf.policies.vla.configs import ValueHeadCfg
from rrf.policies.vla.psi0_configs import FastViewCfg, Psi0PolicyCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.vla_rl.preflight import check_log_probs
from tests.orchestra import toy
from tests.orchestra.conftest import assert_same, make_policy

WORDS = sorted({word for text in toy.INSTRUCTIONS.values() for word in text.split()})
POLICY = Psi0PolicyCfg(
    cameras=["top"],
    image_size=(16, 16),
    state_dim=2,
    action_dim=2,
    chunk_length=2,
    control_hz=10.0,
    backbone=MockBackboneCfg(
        tokenizer=TokenizerCfg(words=WORDS),
        image=ImageRuleCfg(size=(16, 16)),
        patch_size=8,
        hidden_size=16,
    ),
    head=GaussianHeadCfg(initial_std=0.5),
    feature_tokens=2,
    feature_width=8,
    feature_period=3,
    fast_view=FastViewCfg(
        image=ImageRuleCfg(size=(8, 8)),
        encoder=ImageEncoderCfg(
            channels=[4], kernel_sizes=[3], strides=[2], num_film_layers=1, out_features=8
        ),
    ),
)
HEADS = {
    "gaussian": GaussianHeadCfg(initial_std=0.5),
    "tokens": DiscreteTokenHeadCfg(num_bins=8),
    "flow": FlowMatchingHeadCfg(hidden_features=[16, 16]),
}


def played(policy, num_workers=1):
    trust("tests")
    env = toy.ToyCfg(num_envs=4, max_episode_steps=8)
    backend = InlineBackend(env, RolloutRole(policy, batch_rows=4), num_workers)
    try:
        return toy.play(backend)
    finally:
        backend.close()


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_log_probabilities_agree_at_the_ages_at_which_it_played(head, frozen):
    cfg = POLICY.replace(head=HEADS[head], freezes_system2=frozen, value_head=ValueHeadCfg())
    policy = make_policy(cfg, stats=toy.STATS)
    episodes = played(policy)
    for episode in episodes:
        ages = np.arange(len(episode)) % 3 * 2
        np.testing.assert_array_equal(episode.observation.seen_steps_ago, ages)
        np.testing.assert_allclose(episode.replay["feature_age_s"], ages / 10.0, atol=1e-6)
        shown, held = (episode.observation.images[view] for view in ("top", "top@seen"))
        np.testing.assert_array_equal(held, shown[np.arange(len(episode)) // 3 * 3])
        assert ("features" in episode.replay) == frozen
    assert max(map(len, episodes)) > 3
    facts = check_log_probs(policy, make_policy(cfg, stats=toy.STATS), episodes)
    assert facts["preflight/max_ratio_error"] < 1e-4
    # a wrong age would not pass
    for episode in episodes:
        episode.replay["feature_age_s"] = episode.replay["feature_age_s"].flip(0)
    with torch.no_grad():
        policy.age_encoder.weight.mul_(30)
    with pytest.raises(ValueError, match="disagree before the first update"):
        check_log_probs(policy, policy, episodes)


def test_episodes_are_the_same_whichever_process_plays_them():
    policy = make_policy(POLICY.replace(value_head=ValueHeadCfg()), stats=toy.STATS)
    assert_same(played(policy, 1), played(policy, 2))


def test_episodes_that_are_sent_elsewhere_say_when_the_policy_looked():
    policy = make_policy(POLICY.replace(value_head=ValueHeadCfg()), stats=toy.STATS)
    episodes = [played_episode(plain_episode(episode)) for episode in played(policy)]
    assert max(episode.observation.seen_steps_ago.max() for episode in episodes) == 4
    check_log_probs(policy, policy, episodes)


@pytest.mark.slow
def test_features_are_held_where_actors_of_ray_choose(tmp_path):
    policy = POLICY.replace(value_head=ValueHeadCfg())
    parent = toy.save_parent(tmp_path / "sft", policy)
    rounds = []
    for placement in (None, {"env": "0:0-1", "rollout": "0:0-1", "actor": "0"}):
        backend = toy.runner_of(parent, tmp_path / "run", placement, policy=policy).backend
        try:
            rounds.append(toy.play(backend))
        finally:
            backend.close()
    assert_same(*rounds)


@pytest.mark.parametrize(
    ("algorithm", "frozen"),
    [
        (GRPOCfg(), False),
        pytest.param(VLAPPOCfg(critic_warmup_rounds=0), True, marks=pytest.mark.slow),
    ],
    ids=["grpo", "ppo-frozen"],
)
def test_a_round_of_reinforcement_learning_trains_what_is_not_frozen(tmp_path, algorithm, frozen):
    imitated = POLICY.replace(head=HEADS["flow"], feature_period=1)
    parent = toy.save_parent(tmp_path / "sft", imitated)
    critic = ValueHeadCfg() if isinstance(algorithm, VLAPPOCfg) else None
    policy = imitated.replace(
        feature_period=3, freezes_system2=frozen, value_head=critic, control_hz=0.0
    )
    folder = tmp_path / "rl"
    toy.run_cfg(parent, policy=policy, algorithm=algorithm, max_rounds=1).build(folder).run()
    before, after = (checkpoint.read_weights(p) for p in (parent, checkpoint.latest(folder)))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"age_encoder.weight", "fast_encoder.projection.weight"} <= changed
    assert any(name.startswith("compressor.") for name in changed) != frozen
    assert not any(name.startswith("backbone.") for name in changed)  # the mock's never are
    assert checkpoint.deployed_cfg(checkpoint.latest(folder)).control_hz == 10.0


def test_a_run_that_holds_features_too_long_is_refused(tmp_path):
    cfg = toy.run_cfg("", policy=POLICY.replace(feature_period=7))
    with pytest.raises(ValueError, match=r"holds features for 7 chunks .* 1.2 s old.*env.chunk"):
        check_fit(cfg)
    slow = toy.run_cfg("", policy=POLICY.replace(control_hz=5.0))
    slow = slow.replace(env=MetaWorldCfg(action_repeat=5))
    with pytest.raises(
        ValueError, match=r"trained on 5 actions per second .* executes 16 \(action"
    ):
        check_fit(slow)
    parent = toy.save_parent(tmp_path / "sft", POLICY)
    other = POLICY.replace(feature_width=16)
    with pytest.raises(ValueError, match=r"does not have the architecture .*age_encoder"):
        build_runner(toy.run_cfg(parent, policy=other), tmp_path / "rl")
