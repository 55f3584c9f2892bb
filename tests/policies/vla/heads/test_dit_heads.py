"""Heads that attend to a backbone's tokens: GR00T's and the plain one."""

import itertools

import numpy as np
import pytest
import torch

from rrf.data.schema import ACTION, STATE, Batch
from rrf.networks.dit_configs import DiTCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.heads.diffusion_configs import DiffusionHeadCfg
from rrf.policies.vla.heads.dit_configs import DiTHeadCfg
from rrf.policies.vla.heads.groot_configs import GrootHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from tests.policies.vla.conftest import train_policy
from tests.policies.vla.test_vlm import NORM_STATS, observation, stats

SMALL = DiTCfg(num_layers=4, num_heads=2, head_width=8)
TINY = {"hidden_features": 16, "max_state_dim": 6, "max_action_dim": 5, "num_embodiments": 32}
TINY |= {"vl_heads": 4, "vl_layers": 1, "max_steps": 8, "num_future_tokens": 2}
KINDS = {
    "n15": lambda **changes: GrootHeadCfg(dit=SMALL, **TINY, **changes),
    "n17": lambda **changes: GrootHeadCfg(dit=SMALL, version="n17", **TINY, **changes),
    "dit": lambda **changes: DiTHeadCfg(dit=SMALL, **changes),
    "dit gr00t": lambda **changes: DiTHeadCfg(dit=SMALL, time_convention="gr00t", **changes),
}


def build(head, **changes):
    torch.manual_seed(0)
    given = {"cameras": ["front", "wrist"], "image_size": (24, 32), "state_dim": 4}
    given |= {"action_dim": 3, "chunk_length": 5, "backbone": MockBackboneCfg(hidden_size=16)}
    return VLMPolicyCfg(**{**given, "head": head, **changes}).build(NORM_STATS).eval()


def losses(policy, num_steps, lr=3e-3):
    rng = np.random.default_rng(0)
    action = rng.uniform(-1, 1, (8, 5, 3)).astype(np.float32)
    batch = Batch(observation(8), action, np.zeros((8, 5), bool))
    return train_policy(policy, batch, num_steps, lr)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_falls(kind):
    found = losses(build(KINDS[kind](num_noise_draws=2)).train(), 12, lr=1e-2)
    assert found[-1] < 0.9 * found[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("method", "steps"),
    list(itertools.product(["flow_sde", "flow_cps", "reinflow"], ["one", "all"])),
)
def test_sampling_and_evaluation_give_the_same_probabilities(kind, method, steps):
    policy = build(KINDS[kind](noise_method=method, stochastic_steps=steps))
    losses(policy, 3)  # away from the small weights of the first step
    for greedy in (False, True):
        sample = policy.sample(observation(), torch.Generator().manual_seed(3), greedy)
        again = policy.evaluate(observation(), sample.replay)
        assert sample.actions.shape == (2, 5, 3)
        assert again.log_prob.shape == (2, 15)
        assert torch.allclose(again.log_prob, sample.log_prob, atol=1e-5)
        assert again.log_prob.requires_grad
        assert (again.log_prob != 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_the_rows_beside_it(kind):
    policy = build(KINDS[kind]())
    generators = [torch.Generator().manual_seed(seed) for seed in (5, 6)]
    both = policy.sample(observation(), generators)
    one = observation()
    one.images = {name: images[1:] for name, images in one.images.items()}
    one.state, one.instruction = one.state[1:], one.instruction[1:]
    alone = policy.sample(one, [torch.Generator().manual_seed(6)])
    assert np.allclose(alone.actions, both.actions[1:], atol=1e-5)


def test_padding_of_state_and_action_does_not_change_what_the_robot_does():
    # the same weights in a head without padding
    wide = build(KINDS["n15"]())
    exact = build(GrootHeadCfg(dit=SMALL, **{**TINY, "max_state_dim": 4, "max_action_dim": 3}))
    weights = wide.state_dict()
    weights["head.state_encoder.layer1.W"] = weights["head.state_encoder.layer1.W"][:, :4]
    weights["head.action_encoder.W1.W"] = weights["head.action_encoder.W1.W"][:, :3]
    for name in ("W", "b"):
        key = f"head.action_decoder.layer2.{name}"
        weights[key] = weights[key][..., :3]
    exact.load_state_dict(weights)
    with torch.no_grad():  # the wide head's extra dimensions get no say
        wide.head.action_encoder.W1.W[:, 3:] = 0
    found = wide.sample(observation(), greedy=True)
    assert np.allclose(found.actions, exact.sample(observation(), greedy=True).actions, atol=1e-6)
    batch = Batch(observation(), found.actions, np.zeros((2, 5), bool))
    noise_bha = torch.randn(2, 5, 5)
    for policy, dims in ((wide, 5), (exact, 3)):
        policy.head.draw_share = lambda batch, device: torch.tensor([0.3, 0.6])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "randn_like", lambda like, dims=dims: noise_bha[..., :dims])
            policy.found_loss = policy.loss(batch)[0].item()
    assert wide.found_loss == pytest.approx(exact.found_loss, abs=1e-6)


def test_n17_reads_text_and_images_in_turn():
    policy = build(KINDS["n17"]())
    seen = []
    for block in policy.head.model.transformer_blocks:
        if block.reads_memory:
            block.register_forward_hook(lambda _, inputs, __: seen.append(inputs[3]))
    context = policy.context(observation())
    policy.head.velocity(policy.head.given(context), torch.zeros(2, 5, 5), torch.ones(2))
    found = context.features
    assert torch.equal(seen[0], found.is_token & ~found.is_image)
    assert torch.equal(seen[1], found.is_token & found.is_image)
    assert not torch.equal(seen[0], seen[1])


