"""Denoising steps against golden data of RLinf, torch.distributions and numbers worked by hand.

In the golden data flow_noise stands for reinflow.
"""

import math

import pytest
import torch
from torch.nn import functional

from rrf.policies.vla.flow_matching import (
    ExploreNoiseNet,
    cps_step,
    denoise,
    flow_time,
    gaussian_entropy,
    gaussian_log_prob,
    joint_mean,
    noise_share,
    noised,
    ode_step,
    reinflow_step,
    sde_step,
    step_log_prob,
    time_embedding,
    velocity_target,
)
from tests.closeness import assert_close
from tests.golden_files import cases, golden

FILE = "rlinf_flow.npz"
LOG_PROB = 96
"""Ulps of log-probabilities: ((x - mean) / std)^2 / 2 counts the rounding of x many times where std
is small."""


def golden_noise_net() -> ExploreNoiseNet:
    config, arrays = golden(FILE, "explore_noise_net")
    net = ExploreNoiseNet(
        config["in_dim"], config["out_dim"], config["hidden_dims"], *config["std_range"]
    )
    weights = {  # every linear layer of ours is followed by its tanh
        f"layers.{2 * layer}.{name}": arrays[f"state.mlp_logvar.moduleList.{layer}.linear_1.{name}"]
        for layer in range(len(config["hidden_dims"]) + 1)
        for name in ("weight", "bias")
    }
    net.mlp.load_state_dict(weights)
    return net


def noise_level(config) -> float:
    """That of the case, lowered as far as it was by then."""
    if not config.get("noise_anneal"):
        return config["noise_level"]
    first, last, num_updates = config["noise_anneal"]
    return first + (last - first) * min(config["global_step"] / num_updates, 1.0)


def random_step(config, x_bha, velocity_bha, steps_b, features):
    arguments = (x_bha, velocity_bha, steps_b, config["num_steps"], config["convention"])
    match config["method"]:
        case "flow_ode":
            return ode_step(*arguments)
        case "flow_sde":
            return sde_step(*arguments, noise_level(config))
        case "flow_cps":
            return cps_step(*arguments, noise_level(config))
    return reinflow_step(*arguments, golden_noise_net()(features).detach())


def golden_transition(config, arrays):
    """The policy whose velocity at step k is the stored one, whatever x is."""

    def transition(x_bha, steps_b):
        rows = torch.arange(len(steps_b))
        velocity = arrays["v"][steps_b, rows]
        features = arrays["features"][steps_b, rows] if "features" in arrays else None
        arguments = (x_bha, velocity, steps_b, config["num_steps"], config["convention"])
        ode, _ = ode_step(*arguments)
        return ode, *random_step(config, x_bha, velocity, steps_b, features)

    return transition


@pytest.mark.parametrize("case", cases(FILE, "step_.*"))
def test_steps_and_their_log_probs_equal_golden_data(case):
    config, arrays = golden(FILE, case)
    for step in range(config["num_steps"]):
        x, velocity = arrays["x_t"][step], arrays["v"][step]
        steps = torch.full((len(x),), step)
        features = arrays["features"][step] if "features" in arrays else None
        mean, std = random_step(config, x, velocity, steps, features)
        assert_close(mean, arrays["mean"][step])
        assert_close(std.expand_as(mean), arrays["std"][step].expand_as(mean))
        assert_close(mean + std * arrays["z"][step], arrays["x_next"][step])
        log_prob = gaussian_log_prob(arrays["x_next"][step], mean, std)
        assert_close(log_prob, arrays["logprob"][step], ulps=LOG_PROB)


@pytest.mark.parametrize("case", cases(FILE, "chain_.*", joint_logprob=False))
def test_a_chain_with_one_random_step_equals_golden_data(case):
    config, arrays = golden(FILE, case)
    index = arrays["denoise_inds"][:, 0]
    transition = golden_transition(config, arrays)
    is_random = functional.one_hot(index, config["num_steps"]).bool()
    chain, log_probs = denoise(transition, arrays["x_init"], arrays["z"].transpose(0, 1), is_random)
    assert_close(chain, arrays["chains"])
    assert_close(chain[:, -1], arrays["actions"])
    executed = log_probs[:, :, : config["action_chunk"], : config["action_env_dim"]]
    if config["convention"] == "openpi":  # which keeps the random step alone
        executed = executed.sum(1)
    assert_close(executed, arrays["rollout_logprobs"], ulps=LOG_PROB)
    log_prob, entropy = step_log_prob(transition, arrays["chains"], index)
    assert_close(log_prob, arrays["train_logprobs_all"][:, 0], ulps=LOG_PROB)
    if "entropy_all" in arrays:
        assert_close(entropy, arrays["entropy_all"][:, 0])


