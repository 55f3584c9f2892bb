"""The parts of world models, by hand."""

import copy
import math

import pytest
import torch
from torch.nn import functional

from rrf.algorithms.planning.configs import discount_for
from rrf.compiled.mish import Mish, normed_mish
from rrf.envs.control_env import Interface
from rrf.networks.batched_mlp import BatchedMLP
from rrf.networks.configs import MLPCfg
from rrf.networks.mlp import MLP, SimNorm
from rrf.policies import PlannerCfg, WorldModelCfg
from rrf.policies.control.world_model import TwoHot, symexp, symlog
from tests.algorithms.planning.toy import MODEL


def test_symlog_compresses_both_signs_alike():
    x = torch.tensor([0.0, math.e - 1, 1 - math.e, math.exp(3) - 1])
    torch.testing.assert_close(symlog(x), torch.tensor([0.0, 1.0, -1.0, 3.0]))
    torch.testing.assert_close(symexp(symlog(x)), x)


def test_two_hot_weights_and_loss():
    # Bins at -2, -1, 0, 1, 2. symlog(e^0.25 - 1) = 0.25: a quarter of the weight is on bin 1.
    bins = TwoHot(-2.0, 2.0, 5)
    targets = torch.tensor([math.exp(0.25) - 1, 1 - math.exp(1), 1e6, -1e6])
    lower, weight = bins.place(targets)
    assert lower.tolist() == [2, 1, 3, 0]
    assert weight.tolist() == pytest.approx([0.25, 0.0, 1.0, 0.0], abs=1e-6)
    logits = torch.tensor([0.0, 0.0, math.log(2), math.log(4), 0.0]).expand(4, 5)
    # Probabilities 1/9, 1/9, 2/9, 4/9, 1/9.
    wanted = [-0.75 * math.log(2 / 9) - 0.25 * math.log(4 / 9)] + [math.log(9)] * 3
    assert bins.loss(logits, targets).tolist() == pytest.approx(wanted, rel=1e-5)


def test_the_mean_of_bins():
    bins = TwoHot(-2.0, 2.0, 5)
    logits = torch.tensor([[-99.0, -99.0, math.log(3), 0.0, -99.0]])  # 3/4 on 0, 1/4 on 1
    assert bins.mean(logits).item() == pytest.approx(math.exp(0.25) - 1)


def test_two_hot_is_trained_to_the_target_itself():
    bins, target = TwoHot(-5.0, 5.0, 21), torch.tensor([7.3])
    logits = torch.zeros(1, 21, requires_grad=True)
    for _ in range(200):
        (gradient,) = torch.autograd.grad(bins.loss(logits, target).sum(), logits)
        logits = (logits - 5 * gradient).detach().requires_grad_()
    assert bins.mean(logits).item() == pytest.approx(7.3, abs=0.1)


def test_simnorm_is_a_softmax_of_each_group():
    x = torch.tensor([[0.0, math.log(3), 5.0, 5.0]])
    torch.testing.assert_close(SimNorm(2)(x), torch.tensor([[0.25, 0.75, 0.5, 0.5]]))


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 2e-6), (torch.bfloat16, 0.05)])
def test_mish_and_its_slope_are_those_of_torch(dtype, atol):
    x = torch.linspace(-20, 20, 1001, dtype=dtype).requires_grad_()
    exact = x.detach().double().requires_grad_()
    ours, theirs = Mish()(x), functional.mish(exact)
    torch.testing.assert_close(ours.double(), theirs, atol=atol, rtol=0)
    torch.testing.assert_close(Mish()(x.detach()), ours.detach(), atol=atol, rtol=0)
    (slope,) = torch.autograd.grad(ours.sum(), x)
    (wanted,) = torch.autograd.grad(theirs.sum(), exact)
    torch.testing.assert_close(slope.double(), wanted, atol=atol, rtol=0)


@pytest.mark.parametrize("copies", [None, 3])
@pytest.mark.parametrize("width", [1, 5, 16, 100])
def test_layer_normalisation_and_mish_in_one_pass_are_those_of_torch(copies, width):
    generator = torch.Generator().manual_seed(width)
    after = [("LayerNorm", {"eps": 1e-3}), ("Mish", {})]
    cfg = MLPCfg(hidden_features=[width], activations=[after, []])
    network = MLP(cfg, 4, 2) if copies is None else BatchedMLP(cfg, copies, 4, 2)
    for parameter in network.parameters():
        parameter.data.normal_(generator=generator)
    assert list(network.state_dict()) == [f"layers.{name}" for name in _names(0, 1, 3)]
    x = torch.randn(7, 4, generator=generator)
    with torch.no_grad():
        found = network(x)
    expected = network(x)
    assert expected.requires_grad
    torch.testing.assert_close(found, expected.detach(), atol=2e-5, rtol=2e-5)
    hidden = network.layers[0](x.expand(copies or 1, 7, 4) if copies else x)
    norm = network.layers[1]
    normal = functional.layer_norm(hidden.double(), [width], eps=1e-3) * norm.weight + norm.bias
    wanted = network.layers[3](functional.mish(normal).float())
    torch.testing.assert_close(expected, wanted, atol=2e-5, rtol=2e-5)


