"""Heads of OpenVLA and OpenVLA-OFT: against the originals, and in policies that learn."""

import json

import numpy as np
import pytest
import torch

from rrf.data.dataset.transforms import Normalize
from rrf.data.schema import ACTION, STATE, Batch, Observation
from rrf.networks.noise_schedule import ddim_step, denoised, noisy, squared_cosine, visited
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.heads import action_tokens
from rrf.policies.vla.heads.action_tokens_configs import ActionTokenHeadCfg
from rrf.policies.vla.heads.oft import (
    NoisePredictor,
    OFTRegressionHead,
    TokenProjector,
    level_embedding,
)
from rrf.policies.vla.heads.oft_configs import (
    OFTDiffusionHeadCfg,
    OFTRegressionHeadCfg,
    OFTTokenHeadCfg,
)
from rrf.policies.vla.published.openvla import norm_stats_of
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from tests.closeness import assert_close
from tests.golden_files import GOLDEN, golden
from tests.networks.vlm.prismatic.test_prismatic import TINY, last_action_token
from tests.policies.vla.conftest import train_policy
from tests.policies.vla.test_vlm import NORM_STATS

TOKENIZER, HEADS = "openvla_action_tokenizer.npz", "openvla_oft_heads.npz"
TOKENS = ActionTokenHeadCfg(num_bins=20, num_reserved_tokens=4)
REGRESSION = OFTRegressionHeadCfg(hidden_features=32)
OFT_TOKENS = OFTTokenHeadCfg(num_bins=20, num_reserved_tokens=4, uses_state=True)
DIFFUSION = OFTDiffusionHeadCfg(hidden_features=32, num_train_steps=10, num_denoise_steps=5)


def policy_cfg(head, **changes):
    given = {"cameras": ["front"], "image_size": (16, 16), "state_dim": 4, "action_dim": 3}
    return VLMPolicyCfg(
        **given, chunk_length=2, backbone=TINY.replace(**changes), head=head,
        action_normalization="quantile", state_normalization="quantile",
    )  # fmt: skip


