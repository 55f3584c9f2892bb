"""Every backbone with every head: it builds and learns, or an error says why it cannot."""

import numpy as np
import pytest
import torch

from rrf.data.schema import Batch
from tests.policies.vla.conftest import train_policy
from tests.policies.vla.test_vlm import NORM_STATS, observation, policy_cfg
from tests.policies.vla.tiny_models import BACKBONES, heads, write_fast

NAMES = list(heads(""))
NO_DENSITY = {"regression", "oft-diffusion"}
LEARNING_STEPS = 3


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_fast(tmp_path_factory.mktemp("fast"))


def pair(backbone, head, files):
    return policy_cfg(backbone=BACKBONES[backbone], head=heads(files)[head])


def fits(backbone, head):
    return heads("")[head].reads in BACKBONES[backbone].abilities


PAIRS = [(backbone, head) for backbone in BACKBONES for head in NAMES]


@pytest.mark.parametrize(("backbone", "head"), [pair for pair in PAIRS if fits(*pair)])
def test_the_loss_falls_in_three_steps(backbone, head, files):
    torch.manual_seed(0)
    policy = pair(backbone, head, files).build(NORM_STATS)
    action = np.random.default_rng(0).uniform(-1, 1, (4, 5, 3)).astype(np.float32)
    batch = Batch(observation(4), action, np.zeros((4, 5), bool))
    losses, _ = train_policy(policy, batch, LEARNING_STEPS + 1, lr=2e-3)
    assert losses[-1] < losses[0], losses
    policy.eval()
    sample = policy.sample(observation(), torch.Generator().manual_seed(0))
    assert sample.actions.shape == (2, 5, 3)
    assert np.isfinite(sample.actions).all()
    if head in NO_DENSITY:
        assert sample.log_prob is None
        with pytest.raises(NotImplementedError, match="has no density"):
            policy.evaluate(observation(), sample.replay)
    else:
        again = policy.evaluate(observation(), sample.replay)
        assert (again.log_prob - sample.log_prob).abs().max() < 1e-4
        assert torch.isfinite(again.entropy).all()


def looking_back(**changes):
    """What `observation` shows, and two past frames of it."""
    seen = observation()
    for age in (1, 2):
        past = {f"{name}@{age}": image.copy() for name, image in seen.images.items()}
        seen.images = past | seen.images
    seen.state = np.concatenate([seen.state, np.full_like(seen.state, 0.1)], axis=1)
    seen.images |= changes.get("images", {})
    seen.state[:, 4:] += changes.get("state", 0.0)
    return seen


ONE_OF_EACH = [
    *((backbone, "regression") for backbone in BACKBONES),
    *((next(b for b in BACKBONES if fits(b, head)), head) for head in NAMES),
]


@pytest.mark.parametrize(("backbone", "head"), sorted(set(ONE_OF_EACH)))
def test_every_part_sees_the_past(backbone, head, files):
    torch.manual_seed(0)
    cfg = pair(backbone, head, files)
    cfg = cfg.replace(past_images=2, past_states=int(cfg.head.sees_state))
    if head in ("pi0", "pi05"):
        cfg = cfg.replace(head=cfg.head.replace(max_dims=8))
    policy = cfg.build(NORM_STATS).eval()
    for parameter in policy.head.parameters():
        torch.nn.init.normal_(parameter, std=0.1)  # output layers begin near zero
    action = np.random.default_rng(0).uniform(-1, 1, (2, 5, 3)).astype(np.float32)

    def loss(**changes):
        seen = looking_back(**changes)
        seen.state = seen.state[:, : cfg.seen_state_dim]
        torch.manual_seed(1)
        with torch.no_grad():
            return policy.loss(Batch(seen, action, np.zeros((2, 5), bool)))[0].item()

    oldest = {"wrist@2": np.zeros_like(observation().images["wrist"])}
    assert loss() == loss() != loss(images=oldest)
    if cfg.head.sees_state:
        assert loss(state=0.5) != loss()


def test_past_states_for_heads_that_read_none_are_refused(files):
    for backbone, head in (("paligemma", "fast"), ("paligemma", "pi05"), ("prismatic", "oft")):
        cfg = pair(backbone, head, files)
        if head == "oft":
            cfg = cfg.replace(head=cfg.head.replace(uses_state=False))
        with pytest.raises(ValueError, match=r"past_states is 1, but this .*Cfg reads no state"):
            cfg.replace(past_states=1)


@pytest.mark.parametrize(("backbone", "head"), [pair for pair in PAIRS if not fits(*pair)])
def test_an_impossible_pair_is_refused_with_the_reason(backbone, head, files):
    with pytest.raises(ValueError, match=r"Cfg reads .*, which .*Cfg does not have \(it has: "):
        pair(backbone, head, files)


@pytest.mark.parametrize(
    ("backbone", "head"),
    [("qwen3-vl", "groot-n17"), ("paligemma", "pi05"), ("prismatic", "fast"), ("mock", "dit")],
)
def test_a_saved_policy_acts_as_before(backbone, head, files, tmp_path):
    torch.manual_seed(0)
    policy = pair(backbone, head, files).build(NORM_STATS).eval()
    for name, text in policy.assets().items():
        (tmp_path / name).write_text(text)
    again = pair(backbone, head, "").rebuild(NORM_STATS, tmp_path).eval()
    again.load_state_dict(policy.state_dict())
    one, other = (
        each.sample(observation(), torch.Generator().manual_seed(0)).actions
        for each in (policy, again)
    )
    assert np.array_equal(one, other)