@pytest.mark.parametrize("case", cases(FILE, "chain_.*", joint_logprob=True))
def test_a_chain_of_random_steps_equals_golden_data(case):
    config, arrays = golden(FILE, case)
    transition = golden_transition(config, arrays)
    num_samples = len(arrays["x_init"])
    is_random = torch.ones(num_samples, config["num_steps"], dtype=torch.bool)
    normals = arrays["z"].transpose(0, 1)
    chain, log_probs = denoise(transition, arrays["x_init"], normals, is_random)
    assert_close(chain, arrays["chains"])
    start = gaussian_log_prob(chain[:, 0], torch.zeros(()), torch.ones(()))
    executed = joint_mean(start, log_probs)[:, : config["action_chunk"], : config["action_env_dim"]]
    assert_close(executed, arrays["rollout_logprobs"], ulps=LOG_PROB)
    expected, entropies = arrays["train_logprobs_all"], arrays.get("entropy_all")
    assert_close(start, expected[:, 0], ulps=LOG_PROB)
    for step in range(config["num_steps"]):
        steps = torch.full((num_samples,), step)
        log_prob, entropy = step_log_prob(transition, arrays["chains"], steps)
        assert_close(log_prob, expected[:, step + 1], ulps=LOG_PROB)
        if entropies is not None:
            assert_close(entropy, entropies[:, step + 1])


def test_explore_noise_net_stays_between_its_bounds_and_holds_the_golden_ones():
    net, (config, arrays) = golden_noise_net(), golden(FILE, "explore_noise_net")
    assert_close(net.min_log_variance, arrays["state.logvar_min"].item())
    assert_close(net.max_log_variance, arrays["state.logvar_max"].item())
    least, largest = config["std_range"]
    generator = torch.Generator().manual_seed(0)
    std = net(1000 * torch.randn(200, config["in_dim"], generator=generator))
    assert std.min() >= least - 1e-6
    assert std.max() <= largest + 1e-6
    last = net.mlp.layers[2 * len(config["hidden_dims"])]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias[:3] = torch.tensor([-50.0, 0.0, 50.0])
    # tanh -1, 0 and 1: the least std, the geometric mean, the largest
    expected = [least, math.sqrt(least * largest), largest]
    assert net(torch.zeros(config["in_dim"]))[:3].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("convention", ["openpi", "gr00t"])
@pytest.mark.parametrize("method", ["flow_sde", "flow_cps", "flow_noise"])
def test_step_log_probs_and_entropies_equal_those_of_torch_distributions(method, convention):
    generator = torch.Generator().manual_seed(1)
    config = {"method": method, "convention": convention, "num_steps": 5, "noise_level": 0.7}
    net, _ = golden(FILE, "explore_noise_net")
    x, velocity, z = torch.randn(3, 4, 2, net["out_dim"], generator=generator)
    features = torch.randn(4, 2, net["in_dim"], generator=generator)
    steps = torch.tensor([0, 1, 2, 3])
    mean, std = random_step(config, x, velocity, steps, features)
    reference = torch.distributions.Normal(mean, std.expand_as(mean))
    other = mean + std * z
    assert_close(gaussian_log_prob(other, mean, std), reference.log_prob(other), ulps=LOG_PROB)
    assert_close(gaussian_entropy(std).expand_as(mean), reference.entropy())


def test_an_element_without_noise_has_log_prob_entropy_and_gradient_zero():
    mean = torch.tensor([1.0, 1.0], requires_grad=True)
    std = torch.tensor([0.0, 2.0], requires_grad=True)
    log_prob = gaussian_log_prob(torch.tensor([5.0, 1.0]), mean, std)
    # -log(2) - log(sqrt(2 pi)) = -0.6931472 - 0.9189385
    assert log_prob.tolist() == pytest.approx([0.0, -1.6120857])
    # 1/2 + log(sqrt(2 pi)) + log(2)
    assert gaussian_entropy(std).tolist() == pytest.approx([0.0, 2.1120857])
    (log_prob.sum() + gaussian_entropy(std).sum()).backward()
    assert mean.grad is not None
    assert std.grad is not None
    assert mean.grad.tolist() == [0.0, 0.0]
    assert std.grad.tolist() == pytest.approx([0.0, 0.0])  # -1/2 from one, 1/2 from the other


