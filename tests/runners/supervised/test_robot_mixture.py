"""Training on datasets of several robots: statistics, resumption, fine-tuning, extraction."""

import json
import typing

import numpy as np
import pytest

from rrf.algorithms import AugmentationCfg, BehaviorCloningCfg
from rrf.config import read_yaml
from rrf.data.schema import ACTION, STATE
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners import AdamWCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import load_lineage
from rrf.runners.checkpoints.extract import extract
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.frames import split_of
from tests.policies.vla.tiny_models import BACKBONES, heads
from tests.policies.vla.two_robots import ARM, CART, CHUNK, write
from tests.runners.supervised.conftest import tiny_policy_cfg

TAGS = {"arm": 1, "cart": 2, "lift": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("robots")
    write(folder / "arm", ARM)
    write(folder / "cart", CART, scale=20.0)
    write(folder / "lift", CART, scale=0.1)
    return folder


def run_cfg(folder, **changes):
    head = heads("")["groot-n17"].replace(embodiments=TAGS)
    given = {
        "experiment_name": "robots",
        "dataset": str(folder / "arm"),
        "mixture": {str(folder / "cart"): 2.0},
        "robots": {str(folder / "arm"): "arm", str(folder / "cart"): "cart"},
        "trackers": [],
        "policy": VLMPolicyCfg(head=head, backbone=BACKBONES["mock"], chunk_length=CHUNK),
        "algorithm": BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=1)),
        "optimizer": AdamWCfg(lr=1e-2),
        "max_steps": 4,
        "batch_size": 8,
        "validation_fraction": 0.25,
        "save_interval": 2,
        "log_interval": 1,
    }
    return SupervisedRunnerCfg(**{**given, **changes})


def one_dataset(folder, name, **changes):
    return run_cfg(folder, dataset=str(folder / name), mixture={}, robots={}, **changes)


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    run_cfg(folder).build(run := tmp_path_factory.mktemp("run")).run()
    return checkpoint.find(run)


def published(folder, name):
    return json.loads((folder / name / "norm_stats.json").read_text())


def test_each_robot_is_validated_by_itself(folder, trained):
    metrics = checkpoint.load_trainer_state(trained).facts["metrics"]
    split = split_of(run_cfg(folder))
    frames = {tag: len(part) for tag, part in split.validation_by_robot.items()}
    assert list(frames) == ["arm", "cart"]
    assert split.validation is not None
    assert sum(frames.values()) == split.validation.num_frames
    for tag in frames:
        own = split_of(one_dataset(folder, tag)).validation
        assert own is not None
        assert frames[tag] == own.num_frames
    weighted = sum(metrics[f"validation/total/{tag}"] * count for tag, count in frames.items())
    assert weighted / sum(frames.values()) == pytest.approx(metrics["validation/total"])
    assert metrics["validation/total/arm"] != metrics["validation/total/cart"]


def test_each_robot_is_normalised_by_its_own_data(folder, trained):
    stats = checkpoint.load_norm_stats(trained)
    assert stats == {"arm": published(folder, "arm"), "cart": published(folder, "cart")}
    policy = checkpoint.load_config(trained)["policy"]
    assert (policy["cameras"], policy["state_dim"], policy["action_dim"]) == (
        ["front", "wrist"], 4, 3,
    )  # fmt: skip
    split = split_of(run_cfg(folder))
    runner = run_cfg(folder).build(folder / "none")
    batch = split.training.batch(np.arange(split.training.num_frames))
    targets = runner.policy._target(batch.action, batch.observation).numpy()[~batch.is_pad]
    assert -1.01 < targets.min() < -0.9 < 0.9 < targets.max() < 1.01


def test_padding_is_counted_as_elements(folder):
    batch = split_of(run_cfg(folder)).training.batch(np.array([0, 54]))
    assert (~batch.is_pad).sum((1, 2)).tolist() == [CHUNK * 3, CHUNK * 2]
    assert (batch.action[1, :, 2] == 0).all()
    assert (batch.observation.state[1, 2:] == 0).all()


def test_a_resumed_run_is_the_same_run(folder, trained, tmp_path):
    cfg = run_cfg(folder)
    runner = cfg.build(tmp_path / "run")
    for _ in range(2):
        runner._train_step()
    runner.save()
    cfg.build(tmp_path / "run").run()
    again = checkpoint.read_weights(checkpoint.find(tmp_path / "run"))
    first = checkpoint.read_weights(trained)
    assert all((again[name] == value).all() for name, value in first.items())


