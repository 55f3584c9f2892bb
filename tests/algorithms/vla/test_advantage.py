"""Advantage-conditioned training: the numbers by hand, and a policy that takes the good action of
contradicting demonstrations."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from rrf import atomic
from rrf.algorithms.vla import advantage as recap
from rrf.algorithms.vla.advantage_configs import AdvantageCfg
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.scores import write_scores
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import Episode, Observation, Schema, Vector
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.configs import RegressionHeadCfg
from rrf.policies.vla.vlm import prompt_of
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners import AdamWCfg, SupervisedRunnerCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import load_lineage
from rrf.runners.supervised.advantage import FILE, read_labels, with_dropout
from rrf.runners.supervised.runner import build_runner
from tests.runners.supervised.conftest import tiny_policy_cfg, tiny_run_cfg

GOOD, BAD = 0.8, -0.6
GOOD_EPISODES = [
    0,
    1,
    2,
    3,
    8,
    9,
    10,
    11,
]  # as many in training as others: every fourth is held out
WORDS = ["advantage", "go", "negative", "positive"]
PROMPT = "{instruction} {advantage}"


def test_returns_of_a_success_and_a_failure_by_hand():
    success = recap.success_rewards(np.array([False, False, True, True]), 5.0)
    assert success.tolist() == [-1, -1, 0, 0]
    assert recap.returns_to_go(success).tolist() == [-2, -1, 0, 0]
    failure = recap.success_rewards(np.array([False, False, False]), 5.0)
    assert failure.tolist() == [-1, -1, -5]
    assert recap.returns_to_go(failure).tolist() == [-7, -6, -5]


def test_advantages_by_hand():
    returns, values = np.array([-3.0, -2.0, -1.0]), np.array([-4.0, -2.5, -0.5])
    assert recap.advantages(returns, values, None).tolist() == [1.0, 0.5, -0.5]
    # one step: r + V(next) - V = -1 - 2.5 + 4, -1 - 0.5 + 2.5, -1 + 0 + 0.5
    assert recap.advantages(returns, values, 1).tolist() == [0.5, 1.0, -0.5]
    # two steps: -2 - 0.5 + 4, then the episode ends
    assert recap.advantages(returns, values, 2).tolist() == [1.5, 0.5, -0.5]
    assert recap.advantages(returns, values, 7).tolist() == [1.0, 0.5, -0.5]


def test_the_highest_are_chosen_within_each_group():
    values, groups = np.array([*range(10), 90.0, 80.0]), np.array([0] * 10 + [1] * 2)
    assert np.flatnonzero(recap.highest(values, groups, 0.3)).tolist() == [7, 8, 9, 10]
    assert recap.highest(np.zeros(4), np.zeros(4), 0.3).all()


def test_folds_spread_the_episodes_of_every_instruction():
    fold_e = recap.folds(np.array([0, 1] * 10), 5, seed=0)
    for instruction in (0, 1):
        assert np.bincount(fold_e[instruction::2]).tolist() == [2] * 5
    assert recap.folds(np.array([0, 1] * 10), 5, seed=1).tolist() != fold_e.tolist()


def test_a_value_is_predicted_from_other_episodes():
    # The return is 2 * state; in fold 2 it is another one, which its own values must not show.
    state = np.linspace(-1, 1, 60)[:, None]
    fold = np.arange(60) // 2 % 3
    values = recap.values_of_others(state, 2 * state[:, 0], fold, seed=0)
    assert np.abs(values - 2 * state[:, 0]).max() < 0.2
    returns = np.where(fold == 2, -30.0, 2 * state[:, 0])
    changed = recap.values_of_others(state, returns, fold, seed=0)
    assert np.array_equal(changed[fold == 2], values[fold == 2])


@pytest.mark.slow
def test_a_value_of_returns_that_nothing_explains_is_their_mean():
    rng = np.random.default_rng(0)
    state, returns = rng.normal(size=(120, 2)), np.repeat(rng.normal(size=20), 6)
    values = recap.values_of_others(state, returns, np.repeat(np.arange(20) % 5, 6), seed=0)
    assert values.std() < 0.35 * returns.std()


def test_the_prompt_tells_the_advantage_or_leaves_no_trace_of_it():
    texts = [prompt_of("Task: {instruction}. {advantage}\n", "go", np.zeros(1), a) for a in (1, -1)]
    assert texts == ["Task: go. Advantage: positive\n", "Task: go. Advantage: negative\n"]
    assert prompt_of("Task: {instruction}. {advantage}\n", "go", np.zeros(1), 0) == "Task: go.\n"
    assert prompt_of("{instruction} {advantage}", "go", np.zeros(1)) == "go Advantage: positive"


def two_camps(root, num_episodes=16, length=6, has_success=True, has_reward=True):
    """The same states with two actions; only those who take GOOD succeed."""
    rng = np.random.default_rng(0)
    schema = Schema(
        10, (16, 16), ("front",), Vector(("x", "y"), "m"), Vector(("dx",), "1", (-1.0,), (1.0,)),
        has_reward=has_reward, has_success=has_success,
    )  # fmt: skip

    def episode(number: int) -> Episode:
        is_good = number in GOOD_EPISODES
        success = np.arange(length) == length - 1
        return Episode(
            images={"front": np.full((length, 16, 16, 3), 90, np.uint8)},
            state=rng.uniform(-1, 1, (length, 2)).astype(np.float32),
            action=np.full((length, 1), GOOD if is_good else BAD, np.float32),
            instruction="go",
            source=f"camp:{number}",
            reward=(success * is_good).astype(np.float32) if has_reward else None,
            success=success & is_good if has_success else None,
        )

    write_dataset(root, schema, (episode(number) for number in range(num_episodes)))
    (root / "norm_stats.json").write_text(json.dumps(norm_stats(root)))
    return root


def run_cfg(dataset, advantage: AdvantageCfg | None, **changes) -> SupervisedRunnerCfg:
    policy = VLMPolicyCfg(
        backbone=MockBackboneCfg(
            tokenizer=TokenizerCfg(words=WORDS),
            image=ImageRuleCfg(size=(16, 16)),
            patch_size=8,
            hidden_size=32,
        ),
        head=RegressionHeadCfg(huber_beta=2.0),
        prompt=PROMPT,
        chunk_length=1,
    )
    return tiny_run_cfg(dataset, policy=policy, advantage=advantage).replace(
        max_steps=150, batch_size=32, validation_interval=150, save_interval=150,
        optimizer=AdamWCfg(lr=3e-3), ema=None, **changes,
    )  # fmt: skip


def trained(cfg, run_dir):
    build_runner(cfg, run_dir).run()
    return checkpoint.load_policy(newest(run_dir))


def newest(run_dir):
    path = checkpoint.latest(run_dir)
    assert path is not None
    return path


def action_of(policy, advantage=None) -> float:
    seen = Observation(
        {"front": np.full((1, 16, 16, 3), 90, np.uint8)}, np.zeros((1, 2), np.float32), ["go"]
    )
    seen.advantage = None if advantage is None else np.array([advantage], np.int8)
    return float(policy.sample(seen, greedy=True).actions[0, 0, 0])


@pytest.fixture(scope="module")
def camps(tmp_path_factory):
    return two_camps(tmp_path_factory.mktemp("camps") / "camps")


def rising_scores(file):
    """Of the camps: a score rises in good episodes, and stays low in the others."""
    rising = np.linspace(0.1, 0.9, 6)
    scores = {e: rising if e in GOOD_EPISODES else np.full(6, 0.1) for e in range(16)}
    write_scores(file, "camps", scores, {"type": "made up"})
    return [str(file)]


@pytest.mark.parametrize(
    "source",
    ["success", *(pytest.param(name, marks=pytest.mark.slow) for name in ("reward", "score"))],
)
def test_of_contradicting_demonstrations_the_good_action_is_taken(camps, tmp_path, source):
    scores = rising_scores(tmp_path / "camps.scores.parquet") if source == "score" else []
    advantage = AdvantageCfg(
        source=source, scores=scores, positive_fraction=0.5, failure_penalty=5.0
    )
    policy = trained(run_cfg(camps, advantage), tmp_path)
    assert action_of(policy) == pytest.approx(GOOD, abs=0.1)  # asked for nothing
    # The last score of a good episode rises no further than that of a bad one.
    tolerance = 0.25 if source == "score" else 0.1
    assert action_of(policy, -1) == pytest.approx(BAD, abs=tolerance)
    assert BAD + 0.2 < action_of(policy, 0) < GOOD - 0.2  # not told: between the two
    lineage = load_lineage(newest(tmp_path))
    assert lineage.advantage["file"] == FILE
    table = pd.read_parquet(tmp_path / FILE)
    is_good = np.isin(table["episode_index"], GOOD_EPISODES)
    assert (table["is_positive"].to_numpy() == is_good).mean() > 0.9
    if source == "score":  # the rise from here to the end, divided by the largest
        first = table[(table["episode_index"] == 0)]["return"]
        np.testing.assert_allclose(first, [1.0, 0.8, 0.6, 0.4, 0.2, 0.0], atol=1e-9)
    assert set(table["split"]) == {"training", "validation"}


def test_plain_cloning_mixes_contradicting_demonstrations(camps, tmp_path):
    policy = trained(run_cfg(camps, None), tmp_path)
    assert BAD + 0.2 < action_of(policy) < GOOD - 0.2


def test_labels_of_people_decide_by_frame_or_by_episode(tmp_path):
    root = two_camps(tmp_path / "labelled", has_success=False, has_reward=False)
    path = next((root / "meta/episodes").glob("*/*.parquet"))
    table = pd.read_parquet(path)
    table.assign(is_good=table["episode_index"].isin(GOOD_EPISODES)).to_parquet(path)
    labels = read_labels(root, "is_good", [0, 1, 4])
    assert labels.tolist() == [True] * 6 + [True] * 6 + [False] * 6
    cfg = run_cfg(root, AdvantageCfg(source="label", label="is_good", dropout=0.1))
    assert action_of(trained(cfg, tmp_path / "run")) == pytest.approx(GOOD, abs=0.1)

    data, info = next((root / "data").glob("*/*.parquet")), root / "meta/info.json"
    frames = pd.read_parquet(data)
    frames.assign(corrected=(frames["frame_index"] == 2).astype(int)).to_parquet(data)
    facts = json.loads(info.read_text())
    facts["features"]["corrected"] = {"dtype": "int64", "shape": [1], "names": None}
    info.write_text(json.dumps(facts))
    assert np.flatnonzero(read_labels(root, "corrected", [1, 3])).tolist() == [2, 8]
    with pytest.raises(ValueError, match=r"label 'frame_index' of .* must be true or false"):
        read_labels(root, "frame_index", [0])
    with pytest.raises(ValueError, match=r"no label 'is_god': neither .*corrected.*is_good"):
        read_labels(root, "is_god", [0])


@pytest.mark.slow
def test_corrections_are_positive_whatever_their_return(tmp_path):
    root = two_camps(tmp_path / "corrected")
    path = next((root / "meta/episodes").glob("*/*.parquet"))
    table = pd.read_parquet(path)
    table.assign(corrected=table["episode_index"] == 5).to_parquet(path)
    cfg = run_cfg(root, AdvantageCfg(label="corrected"))
    build_runner(cfg, tmp_path / "run")
    found = pd.read_parquet(tmp_path / "run" / FILE)
    assert found.set_index("episode_index").loc[5, "is_positive"].to_numpy().all()


@pytest.mark.slow
def test_a_resumed_run_reads_the_same_labels(camps, tmp_path):
    cfg = run_cfg(camps, AdvantageCfg()).replace(max_steps=6, save_interval=3)
    build_runner(cfg, tmp_path).run()
    written = (tmp_path / FILE).stat().st_mtime_ns
    whole = newest(tmp_path) / "model.safetensors"
    expected = whole.read_bytes()
    atomic.remove(newest(tmp_path))  # as if it had been killed after step 3
    build_runner(cfg, tmp_path).run()
    assert whole.read_bytes() == expected
    assert (tmp_path / FILE).stat().st_mtime_ns == written
    build_runner(cfg.replace(advantage=AdvantageCfg(positive_fraction=0.5)), tmp_path)
    assert (tmp_path / FILE).stat().st_mtime_ns != written


@pytest.mark.slow
def test_dropout_hides_a_share_of_the_advantages(camps, tmp_path):
    runner = build_runner(run_cfg(camps, AdvantageCfg()), tmp_path)
    batch = runner.split.training.batch(np.arange(60))
    hidden = with_dropout(batch, 0.3, np.random.default_rng(0)).observation.advantage
    told = batch.observation.advantage
    assert told is not None
    assert hidden is not None
    assert set(told.tolist()) == {1, -1}
    assert 8 <= (hidden == 0).sum() <= 28
    assert (hidden[hidden != 0] == told[hidden != 0]).all()


def test_a_policy_that_cannot_be_told_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"CompactVLACfg does not read it.*policy\.prompt="):
        tiny_run_cfg("x", policy=tiny_policy_cfg(), advantage=AdvantageCfg())
    with pytest.raises(ValueError, match=r"the words negative, positive; .* vocabulary_size"):
        VLMPolicyCfg(prompt=PROMPT, backbone=MockBackboneCfg(tokenizer=TokenizerCfg(words=["go"])))


def test_missing_columns_and_too_few_episodes_are_named(tmp_path):
    no_success = two_camps(tmp_path / "no-success", has_success=False)
    text = f"advantage.source is success, but {no_success} has no feature 'next.success'"
    with pytest.raises(ValueError, match=re.escape(text) + ".*use advantage.source=reward, or"):
        build_runner(run_cfg(no_success, AdvantageCfg()), tmp_path / "run")
    one = two_camps(tmp_path / "one", num_episodes=2)
    with pytest.raises(ValueError, match="there are only 2 episodes"):
        build_runner(run_cfg(one, AdvantageCfg(), validation_fraction=0.0), tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "label"}, "label is null"),
        ({"source": "score"}, "source=score needs the files that rrf data score wrote"),
        ({"scores": ["x.parquet"]}, "source is success and scores is"),
        ({"positive_fraction": 1.0}, "positive_fraction is 1.0"),
        ({"horizon": 0}, "horizon is 0"),
        ({"failure_penalty": -1.0}, "failure_penalty is -1.0"),
        ({"num_folds": 2}, "num_folds is 2"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        AdvantageCfg(**changes)


@pytest.mark.slow
def test_features_that_tell_the_advantage_are_not_cached(camps, tmp_path):
    cfg = run_cfg(camps, AdvantageCfg()).replace(caches_features=True, cache_dir=str(tmp_path))
    with pytest.raises(ValueError, match="its prompt holds the advantage"):
        build_runner(cfg, tmp_path / "run")