def test_padding_tokens_of_the_backbone_change_nothing():
    for kind in ("n15", "n17", "dit"):
        policy = build(KINDS[kind]())
        context = policy.context(observation())
        dims, share = policy.head.action_dim, torch.full((2,), 0.5)
        x = torch.randn(2, 5, dims)
        first, _ = policy.head.velocity(policy.head.given(context), x, share)
        features = context.features
        features.tokens = torch.where(features.is_token[..., None], features.tokens, 7.0)
        second, _ = policy.head.velocity(policy.head.given(context), x, share)
        assert not features.is_token.all()
        assert torch.equal(first, second)


def test_state_dropout_hides_the_state_only_in_training():
    policy = build(KINDS["n17"](state_dropout=0.5))
    state, embodiment = torch.randn(400, 4), torch.zeros(400, dtype=torch.long)
    shown = policy.head.state_token(state, embodiment)
    assert (shown != 0).all()
    policy.train()
    torch.manual_seed(0)
    dropped = (policy.head.state_token(state, embodiment) == 0).all(dim=(1, 2))
    assert 160 < dropped.sum() < 240
    still = build(KINDS["n17"](state_dropout=0.5, disable_dropout=True)).train()
    assert torch.equal(still.head.state_token(state, embodiment), shown)


def test_without_dropout_training_and_deployment_compute_the_same():
    head = KINDS["n15"](vl_dropout=0.5, disable_dropout=True)
    policy = build(head.replace(dit=SMALL.replace(dropout=0.5)))
    deployed = policy.sample(observation(), greedy=True).actions
    assert np.array_equal(policy.train().sample(observation(), greedy=True).actions, deployed)
    noisy = build(head.replace(disable_dropout=False)).train()
    assert not np.allclose(noisy.sample(observation(), greedy=True).actions, deployed)


@pytest.mark.parametrize(("tag", "slot"), [(None, 31), ("gr1", 24), ("mine", 3)])
def test_an_embodiment_uses_its_own_encoders(tag, slot):
    policy = build(KINDS["n15"](embodiments={"mine": 3}), embodiment=tag)
    assert policy.context(observation()).embodiment.tolist() == [slot, slot]
    losses(policy, 1)
    gradient = policy.head.state_encoder.layer1.W.grad.abs().sum(dim=(1, 2))
    assert gradient.nonzero().flatten().tolist() == [slot]


def test_the_slots_of_new_embodiments_differ_between_versions():
    assert KINDS["n15"]().embodiment_slot(None) == 31
    assert KINDS["n17"]().embodiment_slot("new_embodiment") == 10


def test_unknown_embodiments_are_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match="embodiment is 'gr2', known: agibot_genie1, gr1, new_embodiment, oxe_dr"
    ):
        build(KINDS["n15"](), embodiment="gr2")
    with pytest.raises(ValueError, match="'gr1', but DiTHeadCfg has no parts for embodiments"):
        build(KINDS["dit"](), embodiment="gr1")
    with pytest.raises(ValueError, match="'new_embodiment' has number 31, but num_embodiments is"):
        build(KINDS["n15"]().replace(num_embodiments=8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_action_dim": 2}, "action_dim is 3, but the head has room for 2"),
        ({"max_state_dim": 3}, "state_dim is 4, but the head has room for 3"),
        ({"max_steps": 4}, "chunk_length is 5, but the head has room for 4"),
        ({"vl_heads": 3}, "vl_heads is 3, allowed: a divisor of the backbone's width 16"),
    ],
)
def test_a_robot_that_does_not_fit_the_head_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(KINDS["n15"]().replace(**changes))


@pytest.mark.parametrize("kind", [*KINDS, "diffusion"])
def test_a_new_chunk_continues_the_running_one(kind):
    head = DiffusionHeadCfg() if kind == "diffusion" else KINDS[kind]()
    policy = build(head)
    running = np.random.default_rng(0).uniform(-1, 1, (2, 3, 3)).astype(np.float32)
    found = policy.resume(observation(), running, num_frozen=2, greedy=True)
    assert found.shape == (2, 5, 3)
    assert np.allclose(found[:, :2], running[:, :2], atol=1e-6)
    assert not np.allclose(found[:, 2], running[:, 2], atol=1e-4)
    drawn = [
        policy.resume(observation(), running, 2, torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.allclose(drawn[0][:, 3:], drawn[2][:, 3:])


def test_wrong_running_chunks_are_refused():
    policy = build(KINDS["dit"]())
    running = np.zeros((2, 3, 3), np.float32)
    with pytest.raises(ValueError, match="has 3 steps of 3 dimensions, 4 of them frozen"):
        policy.resume(observation(), running, num_frozen=4)
    with pytest.raises(ValueError, match="at most the 5 steps"):
        policy.resume(observation(), np.zeros((2, 6, 3), np.float32), num_frozen=0)
    regression = VLMPolicyCfg(
        cameras=["front", "wrist"], image_size=(24, 32), state_dim=4, action_dim=3, chunk_length=5
    ).build({STATE: stats(4), ACTION: stats(3)})
    with pytest.raises(NotImplementedError, match="RegressionHead cannot continue"):
        regression.resume(observation(), running, num_frozen=0)
