"""Squashed Gaussian, batched critics and encoders of histories."""

import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from rrf.envs.control_env import Interface
from rrf.networks.batched_mlp import BatchedLinear, BatchedMLP
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.networks.mlp import MLP
from rrf.policies.control.actor_critic import ControlPolicy
from rrf.policies.control.off_policy_actors import TanhGaussian, log_tanh_slope
from rrf.policies.control.off_policy_configs import (
    ActorQPackCfg,
    DistributionalQCfg,
    GRUEncoderCfg,
    QNetworkCfg,
    SACActorCfg,
    TransformerEncoderCfg,
)

ENCODERS = [
    GRUEncoderCfg(hidden_size=8),
    TransformerEncoderCfg(num_layers=2, width=8, num_heads=2, context=6),
]


def test_log_probability_of_a_squashed_gaussian_by_hand():
    policy = TanhGaussian(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, math.log(2.0)]]))
    actions, log_prob = policy.sample_with_log_prob(torch.tensor([[0.5, -0.25]]))
    # u = 0.5 both times; log N = -0.125 - 0.918939 and -0.03125 - 0.918939 - 0.693147;
    # 1 - tanh(0.5)^2 = 0.786448, its logarithm -0.240229.
    assert actions[0].tolist() == pytest.approx([0.462117, 0.462117], abs=1e-6)
    assert log_prob.item() == pytest.approx(-1.043939 - 1.643336 + 2 * 0.240229, abs=1e-5)
    assert policy.log_prob(actions).item() == pytest.approx(log_prob.item(), abs=1e-5)


def test_a_wider_box_spreads_the_probability():
    mean, log_std = torch.zeros(1, 2), torch.zeros(1, 2)
    noise = torch.tensor([[0.3, -1.0]])
    narrow, wide = TanhGaussian(mean, log_std), TanhGaussian(mean, log_std, limit=2.0)
    actions, log_prob = narrow.sample_with_log_prob(noise)
    wide_actions, wide_log_prob = wide.sample_with_log_prob(noise)
    assert torch.equal(wide_actions, 2 * actions)
    assert wide_log_prob.item() == pytest.approx(log_prob.item() - 2 * math.log(2), abs=1e-6)
    assert wide.log_prob(wide_actions).item() == pytest.approx(wide_log_prob.item(), abs=1e-5)


def test_the_slope_of_tanh_stays_exact_where_it_saturates():
    # log(1 - tanh(u)^2) tends to log 4 - 2u.
    assert log_tanh_slope(torch.tensor(40.0)).item() == pytest.approx(math.log(4) - 80, abs=1e-5)
    assert log_tanh_slope(torch.tensor(-40.0)).item() == pytest.approx(math.log(4) - 80, abs=1e-5)


def test_kl_of_squashed_gaussians_by_hand():
    one = TanhGaussian(torch.zeros(1, 1), torch.zeros(1, 1))
    two = TanhGaussian(torch.ones(1, 1), torch.full((1, 1), math.log(2.0)))
    # log 2 + (1 + 1) / 8 - 1/2
    assert one.kl_to(two).item() == pytest.approx(0.443147, abs=1e-6)
    assert one.kl_to(one).item() == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("activation", ["ReLU", "GELU", "Tanh"])
def test_batched_critics_compute_what_single_networks_do(activation):
    torch.manual_seed(0)
    batched = BatchedMLP(plain_mlp([7, 5], activation), 2, 4, 3)
    x = torch.randn(6, 4, requires_grad=True)
    found = batched(x)
    linears = [layer for layer in batched.layers if hasattr(layer, "weight")]
    for k in range(2):
        h = x
        for i, layer in enumerate(linears):
            h = h @ layer.weight[k] + layer.bias[k, 0]
            h = getattr(nn, activation)()(h) if i < 2 else h
        torch.testing.assert_close(found[k], h)
    (gradient,) = torch.autograd.grad(found[1].sum(), linears[0].weight)
    assert gradient[0].abs().max() == 0
    assert gradient[1].abs().max() > 0


