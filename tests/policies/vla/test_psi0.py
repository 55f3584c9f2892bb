"""A policy in two parts: what passes between them, what each of them sees, and what is refused."""

import dataclasses

import numpy as np
import pytest
import torch

from rrf.data.dataset.history import HistoryBuffer, as_seen, history_of, misfit_of, seen_at
from rrf.data.schema import ACTION, STATE, Batch, Observation, Schema, Vector
from rrf.envs.observations import join, padded, rows_of
from rrf.networks.configs import ImageEncoderCfg
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.policies.vla.configs import ValueHeadCfg
from rrf.policies.vla.psi0_configs import FastViewCfg, Psi0PolicyCfg
from rrf.policies.vla.residual_configs import ResidualVLACfg
from tests.policies.vla.conftest import train_policy
from tests.policies.vla.test_vlm import NORM_STATS, observation
from tests.policies.vla.tiny_models import BACKBONES, heads

FAST = FastViewCfg(
    camera="wrist",
    image=ImageRuleCfg(size=(16, 16)),
    encoder=ImageEncoderCfg(
        channels=[4, 4], kernel_sizes=[3, 3], strides=[2, 2], num_film_layers=1, out_features=8
    ),
)
READABLE = (
    "regression",
    "gaussian",
    "tokens",
    "flow",
    "diffusion",
    "dit",
    "groot-n15",
    "groot-n17",
)
HEADS = {name: head for name, head in heads("").items() if name in READABLE}


def psi0(kind="flow", **changes):
    given = {
        "cameras": ["front", "wrist"],
        "image_size": (24, 32),
        "state_dim": 4,
        "action_dim": 3,
        "chunk_length": 5,
        "control_hz": 10.0,
        "backbone": BACKBONES["mock"],
        "head": HEADS[kind],
        "feature_tokens": 3,
        "feature_width": 8,
        "fast_view": FAST,
    }
    return Psi0PolicyCfg(**{**given, **changes})


def built(kind="flow", **changes):
    """A policy whose output layers, which begin near zero, show what it sees."""
    torch.manual_seed(0)
    policy = psi0(kind, **changes).build(NORM_STATS).eval()
    for parameter in policy.head.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return policy


def acted(policy, seen, **options):
    return policy.sample(seen, torch.Generator().manual_seed(0), **options).actions


def aged(seen, ago):
    """An observation of a policy that looked at other images `ago` steps before."""
    other = observation(len(seen), seed=7)
    return seen_at(seen, other.images, np.asarray(ago))


def ago_of(seen) -> np.ndarray:
    assert seen.seen_steps_ago is not None
    return seen.seen_steps_ago


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("head", HEADS)
def test_both_parts_apart_do_bit_for_bit_what_they_do_together(head, dtype):
    policy, seen = built(head, feature_dtype=dtype), observation()
    features = policy.see(seen)
    assert (features.dtype, features.shape) == (np.dtype(dtype), (2, 3, 8))
    apart = policy.act(features, np.zeros(2), seen, torch.Generator().manual_seed(0))
    assert np.array_equal(apart.actions, acted(policy, seen))
    blind = dataclasses.replace(seen, images={"wrist": seen.images["wrist"]})
    again = policy.act(features, np.zeros(2), blind, torch.Generator().manual_seed(0))
    assert np.array_equal(apart.actions, again.actions)


@pytest.mark.parametrize("head", HEADS)
def test_it_learns_and_its_probabilities_agree_at_the_age_of_each_row(head):
    torch.manual_seed(0)
    policy = psi0(head, value_head=ValueHeadCfg()).build(NORM_STATS)
    action = np.random.default_rng(0).uniform(-1, 1, (8, 5, 3)).astype(np.float32)
    seen = aged(observation(8), [0, 1, 2, 3, 4, 5, 9, 10])
    losses, _ = train_policy(policy, Batch(seen, action, np.zeros((8, 5), bool)), 30, lr=3e-3)
    assert losses[-1] < 0.9 * losses[0]
    for part in (policy.compressor, policy.age_encoder, policy.fast_encoder):
        assert all(parameter.grad.abs().max() > 0 for parameter in part.parameters())
    policy.eval()
    sample = policy.sample(seen, torch.Generator().manual_seed(0))
    assert sample.value.shape == (8, 1)
    assert "features" not in sample.replay
    if sample.log_prob is not None:
        again = policy.evaluate(seen, sample.replay)
        assert (again.log_prob - sample.log_prob).abs().max() < 1e-4


