"""Policies that predict relative actions: statistics, training, acting."""

import json

import numpy as np
import pytest

from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.schema import ACTION
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.frames import open_split
from tests.runners.supervised.conftest import tiny_run_cfg

POLICY = VLMPolicyCfg(
    backbone=MockBackboneCfg(
        tokenizer=TokenizerCfg(words=["blue", "red"]),
        image=ImageRuleCfg(size=(16, 16)),
        patch_size=8,
    ),
    chunk_length=3,
    relative_actions=[(0, 0)],
    delta_actions=[(1, 1)],
)


def test_statistics_are_those_of_what_is_predicted(dataset, tmp_path):
    cfg = tiny_run_cfg(dataset, policy=POLICY, max_steps=2, save_interval=2)
    cfg.build(tmp_path).run()
    saved = checkpoint.load_norm_stats(checkpoint.latest(tmp_path))
    frames = open_split(dataset, 3, None, cfg.validation_fraction).training
    batch = frames.batch(np.arange(frames.num_frames))
    state, action, real = batch.observation.state, batch.action, ~batch.is_pad
    relative = (action[:, :, 0] - state[:, None, 0])[real]
    delta = (action[:, :, 1] - np.concatenate([state[:, None, 1], action[:, :-1, 1]], 1))[real]
    assert saved[PREDICTED]["mean"] == pytest.approx([relative.mean(), delta.mean()], abs=1e-6)
    assert saved[PREDICTED]["max"] == pytest.approx([relative.max(), delta.max()], abs=1e-6)
    assert saved[ACTION] == json.loads((dataset / "norm_stats.json").read_text())[ACTION]


def test_a_policy_acts_in_absolute_units(dataset, tmp_path):
    """What it was trained towards, executed: the demonstrated actions themselves."""
    cfg = tiny_run_cfg(dataset, policy=POLICY, max_steps=2, save_interval=2)
    runner = cfg.build(tmp_path)
    policy = runner.policy
    batch = runner.split.training.batch(np.arange(6))
    target = policy._target(batch.action, batch.observation)
    assert np.abs(policy._executable(target, batch.observation) - batch.action).max() < 1e-5
    runner.run()
    again = checkpoint.load_policy(checkpoint.latest(tmp_path))
    one, other = (p.eval().sample(batch.observation) for p in (runner.deployed, again))
    assert np.array_equal(one.actions, other.actions)


def test_frames_without_images_are_those_of_a_batch(dataset):
    frames = open_split(dataset, 3, None, 0.25).training
    indices = np.array([0, 11, 12, 40])
    state, action, is_pad = frames.chunks(indices)
    batch = frames.batch(indices)
    assert np.array_equal(state, batch.observation.state)
    assert np.array_equal(action, batch.action)
    assert np.array_equal(is_pad, batch.is_pad)