def test_one_pass_in_bfloat16_rounds_once_and_keeps_the_type():
    cfg = MLPCfg(hidden_features=[32], activations=[[("LayerNorm", {}), ("Mish", {})], []])
    network, x = MLP(cfg, 4, 2).requires_grad_(False), torch.randn(7, 4)
    half = copy.deepcopy(network).bfloat16()
    torch.testing.assert_close(half(x.bfloat16()).float(), network(x), atol=0.02, rtol=0.02)
    hidden = half.layers[0](x.bfloat16())
    assert half.layers[1](hidden).dtype == torch.bfloat16
    if normed_mish(hidden, half.layers[1].weight, half.layers[1].bias, 1e-5) is None:
        pytest.skip("this machine has no C compiler")
    with torch.autocast("cpu", torch.bfloat16):
        assert half.layers[1](hidden).dtype == torch.float32


def _names(*numbers: int) -> list[str]:
    return [f"{number}.{name}" for number in numbers for name in ("weight", "bias")]


def test_mish_of_huge_numbers_and_of_none():
    x = torch.tensor([-1e30, -200.0, -88.0, 0.0, 88.0, 1e30, torch.inf, torch.nan])
    wanted = torch.tensor([0.0, 0.0, 0.0, 0.0, 88.0, 1e30, torch.inf, torch.nan])
    torch.testing.assert_close(Mish()(x), wanted, atol=1e-7, rtol=0, equal_nan=True)
    finite = x[:-2].requires_grad_()
    (slopes,) = torch.autograd.grad(Mish()(finite).sum(), finite)
    torch.testing.assert_close(slopes, torch.tensor([0, 0, 0, 0.6, 1, 1]), atol=1e-7, rtol=0)


def test_a_new_model_expects_rewards_and_values_of_zero():
    model = MODEL.build(Interface({"policy": 2}, 1))
    z, actions = model.encode_state(torch.randn(5, 2)), torch.rand(5, 1)
    torch.testing.assert_close(z.unflatten(1, (2, 8)).sum(-1), torch.ones(5, 2))
    q = model.pair_values(model.critics, z, actions, torch.tensor([2, 0]))
    assert q.shape == (2, 5)
    assert q.abs().max() < 1e-5


def test_only_the_two_critics_that_were_drawn_are_asked():
    torch.manual_seed(0)
    model = MODEL.build(Interface({"policy": 2}, 1))
    for parameter in model.critics.parameters():
        parameter.data.normal_()
    z, actions = torch.randn(5, 16), torch.rand(5, 1)
    every = model.numbers(model.critics(torch.cat([z, actions], -1)))
    pair = model.pair_values(model.critics, z, actions, torch.tensor([2, 0]))
    scale = every.abs().max().item()  # sums in another order round otherwise
    torch.testing.assert_close(pair, every[[2, 0]], rtol=0, atol=1e-5 * scale)
    torch.testing.assert_close(model.values(z, actions, torch.tensor([2, 0])), pair.mean(0))


def test_dropped_outputs_have_no_influence():
    model = MODEL.build(Interface({"policy": 2}, 1))
    x = torch.randn(4, 17)
    first = model.critics.layers[0]
    dropped = torch.arange(3 * 4 * 32)  # all of them: what remains does not depend on the input
    model.critics.layers[-1].weight.data.normal_()
    first.weight.data.normal_()
    with torch.no_grad():
        kept = model.critics(x, dropped[:-1])
    assert torch.allclose(kept[0], kept[0, :1].expand_as(kept[0]))
    assert not torch.allclose(model.critics(x)[0], model.critics(x)[0, :1].expand(4, -1))


@pytest.mark.parametrize(
    ("length", "discount"), [(50, 0.95), (200, 0.975), (500, 0.99), (1000, 0.995), (9000, 0.995)]
)
def test_the_discount_follows_the_length_of_episodes(length, discount):
    assert discount_for(length) == pytest.approx(discount)


@pytest.mark.parametrize(
    ("cfg", "changes", "message"),
    [
        (PlannerCfg, {"horizon": 0}, "horizon is 0"),
        (PlannerCfg, {"num_samples": 20}, "num_policy_samples is 24, allowed: 0 to num_samples"),
        (PlannerCfg, {"num_elites": 600}, "num_elites is 600"),
        (PlannerCfg, {"min_std": 3.0}, "min_std is 3.0"),
        (WorldModelCfg, {"latent_dim": 20}, "simnorm_group is 8, allowed: a divisor"),
        (WorldModelCfg, {"num_bins": 1}, "num_bins is 1"),
    ],
)
def test_impossible_models_are_refused(cfg, changes, message):
    with pytest.raises(ValueError, match=message):
        cfg(**changes)


def test_discrete_actions_are_refused_in_one_line():
    with pytest.raises(ValueError, match="2 discrete actions, which TD-MPC does not support"):
        MODEL.build(Interface({"policy": 4}, 1, num_choices=2, task="CartPole-v1"))