def test_each_part_sees_what_it_is_said_to_see():
    policy = built("regression")
    seen, other = observation(), observation(seed=1)
    old = aged(seen, [2, 2])
    fresh = acted(policy, seen)

    def changed(other_seen):
        return not np.array_equal(acted(policy, other_seen), acted(policy, old))

    assert changed(seen)
    assert changed(aged(seen, [3, 3]))  # the same features, a little older
    for view in ("front@seen", "wrist@seen", "wrist"):
        blank = {view: np.zeros_like(old.images[view])}
        assert changed(dataclasses.replace(old, images=old.images | blank)), view
    assert changed(dataclasses.replace(old, state=other.state))
    assert changed(dataclasses.replace(old, instruction=["close", "close"]))
    # of the present, System 2 sees nothing then, and System 1 only its camera
    without = {"front": np.zeros_like(old.images["front"])}
    assert not changed(dataclasses.replace(old, images=old.images | without))
    stateless = dataclasses.replace(seen, state=np.zeros((2, 0), np.float32))
    assert np.array_equal(policy.see(stateless), policy.see(seen))
    assert np.array_equal(policy.see(old), policy.see(observation(seed=7)))
    assert np.array_equal(policy.see(as_seen(old)), policy.see(old))
    assert np.array_equal(
        acted(policy, aged(observation(seed=7), [0, 0])), acted(policy, observation(seed=7))
    )
    assert not np.array_equal(fresh, acted(policy, old))


def test_one_vector_is_pooled_and_several_are_asked_for():
    for tokens in (1, 3):
        policy = built("regression", feature_tokens=tokens, pooling="last")
        assert policy.see(observation()).shape == (2, tokens, 8)
        assert (policy.compressor.queries is None) == (tokens == 1)
    mean, last = (built("regression", feature_tokens=1, pooling=how) for how in ("mean", "last"))
    assert not np.array_equal(mean.see(observation()), last.see(observation()))


def test_features_do_not_depend_on_padding_of_longer_prompts():
    policy, seen = built(), observation()
    alone = policy.see(rows_of(seen, [1]))
    np.testing.assert_allclose(policy.see(seen)[1:], alone, atol=1e-5)


def test_a_frozen_system_2_is_not_trained_and_its_features_are_kept_to_be_evaluated():
    torch.manual_seed(0)
    policy = psi0("gaussian", freezes_system2=True).build(NORM_STATS)
    seen = aged(observation(8), range(8))
    action = np.random.default_rng(0).uniform(-1, 1, (8, 5, 3)).astype(np.float32)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    losses, _ = train_policy(policy, Batch(seen, action, np.zeros((8, 5), bool)), 30, lr=3e-3)
    assert losses[-1] < losses[0]
    changed = {n for n, value in policy.state_dict().items() if not torch.equal(value, before[n])}
    assert changed
    assert not [name for name in changed if name.startswith(("backbone.", "compressor."))]
    sample = policy.sample(seen, torch.Generator().manual_seed(0))
    assert sample.replay["features"].shape == (8, 3, 8)
    blind = dataclasses.replace(seen, images={"wrist": seen.images["wrist"]}, seen_steps_ago=None)
    again = policy.evaluate(blind, sample.replay).log_prob
    assert torch.equal(again, policy.evaluate(seen, sample.replay).log_prob)
    assert (again - sample.log_prob).abs().max() < 1e-4


def test_what_was_given_is_what_is_evaluated():
    policy, seen = built("gaussian"), observation()
    features = policy.see(observation(seed=3))
    sample = policy.act(features, np.array([0.2, 0.7]), seen, torch.Generator().manual_seed(0))
    again = policy.evaluate(seen, sample.replay)
    assert (again.log_prob - sample.log_prob).abs().max() < 1e-5


