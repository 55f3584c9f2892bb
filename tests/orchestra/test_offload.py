"""Tensors that leave and come back."""

import copy

import pytest
import torch
from torch import nn

from rrf.orchestra.offload import Offload, tensors_of
from rrf.orchestra.weight_sync import WeightSender
from tests.orchestra import toy


@pytest.fixture
def trained():
    """A module and its optimizer after a step."""
    module = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32))
    optimizer = torch.optim.AdamW(module.parameters())
    step(module, optimizer, 0)
    return module, optimizer


def step(module, optimizer, seed):
    generator = torch.Generator().manual_seed(seed)
    module(torch.randn(8, 64, generator=generator)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def size_of(tensors):
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def test_what_left_takes_no_memory_and_comes_back_with_the_same_bits(trained):
    offload = Offload(lambda: tensors_of(*trained))
    before = [tensor.clone() for tensor in tensors_of(*trained)]
    offload.leave()
    assert size_of(tensors_of(*trained)) == 0
    assert offload.num_bytes == size_of(before)
    offload.leave()  # it is away
    offload.back()
    offload.back()  # it is here
    for one, other in zip(tensors_of(*trained), before, strict=True):
        assert torch.equal(one, other)
        assert one.shape == other.shape
    assert offload.seconds > 0


def test_a_step_after_coming_back_is_the_step_without_having_left(trained):
    module, optimizer = trained
    twin, theirs = copy.deepcopy(trained)
    offload = Offload(lambda: tensors_of(module, optimizer))
    offload.leave()
    offload.back()
    step(module, optimizer, 1)
    step(twin, theirs, 1)
    for one, other in zip(module.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_a_rollout_that_left_gets_the_weights_that_are_sent_to_it(tmp_path):
    rollouts = pytest.importorskip("rrf.orchestra.ray_rollouts", reason="Ray is not installed")
    parent, sender = toy.save_parent(tmp_path), WeightSender()
    actor = rollouts.RolloutActor(toy.POLICY.to_dict(), toy.STATS, str(parent), "cpu", 4, "fp32")
    weights = {name: value.clone() for name, value in actor._policy.state_dict().items()}
    actor.load(sender.message(weights, 0), 1.0)
    assert actor.leave() > 0
    assert size_of(actor._policy.parameters()) == 0
    changed = {name: value + 1 for name, value in weights.items()}
    actor.load(sender.message(changed, 1), 1.0)
    now = actor._policy.state_dict()
    assert all(torch.equal(now[name], changed[name]) for name in changed)
