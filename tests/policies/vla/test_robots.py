"""Policies of several robots: what a row sees, what the loss counts, the policy of one robot."""

import dataclasses
import typing

import numpy as np
import pytest
import torch

from rrf.data.schema import Batch
from rrf.policies.vla.robot_configs import RobotCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.frames import split_of
from tests.policies.vla.tiny_models import BACKBONES, heads
from tests.policies.vla.two_robots import ARM, CART, CHUNK, write

TAGS = {"arm": 1, "cart": 2}
QUICK = ("regression", "groot-n17", "action-tokens")
ALL = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
    for name in heads("")
    if name != "fast"
]
HAS_DENSITY = [one for one in ALL if one.values[0] not in ("regression", "oft-diffusion")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("robots")
    write(folder / "arm", ARM)
    write(folder / "cart", CART, scale=20.0)
    return folder


def head_of(name):
    head = heads("")[name]
    return head.replace(embodiments=TAGS) if head.has_embodiments else head


def policy_cfg(name, **changes):
    head = head_of(name)
    backbone = next(b for b in BACKBONES.values() if head.reads in b.abilities)
    return VLMPolicyCfg(head=head, backbone=backbone, chunk_length=CHUNK, **changes)


def run_cfg(folder, policy, **changes):
    given = {"dataset": str(folder / "arm"), "mixture": {str(folder / "cart"): 2.0}}
    given |= {"robots": {str(folder / "arm"): "arm", str(folder / "cart"): "cart"}}
    given |= {"validation_fraction": 0.25, "trackers": [], "experiment_name": "robots"}
    return SupervisedRunnerCfg(**{**given, "policy": policy, **changes})


def built(split, seed=0) -> typing.Any:
    torch.manual_seed(seed)
    return split.policy.build(split.norm_stats).eval()


def as_robot(split, policy, tag) -> typing.Any:
    one = split.policy.of_robot(tag).build(split.norm_stats[tag]).eval()
    one.load_state_dict(policy.state_dict())
    return one


def loss_of(policy, batch):
    torch.manual_seed(1)
    return policy.loss(batch)[0]


@pytest.mark.parametrize("name", ALL)
def test_a_robot_is_the_same_in_a_mixture_and_alone(name, folder):
    cfg = run_cfg(folder, policy_cfg(name))
    split = split_of(cfg)
    policy, rows = built(split), np.array([0, 4, 8])
    for tag, first in (("arm", 0), ("cart", 54)):
        mixed = split.training.batch(first + rows)
        assert mixed.observation.robots == [tag] * 3
        alone = split_of(run_cfg(folder, cfg.policy, **_only(folder, tag))).training.batch(rows)
        one = as_robot(split, policy, tag)
        assert loss_of(policy, mixed).item() == pytest.approx(loss_of(one, alone).item(), rel=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_a_row_does_not_depend_on_rows_of_another_robot(name, folder):
    split = split_of(run_cfg(folder, policy_cfg(name)))
    policy = built(split)

    def with_arms(first):
        batch = split.training.batch(np.array([54, first, 57, first + 1]))
        assert batch.observation.robots == ["cart", "arm", "cart", "arm"]
        batch.is_pad[1::2] = True  # the arms do not count
        return loss_of(policy, batch).item()

    assert with_arms(0) == pytest.approx(with_arms(11), rel=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_a_camera_that_a_robot_lacks_is_not_seen(name, folder):
    split = split_of(run_cfg(folder, policy_cfg(name)))
    policy, batch = built(split), split.training.batch(np.array([54, 60]))
    assert policy.context(batch.observation).view.is_shown.tolist() == [[True, False]] * 2
    black = loss_of(policy, batch)
    batch.observation.images["wrist"][:] = 200
    assert loss_of(policy, batch).item() == pytest.approx(black.item(), rel=1e-5)
    if name == "pi05":
        return  # it reads the backbone only after some steps of training
    batch.observation.images["front"][:] = 200
    assert loss_of(policy, batch).item() != pytest.approx(black.item(), rel=1e-5)


@pytest.mark.parametrize("name", ["groot-n15", "groot-n17"])
def test_dimensions_that_a_robot_lacks_get_no_gradient(name, folder):
    policy = built(split := split_of(run_cfg(folder, policy_cfg(name))))
    loss_of(policy, split.training.batch(np.arange(54, 60))).backward()
    decoder, encoder = policy.head.action_decoder.layer2, policy.head.action_encoder.W1
    for gradient in (decoder.W.grad, decoder.b.grad[:, None]):
        assert gradient[2, :, :2].abs().amax(0).min() > 0  # the cart's dimensions
        assert (gradient[2, :, 2:] == 0).all()
        assert (gradient[[0, 1, 3]] == 0).all()  # those of other robots
    assert (encoder.W.grad[2, :2] != 0).any()
    assert (encoder.W.grad[2, 2] == 0).all()  # 3 to 5 are beyond all robots: as published, noise


def test_dimensions_that_a_robot_lacks_get_no_gradient_in_a_shared_layer(folder):
    policy = built(split := split_of(run_cfg(folder, policy_cfg("regression"))))
    loss_of(policy, split.training.batch(np.arange(54, 60))).backward()
    gradient = policy.head.output.weight.grad.unflatten(0, (CHUNK, 3)).abs().amax((0, 2))
    assert gradient[:2].min() > 0
    assert gradient[2] == 0


@pytest.mark.parametrize("name", HAS_DENSITY)
def test_the_policy_of_one_robot_acts_in_its_own_terms(name, folder):
    cfg = run_cfg(folder, policy_cfg(name))
    split = split_of(cfg)
    one = as_robot(split, built(split), "cart")
    seen = split_of(run_cfg(folder, cfg.policy, **_only(folder, "cart"))).training
    observation = seen.batch(np.array([0, 3])).observation
    sample = one.sample(observation, torch.Generator().manual_seed(0))
    assert sample.actions.shape == (2, CHUNK, 2)
    assert np.abs(sample.actions).max() > 2  # physical units: the cart's actions reach 80
    assert sample.log_prob.shape == (2, CHUNK * 2)
    again = one.evaluate(observation, sample.replay)
    assert (again.log_prob - sample.log_prob).abs().max() < 1e-4
    if "chain" in sample.replay:
        assert (sample.replay["chain"][..., 2] == 0).all()  # what only the arm has
        resumed = one.resume(observation, sample.actions[:, 2:], 2)
        np.testing.assert_allclose(resumed[:, :2], sample.actions[:, 2:4], rtol=1e-4, atol=1e-3)


def test_a_policy_of_several_robots_does_not_act(folder):
    split = split_of(run_cfg(folder, policy_cfg("groot-n17")))
    batch = split.training.batch(np.arange(2))
    with pytest.raises(ValueError, match=r"several robots \(arm, cart\).*rrf models extract"):
        built(split).sample(batch.observation)
    with pytest.raises(ValueError, match="rrf models extract"):
        built(split).loss(
            Batch(dataclasses.replace(batch.observation, robots=None), batch.action, batch.is_pad)
        )
    stranger = dataclasses.replace(batch.observation, robots=["arm", "crane"])
    with pytest.raises(ValueError, match="robot 'crane', known: arm, cart"):
        built(split).context(stranger)
    with pytest.raises(ValueError, match="no robot 'crane', known: arm, cart"):
        split.policy.of_robot("crane")


def test_cameras_are_put_in_the_order_that_is_asked_for(folder):
    robots = {"cart": RobotCfg(cameras=[None, "top"])}
    split = split_of(run_cfg(folder, policy_cfg("groot-n17", robots=robots)))
    batch = split.training.batch(np.array([54, 0]))
    shown = built(split).context(batch.observation).view.is_shown
    assert shown.tolist() == [[False, True], [True, True]]
    assert (batch.observation.images["front"][0] == 0).all()
    assert split.policy.of_robot("cart").slots == [None, "top"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_actions": [(0, 0)]}, "relative_actions are for the policy of one robot"),
        ({"past_states": 1}, "past_states are for the policy of one robot"),
        ({"robots": {"cart": RobotCfg(cameras=["front"])}}, "cameras names 'front', but its"),
        ({"robots": {"cart": RobotCfg(state_dim=3)}}, "cart.state_dim is 3, but its dataset has 2"),
    ],
)
def test_a_config_that_does_not_fit_a_robot_is_refused(changes, message, folder):
    with pytest.raises(ValueError, match=message):
        split_of(run_cfg(folder, policy_cfg("groot-n17", **changes)))


def test_a_head_that_does_not_know_a_robot_is_refused(folder):
    policy = policy_cfg("groot-n17")
    stranger = policy.replace(head=policy.head.replace(embodiments={"arm": 1}))
    with pytest.raises(ValueError, match="embodiment is 'cart', known: arm"):
        split_of(run_cfg(folder, stranger))
    fast = policy_cfg("fast")
    with pytest.raises(ValueError, match="FastHeadCfg cannot leave out the dimensions"):
        split_of(run_cfg(folder, fast))


def _only(folder, tag):
    return {"dataset": str(folder / tag), "mixture": {}, "robots": {}}
