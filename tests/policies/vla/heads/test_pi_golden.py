"""pi0 and pi0.5 against numbers that openpi computed; see tests/golden/README.md."""

import re

import pytest
import torch

from rrf.policies.vla.flow_matching import denoise, noised, velocity_target
from rrf.policies.vla.heads.pi import time_features
from rrf.policies.vla.published.pi_checkpoints import our_name
from tests.closeness import assert_close
from tests.policies.vla.pi_golden import (
    golden_context,
    golden_pi,
    golden_policy,
    golden_prefix,
    sizes,
)

VERSIONS = ["pi0", "pi05"]
BOTH = pytest.mark.parametrize("version", VERSIONS)


def denoised_cases() -> list[tuple[str, int]]:
    """Versions, and how many steps their actions were denoised in."""
    keys = {version: golden_pi(version).outputs for version in VERSIONS}
    found = [(v, re.fullmatch(r"actions_(\d+)steps", key)) for v in VERSIONS for key in keys[v]]
    return [(version, int(match[1])) for version, match in found if match]


@BOTH
def test_prefix_and_suffix_equal_openpi(version):
    golden, policy = golden_pi(version), golden_policy(version)
    prefix = golden_prefix(policy, golden.inputs)
    assert_close(prefix.vectors, golden.outputs["prefix_embs"])
    assert torch.equal(prefix.is_token, golden.outputs["prefix_pad_mask"])
    time = golden.inputs["time"]
    assert_close(
        time_features(time, sizes(version)["exp"]["width"], (4e-3, 4.0)),
        golden.outputs["time_embedding"].float(),
    )
    given = policy.head.given(golden_context(policy, golden.inputs))
    suffix, condition = policy.head.suffix(given, golden.inputs["noise"], time)
    assert_close(suffix, golden.outputs["suffix_embs"])
    if version == "pi05":
        assert_close(condition, golden.outputs["adarms_cond"])


@BOTH
def test_loss_and_gradients_equal_openpi(version):
    golden, policy = golden_pi(version), golden_policy(version)
    inputs = golden.inputs
    given = policy.head.given(golden_context(policy, inputs))
    x = noised(inputs["actions"], inputs["noise"], inputs["time"])
    velocity, _ = policy.head.velocity(given, x, inputs["time"])
    assert_close(velocity, golden.outputs["v_t"])
    wanted = velocity_target(inputs["actions"], inputs["noise"], "openpi")
    loss = (velocity - wanted).square()
    assert_close(loss, golden.outputs["loss"])
    loss.mean().backward()
    grads = {name: parameter.grad for name, parameter in policy.named_parameters()}
    for name, expected in golden.grads.items():
        assert_close(grads[our_name(name)], expected, ulps=32)  # forward and back
    for name, expected in golden.norms.items():
        if "lm_head" not in name and our_name(name) in grads:
            found = grads[our_name(name)]
            assert_close(0.0 if found is None else found.norm().item(), expected, ulps=64)


@pytest.mark.parametrize(("version", "num_steps"), denoised_cases())
def test_denoised_actions_equal_openpi(version, num_steps):
    golden = golden_pi(version)
    policy = golden_policy(version, {"num_denoise_steps": num_steps})
    noise = golden.inputs["noise"]
    with torch.no_grad():
        given = policy.head.given(golden_context(policy, golden.inputs))
        no_randomness = torch.zeros(len(noise), num_steps, dtype=torch.bool)
        zeros = torch.zeros(len(noise), num_steps, *noise.shape[1:])
        chain, _ = denoise(policy.head.transition(given), noise, zeros, no_randomness)
    assert_close(chain[:, -1], golden.outputs[f"actions_{num_steps}steps"])
