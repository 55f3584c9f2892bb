import pytest
import torch

from rrf.algorithms import CAPSCfg, LCPCfg, LipsCfg
from rrf.algorithms.smooth.terms import projected_jacobian
from rrf.policies.control.actor_critic import GaussianActor
from tests.algorithms.on_policy import linear

WEIGHT = [[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]]  # ||W||_F^2 = 1 + 4 + 1 + 9 = 15
STATES = [[0.0, 0.0, 0.0]]


def test_one_projection_by_hand():
    # v^T W for v = (2, 1) is (2, 3, 3).
    x = torch.tensor([[1.0, 1.0, 1.0]], requires_grad=True)
    outputs = x @ torch.tensor(WEIGHT).T
    product = projected_jacobian(outputs, x, torch.tensor([[2.0, 1.0]]))
    assert product.tolist() == [[2.0, 3.0, 3.0]]


def test_projections_average_to_the_squared_norm_of_the_jacobian():
    built = linear.policy(WEIGHT)
    learner = linear.algorithm(LipsCfg(jacobian_coef=0.1), built)
    states = torch.zeros(40_000, 3).tolist()
    actions = torch.zeros(40_000, 2).tolist()
    batch = linear.batch_of(linear.samples(states, states, [True] * 40_000, actions))
    loss, numbers = learner.penalty(batch, linear.distribution(built, batch))
    assert numbers["loss/jacobian"].item() == pytest.approx(15.0, rel=0.03)
    assert loss.item() == pytest.approx(1.5, rel=0.03)


def test_gradient_of_the_jacobian_penalty_is_that_of_the_norm():
    # d ||W||_F^2 / dW = 2 W.
    built = linear.policy(WEIGHT)
    learner = linear.algorithm(LipsCfg(jacobian_coef=1.0), built)
    states, actions = torch.zeros(40_000, 3).tolist(), torch.zeros(40_000, 2).tolist()
    batch = linear.batch_of(linear.samples(states, states, [True] * 40_000, actions))
    learner.penalty(batch, linear.distribution(built, batch))[0].backward()
    found = built.actor.backbone.layers[0].weight.grad
    torch.testing.assert_close(found, 2 * torch.tensor(WEIGHT), atol=0.15, rtol=0.0)


def test_log_probability_gradient_by_hand():
    # mu(0) = 0, sigma 0.5, a = (1, -1): grad_s log pi = W^T a / sigma^2 = 4 (1, 3, -3); squared
    # length 16 * 19 = 304.
    built = linear.policy(WEIGHT, std=0.5)
    learner = linear.algorithm(LCPCfg(gradient_coef=0.01), built)
    batch = linear.batch_of(linear.samples(STATES, STATES, [True], [[1.0, -1.0]]))
    loss, numbers = learner.penalty(batch, linear.distribution(built, batch))
    assert numbers["loss/log_prob_gradient"].item() == pytest.approx(304.0)
    assert loss.item() == pytest.approx(3.04)


def test_randomness_does_not_lower_the_penalty():
    built = linear.policy(WEIGHT, std=0.5)
    learner = linear.algorithm(LCPCfg(), built)
    batch = linear.batch_of(linear.samples(STATES, STATES, [True], [[1.0, -1.0]]))
    learner.penalty(batch, linear.distribution(built, batch))[0].backward()
    assert built.actor.log_std.grad is None
    assert built.actor.backbone.layers[0].weight.grad.abs().max() > 0


@pytest.mark.parametrize("cfg", [LipsCfg(), LCPCfg()])
def test_derivatives_are_by_the_normalised_observation(cfg):
    def loss_with_spread(spread):
        built = linear.policy([[1.0]])
        built.actor.normalizer = Scaled(spread)
        learner = linear.algorithm(cfg, built)
        batch = linear.batch_of(linear.samples([[spread]], [[0.0]], [True], [[3.0]]))
        return learner.penalty(batch, linear.distribution(built, batch))[0].item()

    assert loss_with_spread(1.0) == pytest.approx(loss_with_spread(100.0))


class Scaled(torch.nn.Module):
    """Divides by a number."""

    def __init__(self, spread):
        super().__init__()
        self.spread = spread

    def forward(self, x):
        return x / self.spread


@pytest.mark.parametrize("cfg", [LipsCfg(), LCPCfg()])
def test_recurrent_policies_are_refused(cfg):
    with pytest.raises(ValueError, match=r"single states.*memory=null"):
        linear.algorithm(cfg, linear.recurrent_policy())


class SteepActor(GaussianActor):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("cfg", [LipsCfg(), LCPCfg(), CAPSCfg()])
def test_an_actor_that_is_more_than_its_backbone_is_refused(cfg):
    policy = linear.policy([[1.0]])
    policy.actor.__class__ = SteepActor
    with pytest.raises(ValueError, match="but SteepActor computes its own from them"):
        linear.algorithm(cfg, policy)