def test_a_running_chunk_is_continued_with_held_features():
    policy, old = built(), aged(observation(), [3, 3])
    running = policy.sample(old).actions[:, 2:]
    going_on = policy.resume(old, running, 1, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(going_on[:, 0], running[:, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((2, 3, 9), np.float32), r"float32\[2, 3, 9\], but .* on float32\[2, 3, 8\]"),
        (np.zeros((1, 3, 8), np.float32), r"float32\[1, 3, 8\], but"),
        (np.zeros((2, 3, 8), np.float64), r"float64\[2, 3, 8\], but"),
        (np.full((2, 3, 8), np.nan, np.float32), "features of row 0 hold NaN or Inf"),
        (np.float32([0, np.inf])[:, None, None] + np.zeros((2, 3, 8), np.float32), "of row 1"),
    ],
)  # fmt: skip
def test_features_that_are_none_are_refused(features, message):
    with pytest.raises(ValueError, match=message):
        built().act(features, np.zeros(2), observation())


@pytest.mark.parametrize(
    ("ages", "message"),
    [
        ([0.0, 1.2], r"1.2 s old, but .* at most 1 s \(max_feature_age_s\); let System 2"),
        ([-0.1, 0.0], r"-0.1 s old, allowed: 0 or more"),
        ([np.nan, 0.0], r"nan s old, allowed: 0 or more"),
        ([np.inf, 0.0], r"inf s old, allowed: 0 or more"),
        ([0.0], r"the shape \[1\], expected \[2\]: one age for each row"),
        (0.0, r"the shape \[\], expected \[2\]"),
    ],
)
def test_ages_that_it_was_not_trained_with_are_refused(ages, message):
    policy = built()
    with pytest.raises(ValueError, match=message):
        policy.act(policy.see(observation()), np.array(ages), observation())
    if np.shape(ages) == (2,) and ages[1] == 1.2:
        with pytest.raises(ValueError, match=r"1.2 s old"):
            policy.sample(aged(observation(), [0, 12]))


def test_the_oldest_age_is_allowed_however_it_is_rounded():
    policy = built(max_feature_age_s=0.3, control_hz=30.0)
    assert policy.cfg.max_age_steps == 9
    policy.sample(aged(observation(), [9, 9]))
    assert psi0(max_feature_age_s=0.7, control_hz=10.0).max_age_steps == 7
    assert psi0(max_feature_age_s=0.01, control_hz=10.0).max_age_steps == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_feature_age_s": 0.0}, "max_feature_age_s is 0.0, allowed: above 0"),
        ({"control_hz": -1.0}, "control_hz is -1.0, allowed: above 0, or 0 for the dataset's"),
        ({"feature_tokens": 0}, "feature_tokens is 0"),
        ({"feature_width": 0}, "feature_width is 0"),
        ({"feature_period": 0}, "feature_period is 0"),
        ({"past_images": 1}, "past_images is 1, but System 2 sees one moment"),
        ({"prompt": "{instruction} {state}"}, "but System 2 sees no state"),
        ({"fast_view": FAST.replace(camera="left")}, r"'left', but .* cameras are: front, wrist"),
        ({"head": heads("")["oft"], "backbone": BACKBONES["prismatic"]}, "reads more of System 2"),
        ({"head": heads("")["pi0"], "backbone": BACKBONES["paligemma"]}, "reads more of System 2"),
    ],
)  # fmt: skip
def test_configs_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        psi0(**changes)


def test_the_dataset_fills_in_rate_and_names_and_must_agree_with_them():
    state, action = Vector(("a", "b"), "rad"), Vector(("x", "y"), "m, rad")
    schema = Schema(30, (48, 64), ("left", "right"), state, action)
    cfg = Psi0PolicyCfg(fast_view=FAST.replace(camera="")).fitted(schema)
    assert (cfg.control_hz, cfg.action_names) == (30.0, ["x", "y"])
    assert cfg.action_units == ["m", "rad"]
    assert (cfg.fast_camera, cfg.max_age_steps) == ("left", 30)
    assert cfg.fitted(schema) == cfg
    assert Psi0PolicyCfg().fitted_to(cfg).control_hz == 30.0
    with pytest.raises(ValueError, match=r"control_hz is 20.0, but the dataset's is 30.0"):
        Psi0PolicyCfg(control_hz=20.0).fitted(schema)
    with pytest.raises(ValueError, match=r"action_names is \['x', 'z'\], but the dataset's"):
        Psi0PolicyCfg(action_names=["x", "z"]).fitted(schema)
    with pytest.raises(ValueError, match=r"fast_view.camera is 'wrist', but .*: left, right"):
        Psi0PolicyCfg(fast_view=FAST).fitted(schema)
    with pytest.raises(ValueError, match="control_hz is not known"):
        psi0(control_hz=0.0).build(NORM_STATS)


