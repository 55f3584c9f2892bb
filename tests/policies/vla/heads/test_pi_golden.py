"""pi0 and pi0.5 against numbers that openpi computed; see tests/golden/README.md."""

import pytest
import torch

from rrf.policies.vla.flow_matching import denoise, noised, velocity_target
from rrf.policies.vla.heads.pi import time_features
from rrf.policies.vla.published.pi_checkpoints import our_name
from tests.golden_files import close
from tests.policies.vla.pi_golden import golden_context, golden_pi, golden_policy, golden_prefix

BOTH = pytest.mark.parametrize("version", ["pi0", "pi05"])


@BOTH
def test_prefix_and_suffix_equal_openpi(version):
    golden, policy = golden_pi(version), golden_policy(version)
    prefix = golden_prefix(policy, golden.inputs)
    close(prefix.vectors, golden.outputs["prefix_embs"], 5e-6)
    assert torch.equal(prefix.is_token, golden.outputs["prefix_pad_mask"])
    time = golden.inputs["time"]
    close(time_features(time, 32), golden.outputs["time_embedding"].float(), 1e-6)
    given = policy.head.given(golden_context(policy, golden.inputs))
    suffix, condition = policy.head.suffix(given, golden.inputs["noise"], time)
    close(suffix, golden.outputs["suffix_embs"], 5e-6)
    if version == "pi05":
        close(condition, golden.outputs["adarms_cond"], 1e-6)


@BOTH
def test_loss_and_gradients_equal_openpi(version):
    golden, policy = golden_pi(version), golden_policy(version)
    inputs = golden.inputs
    given = policy.head.given(golden_context(policy, inputs))
    x = noised(inputs["actions"], inputs["noise"], inputs["time"])
    velocity, _ = policy.head.velocity(given, x, inputs["time"])
    close(velocity, golden.outputs["v_t"], 1e-5)
    wanted = velocity_target(inputs["actions"], inputs["noise"], "openpi")
    loss = (velocity - wanted).square()
    close(loss, golden.outputs["loss"], 4e-5)
    loss.mean().backward()
    grads = {name: parameter.grad for name, parameter in policy.named_parameters()}
    for name, expected in golden.grads.items():
        close(grads[our_name(name)], expected, 5e-7)
    for name, expected in golden.norms.items():
        if "lm_head" not in name and our_name(name) in grads:
            found = grads[our_name(name)]
            norm = 0.0 if found is None else found.norm().item()
            assert norm == pytest.approx(expected, rel=1e-4, abs=1e-6), name


@BOTH
@pytest.mark.parametrize("num_steps", [10, 4])
def test_denoised_actions_equal_openpi(version, num_steps):
    golden = golden_pi(version)
    policy = golden_policy(version, {"num_denoise_steps": num_steps})
    noise = golden.inputs["noise"]
    with torch.no_grad():
        given = policy.head.given(golden_context(policy, golden.inputs))
        no_randomness = torch.zeros(2, num_steps, dtype=torch.bool)
        zeros = torch.zeros(2, num_steps, *noise.shape[1:])
        chain, _ = denoise(policy.head.transition(given), noise, zeros, no_randomness)
    close(chain[:, -1], golden.outputs[f"actions_{num_steps}steps"], 5e-6)