def observation(batch=2, seed=0):
    rng = np.random.default_rng(seed)
    images = {"front": rng.integers(0, 256, (batch, 16, 16, 3), dtype=np.uint8)}
    state = rng.uniform(-1, 1, (batch, 4)).astype(np.float32)
    return Observation(images, state, ["open the door", "open"] * (batch // 2))


def weights(arrays, prefix="weights."):
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def test_every_action_token_is_that_of_openvla():
    sizes, encode = golden(TOKENIZER, "encode")
    bins = (sizes["vocab_size"], sizes["bins"])
    with np.load(GOLDEN / TOKENIZER, allow_pickle=False) as data:
        ids = torch.from_numpy(data["decode/token_ids"])
        actions = torch.from_numpy(data["decode/actions"])
    for kind in ("f64", "f32"):
        found = action_tokens.encoded(encode[f"values_{kind}"], *bins)
        assert int((found != encode[f"tokens_{kind}"]).sum()) == 0
    assert torch.equal(action_tokens.decoded(ids, *bins), actions)


def test_tokens_become_the_actions_of_openvla_in_physical_units():
    with np.load(GOLDEN / "openvla.npz", allow_pickle=False) as data:
        config = json.loads(str(data["config_json"]))
        stats, sizes = config["unnormalise"], config["weights"]
        bins = (last_action_token(sizes), sizes["n_action_bins"])
        assert len(stats) == 2
        for name in stats:
            suffix = "" if "mask" in stats[name]["action"] else "_nomask"
            tokens = torch.from_numpy(data[f"unnormalise/tokens{suffix}"])
            normalized = action_tokens.decoded(tokens, *bins).numpy()
            found = Normalize(stats[name]["action"], "quantile").invert(normalized)
            expected = data[f"unnormalise/actions{suffix}"]
            assert_close(found, expected)


def test_three_bins_by_hand():
    # edges -1, 0, 1; V = 10: [-1, 0) is 9, [0, 1) is 8, 1 is 7 and decodes like 8
    values = torch.tensor([-5.0, -1.0, -1e-9, 0.0, 0.9, 1.0, 5.0])
    tokens = action_tokens.encoded(values, 10, 3)
    assert tokens.tolist() == [9, 9, 9, 8, 8, 7, 7]
    assert action_tokens.decoded(tokens, 10, 3).tolist() == [-0.5, -0.5, -0.5, 0.5, 0.5, 0.5, 0.5]


def test_a_row_is_drawn_by_its_own_uniform_number():
    log_probs = torch.tensor([[0.2, 0.5, 0.3]] * 4).log()
    drawn = action_tokens.draw(log_probs, torch.tensor([0.0, 0.19, 0.21, 0.99]))
    assert drawn.tolist() == [0, 0, 1, 2]
    assert action_tokens.draw(log_probs, None).tolist() == [1, 1, 1, 1]


def test_the_l1_head_is_that_of_openvla_oft():
    sizes, arrays = golden(HEADS, "l1_head")
    backbone = MockBackboneCfg(hidden_size=sizes["hid"]).build()
    cfg = OFTRegressionHeadCfg(hidden_features=sizes["mlp"], uses_state=False)
    head = OFTRegressionHead(cfg, backbone, sizes["chunk"], sizes["adim"], sizes["prop"])
    head.load_state_dict({**weights(arrays), "log_std_ha": head.log_std_ha.detach()})
    found = head.predict(arrays["hidden_states"])
    assert_close(found.detach(), arrays["predicted_actions"])
    assert_close((found - arrays["ground_truth"]).abs().mean().detach(), arrays["l1_loss"])


@pytest.mark.parametrize(
    ("case", "given", "build"),
    [
        ("proprio_projector", "proprio", lambda s: TokenProjector(s["prop"], s["llm"])),
        ("noisy_action_projector", "noisy_actions", lambda s: TokenProjector(1, s["llm"])),
        (
            "noise_prediction_model",
            "obs",
            lambda s: NoisePredictor(2, s["hid"] * s["adim"], s["mlp"], s["adim"]),
        ),
    ],
)
def test_the_parts_are_those_of_openvla_oft(case, given, build):
    sizes, arrays = golden(HEADS, case)
    module = build(sizes)
    module.load_state_dict(weights(arrays))
    assert_close(module(arrays[given]).detach(), arrays["out"])


def test_the_noise_level_is_embedded_as_in_openvla_oft():
    config, arrays = golden(HEADS, "sinusoidal_timestep")
    assert_close(level_embedding(arrays["timesteps"], config["dim"]), arrays["out"])


@pytest.mark.parametrize(
    ("case", "mode"), [("normalise_bounds_q99", "quantile"), ("normalise_bounds", "min_max")]
)
def test_actions_and_state_are_normalised_as_in_openvla_oft(case, mode):
    config, arrays = golden(HEADS, case)
    stats = {key: list(value) for key, value in config.items()}
    stats = norm_stats_of({"norm_stats": {"here": {"action": stats, "proprio": stats}}}, "here")
    actions = Normalize(stats[ACTION], mode).invert(arrays["normalized"].numpy())
    assert_close(actions, arrays["unnormalized"])
    state = Normalize(stats[STATE], mode).apply(arrays["proprio"].numpy())
    assert_close(state.clip(-1, 1), arrays["proprio_normalized"])


def test_ddim_is_that_of_diffusers():
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler(num_train_timesteps=50, beta_schedule="squaredcos_cap_v2")
    scheduler.set_timesteps(25)
    shares = squared_cosine(50)
    assert_close(shares, scheduler.alphas_cumprod)
    assert visited(50, 25) == scheduler.timesteps.tolist()
    x, generator = torch.randn(3, 4, 1), torch.Generator().manual_seed(0)
    level = torch.tensor([0, 20, 49])
    noise = torch.randn(3, 4, 1, generator=generator)
    assert_close(noisy(x, noise, shares[level]), scheduler.add_noise(x, noise, level))
    for at in (48, 20, 0):
        expected = scheduler.step(noise, at, x).prev_sample
        level_b = shares[at].expand(3)
        next_b = shares[at - 2].expand(3) if at else torch.ones(3)
        found, _ = ddim_step(denoised(x, noise, level_b, 1.0), noise, level_b, next_b, 0.0)
        assert_close(found, expected)


@pytest.mark.parametrize(
    "head", [TOKENS, REGRESSION, DIFFUSION, OFT_TOKENS], ids=lambda h: type(h).__name__
)
def test_the_loss_falls(head):
    torch.manual_seed(0)
    policy = policy_cfg(head).build(NORM_STATS)
    action = np.random.default_rng(0).uniform(-1, 1, (4, 2, 3)).astype(np.float32)
    batch = Batch(observation(4), action, np.zeros((4, 2), bool))
    losses, _ = train_policy(policy, batch, 12, lr=3e-3)
    assert losses[-1] < 0.8 * losses[0]
    assert policy.sample(observation()).actions.shape == (2, 2, 3)


@pytest.mark.parametrize(
    "head", [TOKENS, REGRESSION, OFT_TOKENS], ids=lambda head: type(head).__name__
)
@pytest.mark.parametrize("factor", [1.0, 1.7])
def test_a_sample_has_the_same_probability_when_it_is_evaluated(head, factor):
    torch.manual_seed(0)
    policy = policy_cfg(head).build(NORM_STATS)
    policy.set_noise_factor(factor)
    sample = policy.sample(observation(), [torch.Generator().manual_seed(n) for n in (1, 2)])
    found = policy.evaluate(observation(), sample.replay)
    assert found.log_prob.shape == found.entropy.shape == (2, 6)
    assert_close(found.log_prob.detach(), sample.log_prob)
    found.log_prob.sum().backward()
    assert policy.backbone.projector.fc1.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "head", [TOKENS, REGRESSION, DIFFUSION, OFT_TOKENS], ids=lambda h: type(h).__name__
)
def test_a_sampled_row_depends_on_its_own_generator_alone(head):
    torch.manual_seed(0)
    policy, seen = policy_cfg(head).build(NORM_STATS), observation(4)

    def sampled(rows):
        part = Observation(
            {"front": seen.images["front"][rows]}, seen.state[rows], seen.instruction[rows]
        )
        streams = [torch.Generator().manual_seed(n) for n in range(4)][rows]
        return policy.sample(part, streams).actions

    np.testing.assert_allclose(sampled(slice(2, 4)), sampled(slice(0, 4))[2:], atol=1e-5)
    greedy = policy.sample(seen, greedy=True).actions
    assert np.array_equal(greedy, policy.sample(seen, greedy=True).actions)


@pytest.mark.parametrize(
    "head", [TOKENS, REGRESSION, DIFFUSION, OFT_TOKENS], ids=lambda h: type(h).__name__
)
def test_padded_steps_do_not_change_the_loss(head):
    torch.manual_seed(0)
    policy = policy_cfg(head).build(NORM_STATS).eval()
    losses = []
    for filling in (0.0, 0.9):
        action = np.full((2, 2, 3), 0.5, np.float32)
        action[:, 1] = filling
        is_pad = np.array([[False, True]] * 2)
        torch.manual_seed(1)
        losses.append(policy.loss(Batch(observation(), action, is_pad))[0].item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_the_greedy_action_is_the_most_probable_one():
    torch.manual_seed(0)
    policy = policy_cfg(TOKENS).build(NORM_STATS)
    sample = policy.sample(observation(), greedy=True)
    tokens = sample.replay["tokens"]
    logits = policy.backbone.language_logits(policy.context(observation()).view, tokens)
    assert torch.equal(24 + logits[..., 24:44].argmax(-1), tokens)
    tokens = action_tokens.decoded(tokens, 44, 20).float().view(2, 2, 3).numpy()
    np.testing.assert_allclose(sample.actions, tokens, atol=1e-6)


def test_the_state_reaches_the_action_and_is_clipped():
    torch.manual_seed(0)
    policy = policy_cfg(REGRESSION).build(NORM_STATS)
    actions = []
    for value in (0.0, 1.0, 7.0):
        seen = observation()
        seen.state[:] = value
        actions.append(policy.sample(seen, greedy=True).actions)
    assert np.abs(actions[0] - actions[1]).max() > 1e-4
    assert np.array_equal(actions[1], actions[2])


def test_a_vocabulary_without_room_for_actions_is_refused():
    with pytest.raises(ValueError, match="has 48 tokens, of which 4 are reserved; the head needs"):
        policy_cfg(TOKENS.replace(num_bins=60)).build(NORM_STATS)


def test_policy_gradients_refuse_the_diffusion_head():
    policy = policy_cfg(DIFFUSION).build(NORM_STATS)
    with pytest.raises(NotImplementedError, match="use OpenVLA-OFT's L1 head"):
        policy.evaluate(observation(), {})


def test_the_diffusion_head_encodes_images_once_and_denoises_as_if_in_every_step():
    torch.manual_seed(0)
    policy = policy_cfg(DIFFUSION).build(NORM_STATS).eval()
    count = []
    tower = policy.backbone.vision_backbone
    tower.register_forward_hook(lambda *_: count.append(1))
    found = policy.sample(observation(), torch.Generator().manual_seed(0)).actions
    assert len(count) == len(policy.cfg.cameras)
    with_images = policy.head.noise
    policy.head.noise = lambda features, x, index, _: with_images(features, x, index)
    every = policy.sample(observation(), torch.Generator().manual_seed(0)).actions
    assert len(count) == len(policy.cfg.cameras) * (2 + DIFFUSION.num_denoise_steps)
    np.testing.assert_allclose(found, every, atol=1e-5)
