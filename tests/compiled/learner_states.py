"""Draw batches, and compare what gradient steps of two learners of state-based control left behind.

`steps` makes so many gradient steps, the first on the batch with this number.
"""

import typing
from collections.abc import Callable

import pytest
import torch

from rrf.algorithms.off_policy.learner import Batch, OffPolicyLearner
from rrf.algorithms.on_policy.ppo import PPO
from rrf.compiled import perceptron
from rrf.storage.replay import Transitions

Steps = Callable[..., list]


def shift_normalizers(*networks: typing.Any) -> None:
    """Let those that normalise see observations of another mean and spread than 0 and 1."""
    for network in networks:
        if network.normalizer is not None:
            network.normalizer.update(torch.randn(50, network.width) * 3 + 1)


def drawn_batch(
    learner: OffPolicyLearner, generator: torch.Generator, size: int | None = None
) -> Batch:
    """A batch of random transitions, by default of the learner's batch size."""
    size = size or learner.cfg.batch_size
    rows = torch.randn(size, learner.layout.width, generator=generator)
    discounts = 0.99 * (torch.rand(size, generator=generator) < 0.9)
    return Batch(Transitions(rows, learner.layout), discounts, torch.arange(size))


def state(learner: OffPolicyLearner | PPO) -> dict[str, torch.Tensor]:
    """Everything that a gradient step changes."""
    weights = {name: one.clone() for name, one in learner.policy.state_dict().items()}
    return learner.state()[0] | weights


def assert_close(found: dict, expected: dict, tolerance: float = 2e-5) -> None:
    """Fail unless all tensors but the replay's are equal, up to rounding."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if not name.startswith("replay/"):
            torch.testing.assert_close(found[name], value, atol=tolerance, rtol=tolerance)


def assert_threads_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[], typing.Any], steps: Steps
) -> None:
    """Fail unless one, two and three threads compute the same."""
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(perceptron, "num_threads", lambda threads=threads: threads)
        learner = build()
        found.append((steps(learner, 3), state(learner)))
    for metrics, tensors in found[1:]:
        assert metrics == found[0][0]
        assert all(torch.equal(one, found[0][1][name]) for name, one in tensors.items())


def assert_continues(build: Callable[[], typing.Any], steps: Steps) -> None:
    """Fail unless a learner continues from the state of another bit for bit."""
    whole, first, second = (build() for _ in range(3))
    steps(whole, 6)
    steps(first, 3)
    tensors, facts = first.state()
    steps(second, 1)  # so that it holds addresses that the state replaces
    second.policy.load_state_dict(first.policy.state_dict())
    second.load_state(tensors, facts)
    steps(second, 3, first=3)
    expected, found = state(whole), state(second)
    for name in expected.keys() - {"replay/rows"}:
        assert torch.equal(found[name], expected[name]), name


def assert_slow_alike(
    compiled: OffPolicyLearner | PPO,
    plain: OffPolicyLearner | PPO,
    steps: Steps,
    tolerance: float = 2e-5,
) -> None:
    """Fail unless both learn the same after their learning rates were lowered."""
    for learner in (compiled, plain):
        steps(learner, 2)
        learner.slow_down(0.1)
        steps(learner, 2, first=2)
    assert_close(state(compiled), state(plain), tolerance)


def assert_odd_batches_count(
    compiled: OffPolicyLearner, plain: OffPolicyLearner, steps: Steps, tolerance: float = 2e-5
) -> None:
    """Fail unless Adam counts a step on a batch of another size, which torch makes."""
    for learner in (compiled, plain):
        steps(learner, 1)
        steps(learner, 1, first=1, size=learner.cfg.batch_size + 2)
        steps(learner, 2, first=2)
    assert_close(state(compiled), state(plain), tolerance)