def test_outputs_are_exact_whatever_the_hidden_layers_are():
    torch.manual_seed(0)
    for network in (MLP(plain_mlp([8], "ReLU"), 4, 3), BatchedMLP(plain_mlp([8], "ReLU"), 2, 4, 3)):
        x = torch.randn(6, 4)
        hidden = network.layers[:-1](x if isinstance(network, MLP) else x.expand(2, -1, -1))
        with torch.autocast("cpu", torch.bfloat16):
            found = network(x)
        assert found.dtype == torch.float32
        assert not torch.equal(found, network(x))
        torch.testing.assert_close(
            found, network.layers[-1](hidden.bfloat16().float()), atol=2e-2, rtol=0
        )
        assert not torch.equal(found, found.bfloat16().float())


def test_outputs_are_exact_with_an_activation_after_them():
    torch.manual_seed(0)
    cfg = MLPCfg(hidden_features=[8], activations=[[["ReLU", {}]], [["Tanh", {}]]])
    for network in (MLP(cfg, 4, 3), BatchedMLP(cfg, 2, 4, 3)):
        with torch.autocast("cpu", torch.bfloat16):
            found = network(torch.randn(6, 4)).atanh()
        assert not torch.allclose(found, found.bfloat16().float(), rtol=1e-5)


def test_batched_layer_norm_has_a_scale_per_copy():
    hidden = [("LayerNorm", {}), ("ReLU", {})]
    batched = BatchedMLP(MLPCfg(hidden_features=[4], activations=[hidden, []]), 2, 3, 1)
    with torch.no_grad():
        batched.layers[1].weight[1] = 0.0
    x = torch.randn(5, 3)
    out = batched(x)
    assert out[0].std() > 0
    assert torch.equal(out[1], batched.layers[-1].bias[1].expand(5, 1))


def test_critics_start_as_torch_layers_do():
    torch.manual_seed(0)
    weight = BatchedMLP(plain_mlp([100], "ReLU"), 2, 64, 1).layers[0].weight
    assert weight.abs().max().item() == pytest.approx(1 / 8, rel=1e-2)
    assert weight.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=3e-2)
    assert not torch.equal(weight[0], weight[1])


def test_dropout_in_critics_is_refused():
    cfg = MLPCfg(hidden_features=[4], activations=[[("Dropout", {"p": 0.1})], []])
    with pytest.raises(ValueError, match=r"'Dropout'.*LayerNorm"):
        BatchedMLP(cfg, 2, 3, 1)


def build(encoder=None, **actor) -> tuple:
    torch.manual_seed(1)
    small = plain_mlp([16], "ReLU")
    pack = ActorQPackCfg(
        actor_cfg=SACActorCfg(backbone_cfg=small, encoder=encoder, **actor),
        critic_cfg=QNetworkCfg(backbone_cfg=small, encoder=encoder),
    )
    policy = pack.build(Interface(observation_dims={"policy": 3}, num_actions=2))
    if encoder is not None and isinstance(encoder, TransformerEncoderCfg):
        nn.init.normal_(policy.actor.memory.transformer.distance_bias)
    return policy, policy.actor


@pytest.mark.parametrize("encoder", ENCODERS, ids=["gru", "transformer"])
def test_a_deployed_memory_gives_the_features_that_training_unrolls(encoder):
    _, actor = build(encoder)
    x = torch.randn(6, 2, 3)
    starts = torch.zeros(6, 2, dtype=torch.bool)
    starts[0] = True
    starts[3, 0] = True
    memory = actor.initial_memory(2)
    unrolled, _ = actor.unroll(x, None, memory, starts)
    for t in range(6):
        memory = memory * (~starts[t]).view(1, -1, 1)
        features, memory = actor.encode(x[t], memory)
        torch.testing.assert_close(features, unrolled[t], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS, ids=["gru", "transformer"])
def test_what_a_step_led_to_is_encoded_after_its_own_history(encoder):
    _, actor = build(encoder)
    x, after = torch.randn(5, 2, 3), torch.randn(5, 2, 3)
    starts = torch.zeros(5, 2, dtype=torch.bool)
    starts[0] = starts[3, 1] = True
    memory = actor.initial_memory(2)
    now, then = actor.unroll(x, after, memory, starts)
    again, _ = actor.unroll(x, None, memory, starts)
    torch.testing.assert_close(now, again, atol=1e-6, rtol=1e-5)
    # Row 2 of environment 1 is the last of its episode: x[0], x[1], x[2], and then after[2].
    own = torch.cat([x[:3, 1:], after[2:3, 1:]])
    first = torch.zeros(4, 1, dtype=torch.bool)
    first[0] = True
    expected, _ = actor.unroll(own, None, memory[:, 1:].contiguous(), first)
    torch.testing.assert_close(then[2, 1], expected[3, 0], atol=1e-5, rtol=1e-5)
    assert not then.requires_grad