@pytest.mark.parametrize("convention", ["openpi", "gr00t"])
def test_the_true_velocity_leads_from_noise_to_action(convention):
    action, noise = torch.full((1, 1, 1), 0.3), torch.full((1, 1, 1), -2.0)
    velocity = velocity_target(action, noise, convention)

    def transition(x_bha, steps_b):
        ode, std = ode_step(x_bha, velocity, steps_b, 4, convention)
        return ode, ode, std

    is_random = torch.zeros(1, 4, dtype=torch.bool)
    chain, _ = denoise(transition, noise, torch.zeros(1, 4, 1, 1), is_random)
    # from -2.0 to 0.3 in four steps of 0.575
    assert chain.flatten().tolist() == pytest.approx([-2.0, -1.425, -0.85, -0.275, 0.3], abs=1e-6)


def test_conventions_differ_in_the_time_a_network_reads_and_the_sign_of_its_velocity():
    share = noise_share(torch.tensor([0, 1, 4]), 4)
    assert share.tolist() == [1.0, 0.75, 0.0]
    assert flow_time(share, "openpi").tolist() == [1.0, 0.75, 0.0]
    assert flow_time(share, "gr00t").tolist() == [0.0, 0.25, 1.0]
    action, noise = torch.full((3, 1, 1), 2.0), torch.full((3, 1, 1), 6.0)
    assert noised(action, noise, share).flatten().tolist() == [6.0, 5.0, 2.0]
    assert velocity_target(action, noise, "openpi").flatten().tolist() == [4.0] * 3
    assert velocity_target(action, noise, "gr00t").flatten().tolist() == [-4.0] * 3


def noise_left_after(step) -> list[float]:
    """Std of the noise after each of 4 steps, were the velocity perfect and the action 0."""
    left = []
    for k in range(4):
        steps = torch.tensor([k])
        velocity = torch.ones(1, 1, 1)
        x = noise_share(steps, 4)[:, None, None] * velocity
        mean, std = step(x, velocity, steps, 4, "openpi", 0.5)
        left.append((mean**2 + std**2).sqrt().item())
    return left


def test_cps_preserves_the_variance_and_the_sde_leaves_noise_in_the_action():
    assert noise_left_after(cps_step) == pytest.approx([0.75, 0.5, 0.25, 0.0], abs=1e-6)
    # First step: drift 0.25 / 2, mean 0.625, std 0.5; last: mean -1/24, std sqrt(1/48).
    after_sde = noise_left_after(sde_step)
    assert after_sde[0] == pytest.approx((0.625**2 + 0.25) ** 0.5, abs=1e-6)
    assert after_sde[3] == pytest.approx((1 / 24**2 + 1 / 48) ** 0.5, abs=1e-6)


def test_one_batch_may_hold_samples_at_different_steps():
    generator = torch.Generator().manual_seed(2)
    x, velocity = torch.randn(2, 3, 2, 2, generator=generator)
    mixed = torch.tensor([2, 0, 1])
    for step in (sde_step, cps_step):
        mean, std = step(x, velocity, mixed, 3, "gr00t", 0.5)
        for row in range(3):
            one = slice(row, row + 1)
            alone = step(x[one], velocity[one], mixed[one], 3, "gr00t", 0.5)
            assert_close(mean[one], alone[0])
            assert_close(std[one], alone[1])


def test_time_embedding_holds_sines_then_cosines():
    # frequencies 1 and e^4 = 54.59815 at time 0.5
    embedding = time_embedding(torch.tensor([0.0, 0.5]), 4)
    assert embedding[0].tolist() == [0.0, 0.0, 1.0, 1.0]
    expected = [math.sin(0.5), math.sin(27.299075), math.cos(0.5), math.cos(27.299075)]
    assert embedding[1].tolist() == pytest.approx(expected, abs=1e-5)
