"""Features of a frozen backbone, computed once."""

import numpy as np
import pytest
import torch

from rrf.algorithms import AugmentationCfg, BehaviorCloningCfg
from rrf.networks.dit_configs import DiTCfg
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies import GaussianHeadCfg
from rrf.policies.vla.heads.dit_configs import DiTHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.checkpoints import checkpoint
from tests.runners.supervised.conftest import tiny_run_cfg, write_synthetic

HEADS = {
    "pooled": GaussianHeadCfg(),
    "tokens": DiTHeadCfg(dit=DiTCfg(num_layers=2, num_heads=2, head_width=16)),
}
BACKBONE = MockBackboneCfg(
    tokenizer=TokenizerCfg(words=["blue", "red"]),
    image=ImageRuleCfg(size=(16, 16)),
    patch_size=4,
    tuning="frozen",
)


def cfg_of(dataset, folder, head="pooled", **changes):
    plain = BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=0, state_noise=0.02))
    policy = VLMPolicyCfg(backbone=BACKBONE, head=HEADS[head], chunk_length=2)
    cfg = tiny_run_cfg(dataset, policy=policy, algorithm=plain, cache_dir=str(folder))
    return cfg.replace(caches_features=True, **changes)


pytestmark = pytest.mark.filterwarnings("ignore:features of")


def test_the_size_is_stated_before_the_work_begins(dataset, tmp_path):
    # 72 training frames, one vector of 64 numbers each
    with pytest.warns(UserWarning, match=r"features of 72 frames, 256 bytes each: 0\.0 MiB in"):
        cfg_of(dataset, tmp_path).build(tmp_path / "run")


@pytest.mark.parametrize("head", HEADS)
def test_training_is_that_with_images(dataset, tmp_path, head):
    weights = {}
    for cached in (True, False):
        cfg = cfg_of(dataset, tmp_path / "cache", head).replace(caches_features=cached)
        cfg.build(tmp_path / str(cached)).run()
        weights[cached] = checkpoint.read_weights(checkpoint.latest(tmp_path / str(cached)))
    differences = [(weights[True][n] - weights[False][n]).abs().max() for n in weights[True]]
    # vectors are kept exactly, tokens in 8 bits
    assert max(differences) < (1e-5 if head == "pooled" else 0.05)
    assert max(v.abs().max() for v in weights[True].values()) > 0.1


def test_neither_images_nor_backbone_are_needed_again(dataset, tmp_path, monkeypatch):
    cfg = cfg_of(dataset, tmp_path)
    first = cfg.build(tmp_path / "first")
    kept = sorted(path.name for path in tmp_path.glob("features-*.u8"))
    assert len(kept) == 2  # training and validation

    def never(*_):
        raise AssertionError("the backbone was asked again")

    monkeypatch.setattr("rrf.networks.vlm.mock.MockBackbone.forward", never)
    second = cfg.build(tmp_path / "second")
    second.run()
    assert sorted(path.name for path in tmp_path.glob("features-*.u8")) == kept
    one, other = (r.split.training.batch(np.arange(5)).observation for r in (first, second))
    assert torch.equal(one.features.tokens, other.features.tokens)


@pytest.mark.parametrize(
    "changes",
    [
        {"policy.prompt": "do: {instruction} red"},
        {"policy.pooling": "last"},
        {"seed": 1},  # other random weights
        {"policy.backbone.image.mean": [0.1, 0.1, 0.1]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_decides_the_features_makes_new_ones(dataset, tmp_path, changes):
    cfg_of(dataset, tmp_path).build(tmp_path / "first")
    before = set(tmp_path.glob("features-*.u8"))
    cfg_of(dataset, tmp_path).override(changes).build(tmp_path / "second")
    assert len(set(tmp_path.glob("features-*.u8")) - before) == 2


def test_a_changed_dataset_replaces_its_features(tmp_path):
    dataset = write_synthetic(tmp_path / "data", num_episodes=8)
    cfg_of(dataset, tmp_path).build(tmp_path / "first")
    before = set(tmp_path.glob("features-*.u8"))
    (dataset / "meta/tasks.parquet").touch()
    cfg_of(dataset, tmp_path).build(tmp_path / "second")
    after = set(tmp_path.glob("features-*.u8"))
    assert len(after) == 2
    assert not after & before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy.backbone.tuning": "full"}, "its backbone is trained"),
        ({"algorithm.augmentation.shift_px": 2}, "images are augmented"),
        ({"algorithm.augmentation.color": 0.5}, "images are augmented"),
        ({"policy.prompt": "{instruction} {state}"}, "its prompt holds the state"),
    ],
)
def test_features_that_change_are_not_kept(dataset, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        cfg_of(dataset, tmp_path).override(changes).build(tmp_path / "run")


def test_a_place_must_be_given(dataset, tmp_path):
    with pytest.raises(ValueError, match="no place to keep features; set cache_dir"):
        cfg_of(dataset, tmp_path).replace(cache_dir=None)
