"""Policies computed in a chosen precision, some rows at a time."""

import contextlib
import typing

import torch
from torch import nn

from rrf.data.schema import Observation
from rrf.envs.observations import rows_of
from rrf.policies.policy import Policy

Precision = typing.Literal["fp32", "bf16"]


def device_of(policy: Policy) -> torch.device:
    """The device of a policy's weights."""
    assert isinstance(policy, nn.Module)
    return next(policy.parameters()).device


def autocast(policy: Policy, precision: Precision) -> contextlib.AbstractContextManager:
    """The context in which a policy computes in float32, or in bfloat16 from float32 weights."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device_of(policy).type, torch.bfloat16)


@torch.no_grad()
def log_probs_of(
    policy: Policy,
    observation: Observation,
    replay: dict[str, torch.Tensor],
    precision: Precision = "fp32",
    num_rows: int | None = None,
) -> torch.Tensor:
    """Log-probabilities of choices made earlier, float32 [B, H * A], on the CPU.

    Args:
        policy: Evaluates them.
        observation: B rows.
        replay: [B, ...], see `rrf.policies.policy.Sample`.
        precision: That of the forward passes.
        num_rows: Rows of a forward pass; None for all.
    """
    device, parts = device_of(policy), []
    for index in torch.arange(len(observation)).split(num_rows or len(observation)):
        given = {name: values[index].to(device) for name, values in replay.items()}
        with autocast(policy, precision):
            log_prob = policy.evaluate(rows_of(observation, index.numpy()), given).log_prob
        parts.append(log_prob.float().cpu())
    return torch.cat(parts)