@pytest.mark.parametrize("encoder", ENCODERS, ids=["gru", "transformer"])
def test_the_future_and_other_episodes_change_nothing(encoder):
    _, actor = build(encoder)
    x = torch.randn(6, 1, 3)
    starts = torch.zeros(6, 1, dtype=torch.bool)
    starts[0] = starts[4] = True
    memory = actor.initial_memory(1)
    before, _ = actor.unroll(x, None, memory, starts)
    changed = x.clone()
    changed[3] += 1.0  # the last step of the first episode
    after, _ = actor.unroll(changed, None, memory, starts)
    moved = (after - before).abs().amax(-1).flatten() > 1e-4
    assert moved.tolist() == [False, False, False, True, False, False]


def test_a_transformer_forgets_what_lies_before_its_context():
    _, actor = build(TransformerEncoderCfg(num_layers=2, width=8, num_heads=2, context=4))
    shared = torch.randn(4, 1, 3)
    results = []
    for first in (torch.zeros(1, 1, 3), torch.full((1, 1, 3), 9.0)):
        memory = actor.initial_memory(1)
        for x in torch.cat([first, shared]):
            features, memory = actor.encode(x, memory)
        results.append(features)
    assert torch.equal(*results)


@pytest.mark.parametrize("encoder", [None, *ENCODERS], ids=["none", "gru", "transformer"])
def test_the_actor_acts_as_a_control_policy(encoder):
    policy, actor = build(encoder, action_limit=0.5)
    deployed = policy.deployable()
    assert isinstance(deployed, ControlPolicy)
    observations = TensorDict({"policy": torch.randn(4, 3)}, [4])
    first = deployed.act(observations)
    assert first.shape == (4, 2)
    assert first.abs().max() < 0.5
    second = deployed.act(observations)
    assert torch.equal(first, second) == (encoder is None)
    deployed.reset(torch.tensor([True, False, False, False]))
    third = deployed.act(observations)
    torch.testing.assert_close(third[0], first[0], atol=1e-6, rtol=0)
    sampled = deployed.act(observations, greedy=False, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(sampled, third)
    assert actor.distribution(torch.zeros(4, 4)).mode.abs().max() == 0


def test_the_standard_deviation_is_bounded():
    _, actor = build(min_log_std=-3.0, max_log_std=0.5)
    outputs = torch.tensor([[0.0, 0.0, -100.0, 100.0]])
    assert actor.distribution(outputs).log_std.tolist() == [[-3.0, 0.5]]


def test_distributional_critics_give_positive_deviations():
    pack = ActorQPackCfg(critic_cfg=DistributionalQCfg(backbone_cfg=plain_mlp([8], "ReLU")))
    critic = pack.build(Interface(observation_dims={"policy": 3}, num_actions=2)).critic
    mean, std = critic.mean_and_std(torch.randn(5, 3), torch.randn(5, 2))
    assert mean.shape == std.shape == (2, 5)
    assert std.min() > 0


def test_a_privileged_critic_reads_its_own_group():
    interface = Interface(observation_dims={"policy": 3, "critic": 5}, num_actions=2)
    policy = ActorQPackCfg().build(interface)
    assert policy.actor.groups == ["policy"]
    assert policy.critic.groups == ["critic"]
    with pytest.raises(ValueError, match=r"'polcy'.*did you mean 'policy'"):
        ActorQPackCfg(actor_cfg=SACActorCfg(observation_groups=["polcy"])).build(interface)


def test_a_choice_of_actions_is_refused():
    interface = Interface(observation_dims={"policy": 4}, num_actions=1, num_choices=2, task="Cart")
    with pytest.raises(ValueError, match=r"Cart has 2 discrete actions.*train it with PPO"):
        ActorQPackCfg().build(interface)


@pytest.mark.parametrize("outputs", [1, 2])
def test_layers_of_copies_have_the_gradients_of_the_batched_product(outputs):
    torch.manual_seed(0)
    layer = BatchedLinear(3, 4, outputs).double()
    x = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    expected = torch.baddbmm(layer.bias, x, layer.weight)
    found = layer(x)
    torch.testing.assert_close(found, expected)
    inputs, weight = (x, *layer.parameters()), torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(y, inputs, weight) for y in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradgradcheck(lambda x, *_: layer(x).square(), inputs)
