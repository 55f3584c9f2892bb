"""Mixture of experts, variational autoencoder, FFT filter: by hand, and in a policy that learns."""

import math

import pytest
import torch

from rrf.algorithms import AuxiliaryPPOCfg, PPOCfg
from rrf.envs.control_env import Interface
from rrf.networks import FFTFilterCfg, MixtureOfExpertsCfg, VAEBackboneCfg, plain_mlp
from rrf.networks.blocks import low_passed, standard_normal_kl
from rrf.policies import (
    ActorCriticPackCfg,
    FilteredActorCfg,
    MemoryCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.presets import resolve
from rrf.runners import OnPolicyRunnerCfg
from rrf.runners.checkpoints.rsl_rl_checkpoint import expressible
from tests.algorithms.smooth.test_smooth_learning import LEARNING, STANDING_STILL
from tests.envs.toy import CorridorCfg
from tests.runners.control.test_off_policy_runner import assert_same, everything
from tests.runners.control.test_offline_runner import mean_return

TANH = {"hidden_features": [16], "activations": [[("Tanh", {})], []]}
LINEAR = {"hidden_features": [], "activations": [[]]}
MOE = MixtureOfExpertsCfg(**TANH)
VAE = VAEBackboneCfg(
    **TANH,
    latent_dim=2,
    encoder_cfg=plain_mlp([16], "Tanh"),
    decoder_cfg=plain_mlp([16], "Tanh"),
)


def generator():
    return torch.Generator().manual_seed(0)


def test_a_mixture_weighs_the_experts_that_the_gate_picks():
    network = MixtureOfExpertsCfg(**LINEAR, num_experts=3, num_active=2).build(1, 1)
    with torch.no_grad():
        network.gate.weight.copy_(torch.tensor([[math.log(3.0)], [0.0], [-9.0]]))
        network.gate.bias.zero_()
        for expert, slope in zip(network.experts, (1.0, 5.0, 100.0), strict=True):
            expert.layers[0].weight.fill_(slope)
            expert.layers[0].bias.zero_()
    x = torch.ones(1, 1)
    # log 3 and 0 are the largest logits: weights 3/4 and 1/4.
    torch.testing.assert_close(network.weights(x), torch.tensor([[0.75, 0.25, 0.0]]))
    assert network(x).item() == pytest.approx(0.75 * 1 + 0.25 * 5)


def test_the_balance_is_1_where_all_experts_get_the_same_and_learning_reaches_it():
    torch.manual_seed(0)
    network = MixtureOfExpertsCfg(**TANH, num_experts=4, num_active=1).build(2, 1)
    x = torch.randn(512, 2, generator=generator())
    with torch.no_grad():
        network.gate.bias[0] = 4.0  # everything goes to the first
        before, metrics = network.auxiliary_loss(x, generator())
    assert before > 3
    assert metrics["experts/largest_share"] > 0.9
    optimizer = torch.optim.Adam(network.gate.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        network.auxiliary_loss(x, generator())[0].backward()
        optimizer.step()
    loss, metrics = network.auxiliary_loss(x, generator())
    assert loss.item() == pytest.approx(1, abs=0.1)
    assert metrics["experts/largest_share"] < 0.4


def test_divergence_from_a_standard_normal_distribution_by_hand():
    zeros = torch.zeros(1, 2)
    assert standard_normal_kl(zeros, zeros).item() == 0
    # 1/2 (1 + 4 - 1 - log 4) for mean 1 and variance 4, twice
    found = standard_normal_kl(torch.ones(1, 2), torch.full((1, 2), math.log(4)))
    assert found.item() == pytest.approx(4 - math.log(4))


def test_an_autoencoder_finds_the_line_that_its_inputs_lie_on():
    torch.manual_seed(0)
    network = VAEBackboneCfg(**TANH, latent_dim=1, beta=0.01).build(3, 1)
    line = torch.randn(256, 1, generator=generator()) * torch.tensor([[1.0, -1.0, 0.5]])
    off_it = line + torch.tensor([[1.0, 1.0, 0.0]])
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    noise = generator()
    for _ in range(300):
        optimizer.zero_grad()
        network.auxiliary_loss(line, noise)[0].backward()
        optimizer.step()
    variance = 0.5 * line.square().sum(-1).mean()
    with torch.no_grad():
        assert network.auxiliary_loss(line, noise)[1]["loss/reconstruction"] < 0.1 * variance
        assert network.auxiliary_loss(off_it, noise)[1]["loss/reconstruction"] > 0.5
        assert torch.equal(network(line), network(line))  # not random


def filtered(values, cutoff=0.25, window=8):
    """`values` [T] through a filter step by step."""
    module = FFTFilterCfg(window=window, cutoff=cutoff).build(1)
    memory, outputs = module.initial_memory(1), []
    for value in values:
        output, memory = module.step(value.view(1, 1), memory)
        outputs.append(output.item())
    return torch.tensor(outputs)


def test_slow_changes_pass_the_filter_and_fast_ones_do_not():
    constant = torch.full((20,), 3.0)
    torch.testing.assert_close(filtered(constant), constant)
    times = torch.arange(200.0)
    slow, fast = torch.sin(2 * math.pi * times / 64), torch.cos(math.pi * times)
    assert filtered(slow)[20:].std() > 0.9 * slow.std()
    assert filtered(fast)[20:].std() < 0.35 * fast.std()
    torch.testing.assert_close(filtered(fast, cutoff=1.0), fast)  # everything passes


def test_filtering_is_the_fft_of_the_mirrored_window():
    values = torch.randn(30, generator=generator())
    window = values[12:20].double()
    spectrum = torch.fft.fft(torch.cat([window, window.flip(0)]))
    spectrum[3:14] = 0  # of 16 frequencies, 0, 1, 2 and their conjugates 14, 15 stay
    expected = torch.fft.ifft(spectrum).real
    assert filtered(values)[19].item() == pytest.approx(expected[7].item(), abs=1e-5)
    torch.testing.assert_close(low_passed(window, 0.25), expected[:8])


def test_a_filter_never_looks_ahead():
    first, second = torch.randn(2, 30, generator=generator())
    second[:17] = first[:17]
    torch.testing.assert_close(filtered(first)[:17], filtered(second)[:17])
    assert filtered(first)[17] != filtered(second)[17]


def test_along_sequences_a_filter_does_what_it_does_step_by_step():
    module = FFTFilterCfg().build(2)
    x = torch.randn(40, 3, 2, generator=generator())
    starts = torch.rand(40, 3, generator=generator()) < 0.15
    starts[0] = torch.tensor([False, True, False])
    memory = module.initial_memory(3)
    for value in torch.randn(5, 3, 2, generator=generator()):
        _, memory = module.step(value, memory)
    memory[:, 2] = 0  # the third environment remembers nothing
    outputs, memories = module.sequence(x, memory, starts)
    for t in range(40):
        memory = torch.where(starts[t].view(1, -1, 1), 0.0, memory)
        output, memory = module.step(x[t], memory)
        torch.testing.assert_close(outputs[t], output)
        torch.testing.assert_close(memories[t], memory)


@pytest.mark.parametrize(
    ("algorithm", "actor"),
    [
        (AuxiliaryPPOCfg(**LEARNING), StateIndStdActorCfg(backbone_cfg=MOE, init_std=0.5)),
        (AuxiliaryPPOCfg(**LEARNING), StateIndStdActorCfg(backbone_cfg=VAE, init_std=0.5)),
        (PPOCfg(**LEARNING), FilteredActorCfg(backbone_cfg=plain_mlp([16], "Tanh"), init_std=0.5)),
    ],
    ids=["experts", "autoencoder", "filter"],
)
@pytest.mark.parametrize("iterations", [2, pytest.param(16, marks=pytest.mark.slow)])
def test_a_policy_with_it_learns_and_resumes_bit_for_bit(tmp_path, algorithm, actor, iterations):
    cfg = OnPolicyRunnerCfg(
        env=CorridorCfg(num_envs=32),
        policy=ActorCriticPackCfg(
            actor_cfg=actor, critic_cfg=VNetworkCfg(backbone_cfg=plain_mlp([16], "Tanh"))
        ),
        algorithm=algorithm,
        num_steps_per_env=25,
        max_iterations=iterations,
        save_interval=iterations - 1,
    )
    result = cfg.build(tmp_path / "whole").run()
    if iterations == 16:
        assert result["metrics"]["rollout/return"] > 0.65 * STANDING_STILL
        assert mean_return(result["checkpoint"]) > 0.6 * STANDING_STILL  # as deployed
    resumed = cfg.build(tmp_path / "whole")
    (tmp_path / "whole" / f"global_step_{iterations}").rename(tmp_path / "last")
    again = resumed.run()
    assert_same(everything(result | {"checkpoint": tmp_path / "last"}), everything(again))


def learner(algorithm, **networks):
    pack = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(**networks.get("actor", {})),
        critic_cfg=VNetworkCfg(**networks.get("critic", {})),
    )
    return algorithm.build(pack.build(Interface({"policy": 2}, 1)), 2, 4, generator())


def test_what_does_not_fit_is_refused():
    auxiliary = AuxiliaryPPOCfg(num_mini_batches=2)
    with pytest.raises(ValueError, match="backbone is a MLP, which has no loss of its own"):
        learner(auxiliary)
    with pytest.raises(ValueError, match="the critic's backbone is a VAEBackbone"):
        learner(auxiliary, actor={"backbone_cfg": MOE}, critic={"backbone_cfg": VAE})
    with pytest.raises(ValueError, match=r"set policy\.actor_cfg\.memory=null"):
        learner(auxiliary, actor={"backbone_cfg": MOE, "memory": MemoryCfg()})
    with pytest.raises(ValueError, match="num_active is 5, allowed: 1 to num_experts, which is 4"):
        MixtureOfExpertsCfg(num_active=5)
    with pytest.raises(ValueError, match="a window of 2 or more, a cutoff above 0"):
        FFTFilterCfg(cutoff=0.0)
    with pytest.raises(ValueError, match="a filtered actor has the filter's memory"):
        FilteredActorCfg(memory=MemoryCfg())
    policy = learner(auxiliary, actor={"backbone_cfg": MOE}).policy
    with pytest.raises(ValueError, match="is a MixtureOfExpertsCfg, but rsl_rl supports only"):
        expressible(policy)


@pytest.mark.parametrize("name", ["pendulum-moe", "pendulum-vae", "pendulum-fft"])
def test_presets_train(tmp_path, name):
    cfg = resolve(name, {"max_iterations": 1, "num_steps_per_env": 16, "trackers": []})
    assert cfg.build(tmp_path).run()["steps"] == 1
