"""The discriminator against MimicKit's, and against numbers worked by hand."""

import math

import pytest
import torch

from rrf.algorithms.imitation.amp import (
    Discriminator,
    bce_reward,
    lsgan_loss,
    lsgan_reward,
    squared_gradients,
)
from rrf.algorithms.imitation.amp_configs import AMPCfg
from rrf.networks.configs import plain_mlp
from tests.closeness import assert_close
from tests.golden_files import golden

FILE = "mimickit_amp_disc.npz"


def golden_discriminator():
    settings, arrays = golden(FILE, "amp")
    layers = [key for key in arrays if key.startswith("params.") and key.endswith(".weight")]
    widths = [len(arrays[key]) for key in layers if ".logit." not in key]
    cfg = AMPCfg(
        form="bce",
        discriminator_cfg=plain_mlp(widths, settings["activation"]),
        gradient_penalty=settings["grad_penalty"],
        logit_penalty=settings["logit_reg"],
    )
    net = Discriminator(cfg, 1)
    net.network = cfg.discriminator_cfg.build(arrays["norm_mean"].numel(), 1)
    linear = [layer for layer in net.network.layers if hasattr(layer, "weight")]
    names = [key.removeprefix("params.").removesuffix(".weight") for key in layers]
    pairs = list(zip(linear, sorted(names, key=lambda name: ("logit" in name, name)), strict=True))
    with torch.no_grad():
        for layer, name in pairs:
            layer.weight.copy_(arrays[f"params.{name}.weight"])
            layer.bias.copy_(arrays[f"params.{name}.bias"])
    return settings, arrays, net, pairs


def normalized(arrays, key):
    return (arrays[key] - arrays["norm_mean"]) / arrays["norm_std"]


def test_loss_penalty_and_gradients_are_mimickits():
    _, arrays, net, pairs = golden_discriminator()
    fake = torch.cat([normalized(arrays, "disc_obs"), normalized(arrays, "replay_obs")])
    loss, metrics = net.loss(normalized(arrays, "disc_obs_demo"), fake)
    loss.backward()
    assert_close(loss.detach(), arrays["out.disc_loss"])
    assert_close(metrics["amp/gradient_penalty"], arrays["out.disc_grad_penalty"])
    assert_close(metrics["amp/accuracy_policy"], arrays["out.disc_agent_acc"])
    assert_close(metrics["amp/accuracy_reference"], arrays["out.disc_demo_acc"])
    for layer, name in pairs:
        assert_close(layer.weight.grad, arrays[f"grads.{name}.weight"])
        assert_close(layer.bias.grad, arrays[f"grads.{name}.bias"])


def test_rewards_are_mimickits():
    settings, arrays, net, _ = golden_discriminator()
    with torch.no_grad():
        rewards = settings["reward_scale"] * net.rewards(normalized(arrays, "disc_obs"))
    assert_close(rewards, arrays["disc_rewards"])


def test_least_squares_reward_is_one_for_a_reference_and_zero_from_minus_one_on():
    logits = torch.tensor([1.0, 0.0, -1.0, -3.0, 2.0])
    assert lsgan_reward(logits).tolist() == [1.0, 0.75, 0.0, 0.0, 0.75]


def test_cross_entropy_reward_is_bounded():
    # At D = 0 half of a chance; a discriminator that is sure gives -log 1e-4 and no more.
    expected = [math.log(2), math.log(1e4)]
    assert bce_reward(torch.tensor([0.0, 50.0])).tolist() == pytest.approx(expected, rel=1e-6)


def linear(form, **settings):
    """D(x) = 2 a + 3 b of two frames a, b with one number each."""
    cfg = AMPCfg(form=form, discriminator_cfg=plain_mlp([], "ReLU"), **settings)
    net = Discriminator(cfg, 1)
    layer = net.network.layers[0]
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, 3.0]]))
        layer.bias.zero_()
    return net


def test_least_squares_loss_by_hand():
    assert lsgan_loss(torch.tensor([0.0, 3.0]), torch.tensor([-2.0])).item() == 3.5
    net = linear("lsgan", gradient_penalty=10.0, logit_penalty=0.01)
    loss, metrics = net.loss(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, -1.0]]))
    # D is 3 and -1: 4 + 0. |gradient|^2 = 13 on the reference's side, half of it times 10, and
    # 0.01 times 13.
    assert loss.item() == pytest.approx(4 + 65 + 0.13, rel=1e-6)
    assert metrics["amp/gradient_penalty"].item() == 6.5


def test_cross_entropy_penalises_both_sides():
    net = linear("bce", gradient_penalty=1.0, logit_penalty=0.0)
    loss, _ = net.loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0]]))
    assert loss.item() == pytest.approx(math.log(2) + 13, rel=1e-6)


def test_squared_gradients_of_a_square():
    x = torch.tensor([[1.0, 2.0], [0.0, 3.0]], requires_grad=True)
    # grad of a^2 + b^2 is (2 a, 2 b): 4 + 16 and 36.
    assert squared_gradients(x.square().sum(-1), x).tolist() == [20.0, 36.0]


def test_frames_are_normalised_alike_and_bounded():
    net = linear("lsgan", observation_clip=2.0)
    net.normalizer.update(torch.tensor([[1.0], [3.0]]))  # mean 2, standard deviation 1
    got = net.normalized(torch.tensor([[[2.0], [3.0]], [[9.0], [-9.0]]]))
    assert_close(got, torch.tensor([[0.0, 1 / 1.01], [2.0, -2.0]]))
