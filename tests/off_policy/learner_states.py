"""Compare what gradient steps of two off-policy learners left behind."""

import torch

from rrf.algorithms.off_policy.learner import OffPolicyLearner


def state(learner: OffPolicyLearner) -> dict[str, torch.Tensor]:
    """Everything that a gradient step changes."""
    weights = {name: one.clone() for name, one in learner.policy.state_dict().items()}
    return learner.state()[0] | weights


def assert_close(found: dict, expected: dict, tolerance: float = 2e-5) -> None:
    """Fail unless all tensors but the replay's are equal, up to rounding."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if not name.startswith("replay/"):
            torch.testing.assert_close(found[name], value, atol=tolerance, rtol=tolerance)
