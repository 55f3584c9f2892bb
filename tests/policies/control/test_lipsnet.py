import pytest
import torch

from rrf.algorithms import LipsNetPPOCfg
from rrf.envs.control_env import Interface
from rrf.networks import MixtureOfExpertsCfg, plain_mlp
from rrf.networks.configs import LAYERS_AFTER_LINEAR
from rrf.policies import ActorCriticPackCfg, LipsNetActorCfg
from rrf.policies.control.configs import MemoryCfg
from rrf.policies.control.lipsnet import LipsNet, with_jacobian
from rrf.runners.checkpoints.onnx_export import export
from tests.algorithms.on_policy import linear

INTERFACE = Interface({"policy": 3}, 2)
RELU = plain_mlp([16, 16], "ReLU")


@pytest.mark.parametrize(
    "activation", ["ReLU", "LeakyReLU", "ELU", "Tanh", "Sigmoid", "SiLU", "Softplus"]
)
def test_jacobian_is_the_one_automatic_differentiation_finds(activation):
    torch.manual_seed(0)
    network = plain_mlp([7, 5], activation).build(3, 2)
    x = torch.randn(4, 3)
    outputs, jacobian = with_jacobian(network, x)
    torch.testing.assert_close(outputs, network(x))
    expected = torch.func.vmap(torch.func.jacrev(network))(x)
    torch.testing.assert_close(jacobian, expected)


def test_a_linear_network_by_hand():
    # f(s) = (3 s_0, 4 s_1): ||J||_F = 5, so with K = 2 a(s) = tanh(0.4 f(s)).
    network = linear.LINEAR.build(2, 2)
    bounded = LipsNet(LipsNetActorCfg(init_lipschitz=2.0, eps=1e-9), network, 2)
    with torch.no_grad():
        network.layers[0].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        network.layers[0].bias.zero_()
    found = bounded(torch.tensor([[1.0, -1.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.2, -1.6]]).tanh())
    bounded.squash = False
    found = bounded(torch.tensor([[1.0, -1.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.2, -1.6]]))


def test_where_the_network_is_flat_nothing_becomes_nan():
    network = plain_mlp([4], "ReLU").build(3, 2)
    bounded = LipsNet(LipsNetActorCfg(), network, 3)
    with torch.no_grad():
        network.layers[0].bias.fill_(-100.0)  # no unit is ever active
        network.layers[2].bias.zero_()
    outputs = bounded(torch.randn(5, 3))
    outputs.sum().backward()
    assert torch.equal(outputs, torch.zeros(5, 2))
    assert all(bool(p.grad.isfinite().all()) for p in bounded.parameters() if p.grad is not None)


@pytest.mark.parametrize("constant", [1e-3, 4.0, 100.0])
def test_the_constant_starts_where_it_is_told(constant):
    lipsnet = LipsNetActorCfg(backbone_cfg=RELU, init_lipschitz=constant).build(INTERFACE).lipsnet
    torch.testing.assert_close(lipsnet.bound(torch.zeros(1, 3)), torch.tensor([constant]))


@pytest.mark.parametrize("constant", [0.5, 3.0])
def test_actions_change_no_faster_than_the_constant(constant):
    torch.manual_seed(1)
    cfg = LipsNetActorCfg(backbone_cfg=RELU, init_lipschitz=constant, squash=False)
    actor = cfg.build(INTERFACE)
    actor = actor.double()
    x = torch.randn(500, 3, dtype=torch.float64)
    steps = 1e-7 * torch.nn.functional.normalize(torch.randn_like(x), dim=-1)
    with torch.no_grad():
        slopes = (actor.backbone(x + steps) - actor.backbone(x)).norm(dim=-1) / 1e-7
    assert slopes.max() <= constant * (1 + 1e-4)
    assert slopes.max() > 0.3 * constant  # a bound that is used


def test_a_network_makes_the_constant_depend_on_the_state():
    torch.manual_seed(2)
    cfg = LipsNetActorCfg(
        backbone_cfg=RELU, init_lipschitz=4.0, lipschitz_network_cfg=plain_mlp([8], "Tanh")
    )
    lipsnet = cfg.build(INTERFACE).lipsnet
    x = torch.randn(5, 3)
    torch.testing.assert_close(lipsnet.bound(x), torch.full((5,), 4.0))
    torch.nn.init.normal_(lipsnet.bound_network.layers[-1].weight)
    assert len(lipsnet.bound(x).unique()) == 5


def test_penalty_by_hand():
    pack = ActorCriticPackCfg(actor_cfg=LipsNetActorCfg(backbone_cfg=RELU, init_lipschitz=3.0))
    built = pack.build(INTERFACE)
    learner = linear.algorithm(LipsNetPPOCfg(lipschitz_coef=0.1), built)
    batch = linear.batch_of(linear.samples([[1.0, 2.0, 3.0]], [[0.0] * 3], [True], [[0.0, 0.0]]))
    loss, numbers = learner.penalty(batch, linear.distribution(built, batch))
    assert loss.item() == pytest.approx(0.9)
    assert numbers["policy/lipschitz"].item() == pytest.approx(3.0)
    loss.backward()
    assert built.actor.lipsnet.raw_bound.grad.item() > 0


def test_it_is_exported_with_its_jacobian(tmp_path):
    pytest.importorskip("onnxruntime")
    torch.manual_seed(3)
    actor = LipsNetActorCfg(backbone_cfg=plain_mlp([8], "ELU")).build(INTERFACE)
    assert export(actor, tmp_path / "policy.onnx") < 1e-5


def test_only_a_lipsnet_is_trained_by_its_algorithm():
    with pytest.raises(ValueError, match=r"GaussianActor; use .*LipsNetActorCfg"):
        linear.algorithm(LipsNetPPOCfg(), linear.policy([[1.0]]))


def test_what_it_cannot_bound_is_refused():
    with pytest.raises(ValueError, match="LayerNorm, whose Jacobian"):
        LipsNetActorCfg(backbone_cfg=plain_mlp([4], "LayerNorm")).build(INTERFACE)
    with pytest.raises(ValueError, match="a MixtureOfExperts, whose Jacobian"):
        LipsNetActorCfg(backbone_cfg=MixtureOfExpertsCfg()).build(INTERFACE)
    with pytest.raises(ValueError, match="memory=null"):
        LipsNetActorCfg(memory=MemoryCfg()).build(INTERFACE)
    with pytest.raises(ValueError, match=r"init_lipschitz is -1.0, allowed: above 0"):
        LipsNetActorCfg(init_lipschitz=-1.0)
    assert "LayerNorm" in LAYERS_AFTER_LINEAR
