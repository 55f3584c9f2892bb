"""Any backbone with any head that can read it; here the mock backbone."""

import numpy as np
import pytest
import torch

from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.schema import ACTION, STATE, Batch, Observation, Schema, Vector
from rrf.networks.vlm.backbone import Features
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.configs import (
    ActionHeadCfg,
    DiscreteTokenHeadCfg,
    FlowMatchingHeadCfg,
    GaussianHeadCfg,
    RegressionHeadCfg,
    ValueHeadCfg,
)
from rrf.policies.vla.vlm import prompt_of
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from tests.policies.vla.conftest import train_policy

HEADS = [RegressionHeadCfg(), GaussianHeadCfg(), DiscreteTokenHeadCfg(), FlowMatchingHeadCfg()]


def stats(dims):
    low, high = [-1.0] * dims, [1.0] * dims
    return {"mean": [0.0] * dims, "std": high, "min": low, "max": high, "q01": low, "q99": high}


NORM_STATS = {STATE: stats(4), ACTION: stats(3)}


def policy_cfg(**changes):
    given = {"cameras": ["front", "wrist"], "image_size": (24, 32), "state_dim": 4}
    return VLMPolicyCfg(**{**given, "action_dim": 3, "chunk_length": 5, **changes})


def observation(batch=2, seed=0):
    rng = np.random.default_rng(seed)
    images = {
        name: rng.integers(0, 256, (batch, 24, 32, 3), dtype=np.uint8)
        for name in ("front", "wrist")
    }
    state = rng.uniform(-1, 1, (batch, 4)).astype(np.float32)
    return Observation(images, state, ["open the door", "close"][:batch] * (batch // 2 or 1))


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_the_loss_falls_and_probabilities_agree(head):
    torch.manual_seed(0)
    policy = policy_cfg(head=head, value_head=ValueHeadCfg()).build(NORM_STATS)
    rng = np.random.default_rng(0)
    action = rng.uniform(-1, 1, (8, 5, 3)).astype(np.float32)
    batch = Batch(observation(8), action, np.zeros((8, 5), bool))
    losses, _ = train_policy(policy, batch, 30, lr=3e-3)
    assert losses[-1] < 0.9 * losses[0]
    sample = policy.sample(observation())
    assert sample.actions.shape == (2, 5, 3)
    assert sample.value.shape == (2, 1)
    if sample.log_prob is not None:
        again = policy.evaluate(observation(), sample.replay)
        assert torch.allclose(again.log_prob, sample.log_prob, atol=1e-5)
        assert again.log_prob.shape == (2, 15)


def test_the_dataset_fills_in_what_is_left_open():
    vector = Vector(("a", "b"), "m")
    schema = Schema(10, (48, 64), ("left", "right"), vector, Vector(("x", "y", "z"), "m"))
    cfg = VLMPolicyCfg().fitted(schema)
    assert (cfg.cameras, cfg.image_size) == (["left", "right"], (48, 64))
    assert (cfg.state_dim, cfg.action_dim) == (2, 3)
    assert policy_cfg().fitted(schema) == policy_cfg()
    with pytest.raises(
        ValueError, match="state_dim, action_dim, image_size, cameras are not known"
    ):
        VLMPolicyCfg().build({STATE: stats(2), ACTION: stats(3)})


def test_a_head_that_cannot_read_the_backbone_is_refused_with_the_reason():
    class ExpertCfg(ActionHeadCfg):
        reads = "layers"

    with pytest.raises(
        ValueError, match=r"ExpertCfg reads keys and values of every layer.*has: pooled, tokens"
    ):
        policy_cfg(head=ExpertCfg())


def test_a_checkpoint_needs_no_other_file(tmp_path):
    import tokenizers

    model = tokenizers.models.WordLevel({"open": 0, "<pad>": 1}, unk_token="<pad>")
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    backbone = MockBackboneCfg(tokenizer=TokenizerCfg(files=str(tmp_path)))
    policy = policy_cfg(backbone=backbone).build(NORM_STATS)
    (tmp_path / "saved").mkdir()
    for name, text in policy.assets().items():
        (tmp_path / "saved" / name).write_text(text)
    (tmp_path / "tokenizer.json").unlink()
    again = policy_cfg(backbone=backbone).rebuild(NORM_STATS, tmp_path / "saved")
    again.load_state_dict(policy.state_dict())
    assert np.array_equal(again.sample(observation()).actions, policy.sample(observation()).actions)


def test_features_are_pooled_over_real_tokens_only():
    tokens = torch.arange(12.0).view(2, 3, 2)
    is_token = torch.tensor([[True, True, False], [False, True, True]])
    features = Features(tokens, is_token, torch.zeros_like(is_token))
    assert features.pooled("mean").tolist() == [[1.0, 2.0], [9.0, 10.0]]
    assert features.pooled("last").tolist() == [[2.0, 3.0], [10.0, 11.0]]


def test_a_prompt_may_hold_the_state_in_bins():
    # pi0.5: bins of equal width from -1 to 1; what lies below is -1, above 255
    state = np.array([-1.2, -1.0, -0.999, 0.0, 0.999, 1.0, 2.0])
    wanted = "Task: go, State: -1 0 0 128 255 255 255;"
    assert prompt_of("Task: {instruction}, State: {state};", "go", state) == wanted


def test_the_prompt_must_hold_the_instruction():
    with pytest.raises(ValueError, match="prompt is 'go'"):
        policy_cfg(prompt="go")


def test_wrong_observations_are_refused():
    policy = policy_cfg().build(NORM_STATS)
    wrong = observation()
    wrong.images["front"] = wrong.images["front"][:, :8]
    with pytest.raises(ValueError, match=r"front is uint8\[2, 8, 32, 3\], but the policy"):
        policy.sample(wrong)


def test_a_parent_fills_in_what_reinforcement_learning_leaves_open():
    assert VLMPolicyCfg(chunk_length=5).fitted_to(policy_cfg()) == policy_cfg()
    assert policy_cfg(state_dim=9).fitted_to(policy_cfg()) == policy_cfg(state_dim=9)


def test_a_running_chunk_is_expressed_relative_to_the_new_state():
    limits = {"mean": [0.2, 0.0], "std": [1.0, 1.0], "min": [-0.4, -1.0], "max": [0.8, 1.0]}
    policy = VLMPolicyCfg(
        cameras=["front", "wrist"], image_size=(24, 32), state_dim=4, action_dim=2, chunk_length=4,
        head=FlowMatchingHeadCfg(), relative_actions=[(0, 0)], delta_actions=[(1, 1)],
    ).build({STATE: stats(4), ACTION: stats(2), PREDICTED: limits})  # fmt: skip
    for parameter in policy.head.parameters():
        torch.nn.init.zeros_(parameter)  # no velocity: the chunk stays as it begins
    begun, resume = [], policy.head.resume

    def remember(features, running, *rest):
        begun.append(running.actions.tolist())
        return resume(features, running, *rest)

    policy.head.resume = remember
    now = observation(1)
    now.state[0, :2] = 0.3, 0.8
    running = np.array([[[0.5, 1.0], [0.6, 1.5], [1.1, 1.4]]], np.float32)  # physical
    found = policy.resume(now, running, num_frozen=1, greedy=True)
    # relative to 0.3: .2 .3 .8, of the range -.4 to .8; differences from 0.8 on: .2 .5 -.1
    expected = [[0.0, 0.2], [1 / 6, 0.5], [1.0, -0.1]]
    assert np.allclose(begun, [expected], atol=1e-6)
    # behind them the middle of the range, .2 above the state; and no difference to the last action
    assert np.allclose(found, [[*running[0].tolist(), [0.5, 1.4]]], atol=1e-6)


@pytest.mark.parametrize("head", [GaussianHeadCfg(), FlowMatchingHeadCfg()], ids=repr)
def test_the_vector_that_head_and_critic_share_is_computed_once(head):
    policy = policy_cfg(head=head, value_head=ValueHeadCfg()).build(NORM_STATS)
    count = []
    policy.trunk.register_forward_hook(lambda *_: count.append(1))
    sample = policy.sample(observation())
    assert len(count) == 1
    value = policy.evaluate(observation(), sample.replay).value
    assert len(count) == 2
    assert torch.allclose(value, sample.value)
