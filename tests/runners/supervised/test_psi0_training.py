"""A policy in two parts learns with features of all ages, and is evaluated at the rates that it
will have."""

import numpy as np
import pytest

from rrf.algorithms import AugmentationCfg, BehaviorCloningCfg
from rrf.algorithms.vla.behavior_cloning import augment
from rrf.data.dataset.history import history_of
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.evaluation.vla.evaluate import evaluate
from rrf.evaluation.vla.execution_configs import RealTimeChunkingCfg
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies import FlowMatchingHeadCfg, RegressionHeadCfg
from rrf.policies.vla.psi0_configs import FastViewCfg, Psi0PolicyCfg
from rrf.runners import AdamWCfg
from rrf.runners.checkpoints import checkpoint, parts
from rrf.runners.checkpoints.deployed_vla import DeployedVLA
from rrf.runners.supervised.aged_frames import with_ages
from rrf.runners.supervised.frames import fitted, split_of
from tests.runners.supervised.conftest import tiny_run_cfg
from tests.runners.supervised.recall import LENGTH, TASK, RecallVecEnv, write_recall

POLICY = Psi0PolicyCfg(
    backbone=MockBackboneCfg(
        tokenizer=TokenizerCfg(words=TASK.split()),
        image=ImageRuleCfg(size=(8, 8)),
        patch_size=8,
        hidden_size=16,
    ),
    head=FlowMatchingHeadCfg(hidden_features=[32, 32]),
    chunk_length=3,
    feature_tokens=1,
    feature_width=16,
    max_feature_age_s=0.5,  # 2 steps
)
PROTOCOL = ProtocolCfg(
    name="recall", env="recall", tasks=["any"], seed=4242, episodes_per_task=6, cameras=["front"],
    image_size=8, max_episode_steps=LENGTH, num_slots=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    return write_recall(tmp_path_factory.mktemp("recall") / "image", "image")


def run_cfg(dataset, **changes):
    return tiny_run_cfg(
        dataset, policy=POLICY.replace(**changes), algorithm=BehaviorCloningCfg(), max_steps=300,
        validation_interval=300, save_interval=300, batch_size=32, optimizer=AdamWCfg(lr=1e-2),
    )  # fmt: skip


def aged_split(cfg):
    split = split_of(cfg)
    return with_ages(split, fitted(cfg, split).policy, cfg.seed)


def test_each_row_has_features_of_an_age_that_ends_where_its_episode_begins(recordings):
    training = aged_split(run_cfg(recordings)).training
    rows = np.tile(np.arange(2 * LENGTH), 40)
    seen = training.batch(rows).observation
    ago, into = seen.seen_steps_ago, np.tile(np.arange(LENGTH), 80)
    assert ago is not None
    plain = split_of(run_cfg(recordings)).training
    earlier = plain.batch(rows - ago).observation.images["front"]
    np.testing.assert_array_equal(seen.images["front@seen"], earlier)
    np.testing.assert_array_equal(
        seen.images["front"], plain.batch(rows).observation.images["front"]
    )
    for step, ages in enumerate([{0}, {0, 1}, {0, 1, 2}, {0, 1, 2}]):
        assert set(ago[into == step].tolist()) == ages
    # of steps 2 and 3, each age is drawn as often; 160 rows, 53 +- 6 of each
    assert np.bincount(ago[into >= 2]).min() > 30
    again = training.batch(rows).observation.seen_steps_ago
    np.testing.assert_array_equal(ago, again)  # what a resumed training draws
    other = aged_split(run_cfg(recordings).replace(seed=1)).training
    assert not np.array_equal(ago, other.batch(rows).observation.seen_steps_ago)


def test_features_are_of_the_same_episode_in_a_mixture_too(recordings, tmp_path):
    other = write_recall(tmp_path / "other", "image", 8)
    cfg = run_cfg(recordings).replace(mixture={str(other): 1.0})
    plain, aged = split_of(cfg).training, aged_split(cfg).training
    rows = np.random.default_rng(0).permutation(plain.num_frames)
    np.testing.assert_array_equal(plain.steps_since_start(rows), rows % LENGTH)
    seen = aged.batch(rows).observation
    assert seen.seen_steps_ago is not None
    earlier = plain.batch(rows - seen.seen_steps_ago).observation.images["front"]
    np.testing.assert_array_equal(seen.images["front@seen"], earlier)
    assert ((rows - seen.seen_steps_ago) // LENGTH == rows // LENGTH).all()


def test_what_it_looked_at_is_shifted_like_what_is_there_now(recordings):
    batch = aged_split(run_cfg(recordings)).training.batch(np.zeros(50, int))
    noise = np.random.default_rng(1).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    for view in batch.observation.images:
        batch.observation.images[view] = noise
    cfg = AugmentationCfg(shift_px=2, state_noise=0.1)
    moved = augment(batch, cfg, np.ones(2), np.random.default_rng(0)).observation
    np.testing.assert_array_equal(moved.images["front@seen"], moved.images["front"])
    assert not np.array_equal(moved.images["front"], noise)


@pytest.fixture(scope="module")
def trained(recordings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run_cfg(recordings, feature_period=2).build(folder).run()
    return checkpoint.latest(folder)


def test_it_is_evaluated_at_the_rates_that_it_will_have(trained):
    # what to do is shown in the first half only; who looks again in the second one forgets it
    policy = checkpoint.load_policy(trained)
    report = evaluate(policy, RecallVecEnv(4, "image"), PROTOCOL)
    assert report.overall.successes == 6
    alone = evaluate(policy, RecallVecEnv(1, "image"), PROTOCOL)
    assert alone.digest == report.digest
    policy.feature_period = 1
    assert evaluate(policy, RecallVecEnv(4, "image"), PROTOCOL).overall.successes <= 3


@pytest.mark.parametrize("delay", [0, 1])
def test_features_are_held_under_every_rule_of_execution(trained, delay):
    policy = checkpoint.load_policy(trained)
    protocol = PROTOCOL.replace(execution=RealTimeChunkingCfg(delay_steps=delay), greedy=False)
    reports = [evaluate(policy, RecallVecEnv(n, "image"), protocol) for n in (1, 4)]
    for one, other in zip(*(report.episodes for report in reports), strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)


def test_a_player_at_rates_that_it_was_not_trained_for_is_refused(trained, recordings):
    policy = checkpoint.load_policy(trained)
    policy.cfg = policy.cfg.replace(feature_period=3)
    with pytest.raises(ValueError, match=r"and its execute_steps: it holds features for 3 chunks"):
        evaluate(policy, RecallVecEnv(1, "image"), PROTOCOL)
    policy = checkpoint.load_policy(trained)
    policy.control_hz = 5.0
    with pytest.raises(ValueError, match=r"on 5 actions per second .* the environment executes 4"):
        evaluate(policy, RecallVecEnv(1, "image"), PROTOCOL)
    cfg = run_cfg("any", feature_period=3, control_hz=4.0, cameras=["front"], image_size=(8, 8))
    with pytest.raises(ValueError, match=r"holds features for 3 chunks of 2 steps .* 1 s old"):
        PROTOCOL.build().check_training(cfg)


def test_a_training_that_is_resumed_ends_in_the_same_weights(recordings, tmp_path):
    cfg = run_cfg(recordings).replace(max_steps=6, save_interval=3, validation_interval=3)
    whole, broken = cfg.build(tmp_path / "whole"), cfg.build(tmp_path / "broken")
    whole.run()
    for _ in range(3):
        broken._train_step()
    broken.save()
    cfg.build(tmp_path / "broken").run()
    ends = [checkpoint.latest(tmp_path / name) for name in ("whole", "broken")]
    one, other = map(checkpoint.read_weights, ends)
    assert all((one[name] == other[name]).all() for name in one)


def test_a_new_system_1_is_trained_on_a_system_2_that_stays_and_joined_with_it(trained, tmp_path):
    system2, old = parts.split(trained, tmp_path / "parts")
    cfg = run_cfg(
        checkpoint.load_config(trained)["dataset"],
        head=RegressionHeadCfg(),
        freezes_system2=True,
        fast_view=FastViewCfg(image=ImageRuleCfg(size=(8, 8))),
    ).replace(init_from=str(system2), max_steps=3, save_interval=3, validation_interval=3)
    cfg.build(tmp_path / "run").run()
    _, new = parts.split(checkpoint.latest(tmp_path / "run"), tmp_path / "new")
    joined = checkpoint.load_policy(parts.join(system2, new, tmp_path / "joined"))
    assert joined.cfg.head == RegressionHeadCfg()
    seen = RecallVecEnv(1, "image").reset([PROTOCOL.initial_states()[0]], [0])
    np.testing.assert_array_equal(joined.see(seen), checkpoint.load_policy(trained).see(seen))
    # a whole policy has all weights, so that another head is an error there
    with pytest.raises(ValueError, match="does not have the architecture of"):
        cfg.replace(init_from=str(trained)).build(tmp_path / "other")
    with pytest.raises(ValueError, match=r"holds a .*, but the policy to train is"):
        cfg.replace(init_from=str(old)).build(tmp_path / "other")


def test_it_is_served_with_fresh_features(trained):
    signature = DeployedVLA.signature(trained)
    assert not signature.past
    seen = RecallVecEnv(1, "image").reset([PROTOCOL.initial_states()[0]], [0])
    request = {"observation.images.front": seen.images["front"], "observation.state": seen.state}
    answer = DeployedVLA(trained).answer({**request, "instruction": np.array(seen.instruction)}, {})
    wanted = checkpoint.load_policy(trained).sample(seen, greedy=True).actions
    np.testing.assert_array_equal(answer, wanted)


def test_its_features_are_not_cached(recordings, tmp_path):
    frozen = POLICY.backbone.replace(tuning="frozen")
    cfg = run_cfg(recordings, backbone=frozen)
    cfg = cfg.replace(caches_features=True, cache_dir=str(tmp_path))
    with pytest.raises(ValueError, match="it is given features of each age"):
        cfg.build(tmp_path / "run")


def test_history_begins_anew_with_each_episode(trained):
    policy = checkpoint.load_policy(trained)
    env = RecallVecEnv(1, "image")
    for _ in range(2):
        history = history_of(policy, 2)
        first = history.seen(env.reset([PROTOCOL.initial_states()[0]], [0]))
        assert first.seen_steps_ago is not None
        assert first.seen_steps_ago.tolist() == [0]