def test_a_player_holds_what_the_policy_saw_in_each_so_many_th_chunk():
    policy = built(feature_period=3)
    history = history_of(policy, 2)
    frames = [observation(1, seed) for seed in range(7)]
    seen = [history.seen(frame) for frame in frames]
    assert [ago_of(each).tolist() for each in seen] == [[0], [2], [4], [0], [2], [4], [0]]
    for number, each in enumerate(seen):
        looked = frames[number - number % 3]
        assert np.array_equal(each.images["front@seen"], looked.images["front"])
        assert np.array_equal(each.images["front"], frames[number].images["front"])
        features = policy.see(looked)
        apart = policy.act(features, ago_of(each) / 10.0, frames[number], greedy=True)
        assert np.array_equal(apart.actions, policy.sample(each, greedy=True).actions)
    history.clear()
    assert ago_of(history.seen(frames[1])).tolist() == [0]
    both = padded(join([seen[1], seen[3]]), 3)
    assert ago_of(both).tolist() == [2, 0, 2]
    assert np.array_equal(both.images["wrist@seen"][:1], frames[0].images["wrist"])


def test_a_period_beyond_the_limit_is_refused_before_anything_is_played():
    cfg = psi0(feature_period=3)
    assert misfit_of(cfg, 5, 10) is None  # 10 steps are 1 s
    message = "holds features for 3 chunks of 6 steps .* the last time 1.2 s old"
    for policy in (cfg, cfg.build(NORM_STATS)):
        with pytest.raises(AssertionError, match=message):
            assert misfit_of(policy, 6, None) is None
    assert misfit_of(cfg.replace(control_hz=0.0), 6, 16) is None  # not known before a training
    assert "trained on 10 actions per second" in (misfit_of(cfg, 5, 12.5) or "")
    assert not HistoryBuffer(cfg.past)


def test_a_residual_corrects_a_policy_that_looks_each_time():
    with pytest.raises(ValueError, match="looks at only one of 3 chunks"):
        ResidualVLACfg().over(psi0(feature_period=3))
    torch.manual_seed(0)
    policy = ResidualVLACfg().over(psi0()).build(NORM_STATS).eval()
    sample = policy.sample(observation(), greedy=True)
    assert np.array_equal(sample.actions, policy.base.sample(observation(), greedy=True).actions)
    # features, age and camera, 5 of 8 numbers; the state; the chunk
    assert sample.replay["seen"].shape == (2, 5 * 8 + 4 + 5 * 3)


def test_a_policy_that_looks_each_time_sees_the_observation_itself():
    policy, seen = built(), observation(1)
    assert history_of(policy, 2).seen(seen) is seen
    assert isinstance(as_seen(seen), Observation)
    assert {STATE, ACTION} == set(NORM_STATS)


@pytest.mark.parametrize("name", ["flow", "dit"])
def test_it_learns_and_acts_in_bfloat16(name):
    policy, seen = built(name).train(), aged(observation(8), range(8))
    action = np.random.default_rng(0).uniform(-1, 1, (8, 5, 3)).astype(np.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = policy.loss(Batch(seen, action, np.zeros((8, 5), bool)))
        loss.backward()
        features = policy.see(observation())
        apart = policy.act(features, [0.0, 0.0], observation(), torch.Generator().manual_seed(0))
        assert np.array_equal(apart.actions, acted(policy, observation()))
    assert features.dtype == np.float32
    assert policy.compressor.key.weight.grad.abs().max() > 0