def test_the_policy_of_one_robot_is_a_checkpoint_like_any_other(folder, trained, tmp_path):
    out = extract(trained, "cart", tmp_path / "cart")
    cfg = read_yaml(out / "config.yaml")
    assert (cfg["dataset"], cfg["mixture"], cfg["robots"]) == (str(folder / "cart"), {}, {})
    assert checkpoint.load_norm_stats(out) == published(folder, "cart")
    assert load_lineage(out).parent_checkpoint
    policy: typing.Any = checkpoint.load_policy(out)
    frames = split_of(one_dataset(folder, "cart")).training
    assert policy.sample(frames.batch(np.arange(3)).observation).actions.shape == (3, CHUNK, 2)
    with pytest.raises(ValueError, match="rrf models extract"):
        checkpoint.load_policy(trained)
    with pytest.raises(ValueError, match="no robot 'crane', known: arm, cart"):
        extract(trained, "crane", tmp_path / "crane")
    with pytest.raises(ValueError, match="policy of one robot already: cart"):
        extract(out, "cart", tmp_path / "again")


def test_fine_tuning_keeps_the_statistics_of_a_robot_that_is_known(folder, trained, tmp_path):
    def tuned(parent, name, tag) -> typing.Any:
        cfg = one_dataset(folder, name, init_from=str(parent))
        policy = cfg.policy.replace(embodiment=tag)
        return cfg.replace(policy=policy).build(tmp_path / "run")

    known = tuned(trained, "lift", "cart")  # another cart's recordings
    assert known.norm_stats == published(folder, "cart")
    assert known.policy.action_dim == 2
    new = tuned(trained, "lift", "lift")
    assert new.norm_stats == published(folder, "lift")
    assert list(new.cfg.policy.robots) == ["arm", "cart", "lift"]
    one = extract(trained, "cart", tmp_path / "cart")
    assert tuned(one, "lift", None).norm_stats == published(folder, "cart")
    new._train_step()
    with pytest.raises(ValueError, match=r"several robots \(arm, cart\); say which one"):
        tuned(trained, "cart", None)


def test_pretraining_goes_on_with_one_more_robot(folder, trained, tmp_path):
    robots = {str(folder / "lift"): "lift", str(folder / "cart"): "cart"}
    cfg = run_cfg(folder, dataset=str(folder / "lift"), robots=robots, init_from=str(trained))
    runner = cfg.build(tmp_path)
    assert runner.norm_stats == {tag: published(folder, tag) for tag in ("arm", "cart", "lift")}
    runner._train_step()


def test_two_datasets_of_a_robot_are_normalised_together(folder):
    robots = {str(folder / "lift"): "cart", str(folder / "cart"): "cart"}
    split: typing.Any = split_of(run_cfg(folder, dataset=str(folder / "lift"), robots=robots))
    assert split.norm_stats["cart"][STATE]["count"] == [108]
    assert split.norm_stats["cart"][ACTION]["max"][0] > 60
    assert split.training.weights.tolist() == [1.0] * 54 + [2.0] * 54


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"robots": {"bridge": "arm"}}, "give every one of these a tag"),
        ({"policy": tiny_policy_cfg()}, "CompactVLACfg cannot be trained.*groot-laptop-mixture"),
        ({"algorithm": BehaviorCloningCfg(kl_coef=1.0)}, "cannot be used with robots"),
    ],
)
def test_a_config_that_cannot_mix_robots_is_refused(folder, changes, message):
    with pytest.raises(ValueError, match=message):
        run_cfg(folder, **changes)


def test_datasets_with_one_tag_must_agree(folder):
    robots = {str(folder / "arm"): "arm", str(folder / "cart"): "arm"}
    with pytest.raises(ValueError, match=r"robot 'arm' differ, so give them different tags"):
        split_of(run_cfg(folder, robots=robots))


def test_a_dataset_without_statistics_is_named(folder, tmp_path):
    bare = write(tmp_path / "bare", CART)
    (bare / "norm_stats.json").unlink()
    robots = {str(folder / "arm"): "arm", str(bare): "cart"}
    with pytest.raises(ValueError, match=r"bare/norm_stats.json is missing.*rrf data stats NAME"):
        split_of(run_cfg(folder, mixture={str(bare): 1.0}, robots=robots))
