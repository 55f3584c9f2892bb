"""Reinforcement learning of a policy that sees past frames."""

import itertools

import numpy as np
import pytest
import torch

from rrf.envs.vec_env import InitialState
from rrf.lineage import DatasetLineage, Lineage
from rrf.networks.vlm.configs import ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.inline_run import build_runner, check_fit
from rrf.orchestra.rollout_role import RolloutRole
from rrf.policies import GaussianHeadCfg
from rrf.policies.vla.configs import ValueHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from rrf.runners.vla_rl.job_sources import GroupRound
from tests.orchestra.conftest import ENV, STATS, assert_same, make_policy

LINEAGE = Lineage((DatasetLineage("demo"),))


POLICY = VLMPolicyCfg(
    cameras=["corner2"],
    image_size=(32, 32),
    state_dim=4,
    action_dim=4,
    chunk_length=2,
    backbone=MockBackboneCfg(
        tokenizer=TokenizerCfg(words=["drawer", "open", "window"]),
        image=ImageRuleCfg(size=(32, 32)),
        patch_size=16,
        hidden_size=16,
    ),
    head=GaussianHeadCfg(initial_std=0.5),
    value_head=ValueHeadCfg(),
    past_images=1,
    past_states=2,
    past_stride=2,
)


def states():
    """Of one task: prompts are padded to the longest of a batch, which changes rounding."""
    return (InitialState("drawer-open-v3", 42, number) for number in itertools.count())


@pytest.mark.slow  # starts simulators
def test_episodes_show_their_own_past_whichever_process_plays_them():
    rounds = []
    for num_workers in (1, 2):
        policy = make_policy(POLICY)
        backend = InlineBackend(ENV, RolloutRole(policy, batch_rows=4), num_workers)
        source = GroupRound(states(), 3, 2, 3, keeps_uniform=True)
        try:
            backend.play(source, (0, 7))
        finally:
            backend.close()
        rounds.append(source.episodes)
    assert_same(*rounds)
    for episode in rounds[0]:
        seen, steps = episode.observation, np.arange(len(episode.reward))
        assert len(steps) > 1
        past = np.maximum(steps - 1, 0), np.maximum(steps - 2, 0)
        images, state = seen.images["corner2"], seen.state
        np.testing.assert_array_equal(seen.images["corner2@1"], images[past[0]])
        assert not np.array_equal(images[0], images[1])
        for place, rows in enumerate(past, 1):
            np.testing.assert_array_equal(state[:, 4 * place :][:, :4], state[rows, :4])
        again = policy.evaluate(seen, episode.replay)
        assert torch.allclose(again.log_prob, episode.log_prob, atol=1e-4)
        assert np.isfinite(episode.final_value) == episode.truncated


def test_chunks_must_end_where_the_policy_looks_back():
    cfg = resolve("metaworld-grpo-compact")
    policy = POLICY.replace(past_stride=3, image_size=(64, 64))
    with pytest.raises(ValueError, match=r"3 steps apart .* comes every 2 steps; .*chunk_length"):
        check_fit(cfg.replace(policy=policy))


def test_a_run_must_look_back_as_its_parent_did(tmp_path):
    state = checkpoint.TrainerState({}, {})
    cfg, weights = SupervisedRunnerCfg(policy=POLICY), make_policy(POLICY).state_dict()
    parent = checkpoint.save(tmp_path / "sft", 7, cfg, weights, STATS, state, LINEAGE)
    blind = POLICY.replace(past_images=0)  # the weights would fit
    run = VLARLRunnerCfg(init_from=str(parent), policy=blind, env=ENV, tasks=["drawer-open-v3"])
    with pytest.raises(ValueError, match=r"sees Past\(images=1, .*; set policy.past_images=1 "):
        build_runner(run, tmp_path / "rl")
