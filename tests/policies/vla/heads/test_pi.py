"""PaliGemma and the action expert of pi0 and pi0.5: what golden data cannot show."""

import numpy as np
import pytest
import torch

from rrf.data.schema import Batch, Observation
from rrf.networks.vlm.backbone import View
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.paligemma.configs import GemmaCfg, PaliGemmaCfg
from rrf.policies.vla.context import Context
from rrf.policies.vla.heads.pi_configs import PiExpertHeadCfg
from rrf.policies.vla.published.pi_checkpoints import renamed
from tests.policies.vla.conftest import train_policy
from tests.policies.vla.pi_golden import golden_pi, norm_stats, sizes, tiny

BOTH = pytest.mark.parametrize("version", ["pi0", "pi05"])
SIZES = sizes()  # alike in both versions
PIXELS, DIMS = SIZES["vis"]["image_size"], SIZES["action_dim"]
ROBOT = {"cameras": ["front", "wrist"], "state_dim": 4, "action_dim": 3, "chunk_length": 2}


def robot_policy(version="pi0", head=None, **changes):
    policy = tiny(version, head, **{**ROBOT, **changes}).build(norm_stats(4, 3))
    policy.load_state_dict(renamed(golden_pi(version).weights), strict=False)
    return policy


def observation(batch=2, seed=0):
    rng = np.random.default_rng(seed)
    images = {
        name: rng.integers(0, 256, (batch, PIXELS, PIXELS, 3), dtype=np.uint8)
        for name in ROBOT["cameras"]
    }
    state = rng.uniform(-1, 1, (batch, 4)).astype(np.float32)
    return Observation(images, state, ["open the door", "close"] * (batch // 2))


def batch_of(size=2):
    action = np.random.default_rng(1).uniform(-1, 1, (size, 2, 3)).astype(np.float32)
    return Batch(observation(size), action, np.zeros((size, 2), bool))


def view(is_shown=((True, True), (True, False)), prompts=("open the door", "close"), seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = [torch.randint(0, 256, (2, PIXELS, PIXELS, 3), generator=generator) for _ in range(2)]
    return View(
        tuple(image.to(torch.uint8) for image in images), torch.tensor(is_shown), list(prompts)
    )


@BOTH
@pytest.mark.parametrize("method", ["flow_sde", "flow_cps", "reinflow"])
@pytest.mark.parametrize("steps", ["one", "all"])
def test_sampling_and_evaluation_give_equal_log_probabilities(version, method, steps):
    head = {"noise_method": method, "stochastic_steps": steps, "num_denoise_steps": 4}
    policy = robot_policy(version, head)
    sample = policy.sample(observation(), torch.Generator().manual_seed(1))
    assert sample.actions.shape == (2, 2, 3)
    assert sample.log_prob.shape == (2, 6)
    again = policy.evaluate(observation(), sample.replay)
    assert torch.allclose(again.log_prob, sample.log_prob, atol=1e-5)
    assert (sample.log_prob != 0).all()
    again.log_prob.sum().backward()
    assert policy.backbone.language.layers[0].self_attn.k_proj.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("version", [pytest.param("pi0", marks=pytest.mark.slow), "pi05"])
def test_the_loss_falls(version):
    torch.manual_seed(0)
    policy = tiny(version, {"num_noise_draws": 4, "max_dims": 4}, **ROBOT).build(norm_stats(4, 3))
    losses, metrics = train_policy(policy, batch_of(), 60, lr=3e-3, noise_seed=None)
    assert np.mean(losses[-20:]) < 0.65 * np.mean(losses[:10])
    assert metrics["loss/action_l1"] > 0


def test_nothing_depends_on_hidden_cameras_or_padding():
    policy = robot_policy()
    given, other = view(), view(seed=1)
    # the second camera of the second row is hidden: give it other pixels
    changed = given.images[1].clone()
    changed[1] = other.images[1][1]
    hidden = View((given.images[0], changed), given.is_shown, given.prompts)
    # the second row's prompt is the shorter one: without the first row it has no padding
    alone = View(tuple(image[1:] for image in given.images), given.is_shown[1:], ["close"])
    for context in (given, hidden, alone):
        state = torch.zeros(len(context), 4)
        rows = Context(policy.backbone, context, state, torch.zeros(len(context)))
        prefix = policy.head.given(rows)
        x = torch.ones(len(context), 2, DIMS)
        velocity, _ = policy.head.velocity(prefix, x, torch.full((len(context),), 0.5))
        if context is given:
            expected = velocity[1]
        assert torch.allclose(velocity[-1], expected, atol=1e-5)
    shown = View(hidden.images, torch.ones(2, 2, dtype=torch.bool), hidden.prompts)
    assert not torch.allclose(policy.backbone(shown).tokens[1], policy.backbone(given).tokens[1])


def test_insulation_keeps_the_gradient_from_the_backbone():
    for is_insulated in (False, True):
        policy = robot_policy(head={"knowledge_insulation": is_insulated})
        policy.loss(batch_of())[0].backward()
        grads = [parameter.grad for parameter in policy.backbone.parameters()]
        assert all(grad is None for grad in grads) == is_insulated
        assert policy.head.expert.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0


def test_gradient_checkpointing_changes_nothing():
    grads = []
    for is_on in (False, True):
        policy = robot_policy()
        for model in (policy.backbone.language, policy.head.expert):
            model.checkpoints_gradient = is_on
        torch.manual_seed(0)
        policy.loss(batch_of())[0].backward()
        grads.append(policy.backbone.language.layers[0].self_attn.k_proj.weight.grad)
    assert torch.allclose(*grads, atol=1e-7)
    cfg = tiny("pi0", **ROBOT)
    cfg = cfg.replace(backbone=cfg.backbone.replace(gradient_checkpointing=True))
    policy = cfg.build(norm_stats(4, 3))
    assert policy.head.expert.checkpoints_gradient
    assert policy.backbone.language.checkpoints_gradient
    policy.loss(batch_of())[0].backward()


def test_answers_are_what_their_logits_say():
    backbone = robot_policy().backbone
    answer = backbone.answer(view(), 4, lambda logits, place: logits.argmax(-1))
    assert answer.shape == (2, 4)
    logits = backbone.language_logits(view(), answer)
    assert logits.shape == (2, 4, SIZES["vocab"])
    assert torch.equal(logits.argmax(-1), answer)
    later = answer.clone()
    later[:, 2] = 7
    changed = backbone.language_logits(view(), later)
    assert torch.equal(changed[:, :3], logits[:, :3])
    assert not torch.allclose(changed[:, 3], logits[:, 3])


def test_an_answer_ends_when_every_row_has_the_stop_token():
    rows = torch.tensor([[5, 1], [1, 9], [4, 4]])
    backbone = robot_policy().backbone
    answer = backbone.answer(view(), 3, lambda _, place: rows[place], stop=1)
    assert answer.tolist() == [[5, 1], [1, 9]]


def test_a_normalised_state_out_of_reach_of_the_head_is_in_the_prompt():
    # pi0.5 itself does not see the state; pi0 does
    for version, is_seen in (("pi0", True), ("pi05", False)):
        policy, x = robot_policy(version), torch.ones(2, 2, DIMS)
        found = []
        for value in (0.0, 1.0):
            context = Context(policy.backbone, view(), torch.full((2, 4), value), torch.zeros(2))
            found.append(policy.head.velocity(policy.head.given(context), x, torch.ones(2))[0])
        assert torch.allclose(*found) != is_seen


def test_training_times_follow_the_beta_distribution_of_openpi():
    torch.manual_seed(0)
    share = robot_policy().head.draw_share(20_000, torch.device("cpu"))
    assert share.min() > 0.001
    assert share.max() < 1.0
    assert share.mean().item() == pytest.approx(0.999 * 0.6 + 0.001, abs=0.005)
    assert share.std().item() == pytest.approx(0.999 * (12 / 175) ** 0.5, abs=0.005)


def test_bfloat16_is_near_float32():
    cfg = tiny("pi05", {"dtype": "bf16"}, **ROBOT)
    small = cfg.replace(backbone=cfg.backbone.replace(dtype="bf16")).build(norm_stats(4, 3))
    small.load_state_dict(renamed(golden_pi("pi05").weights))
    assert small.backbone.language.norm.weight.dtype == torch.bfloat16
    policies = (small, robot_policy("pi05"))
    near, exact = (policy.sample(observation(), greedy=True) for policy in policies)
    assert np.abs(near.actions - exact.actions).max() < 0.1
    assert near.log_prob.dtype == torch.float32


def test_what_does_not_fit_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=rf"{DIMS + 8} dimensions of state .* max_dims is {DIMS}"):
        tiny("pi0", **{**ROBOT, "state_dim": DIMS + 8}).build(norm_stats(DIMS + 8, 3))
    cfg = tiny("pi0", **ROBOT)
    short = cfg.replace(backbone=cfg.backbone.replace(max_tokens=3)).build(norm_stats(4, 3))
    with pytest.raises(ValueError, match=r"'open the door' has 4 tokens, .*max_tokens is 3"):
        short.sample(observation())
    with pytest.raises(ValueError, match=r"has 4 tokens, but vocabulary_size is 2"):
        cfg.backbone.replace(vocabulary_size=2).build()
    with pytest.raises(ValueError, match="allowed for PaliGemma: squares"):
        PaliGemmaCfg(image=ImageRuleCfg(size=(224, 210)))
    with pytest.raises(ValueError, match="a multiple of num_kv_heads 3"):
        GemmaCfg(num_kv_heads=3)
    with pytest.raises(ValueError, match="time_convention is gr00t"):
        PiExpertHeadCfg(time_convention="gr00t")
