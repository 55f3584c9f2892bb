"""Planning, by hand, and many environments in one batch."""

import math

import pytest
import torch

from rrf.envs.control_env import Interface
from rrf.policies import PlannerCfg
from rrf.policies.control.mppi import draw_noise, elite_weights, follow, plan, weighted_moments
from rrf.policies.control.world_model import WorldModel
from tests.algorithms.planning.toy import MODEL, PLAIN_MODEL, PLANNER


class Line:
    """A point on a line; the return is minus its final distance to 1, after steps of 0.5 a."""

    def step(self, z, a):
        return torch.zeros(len(z)), z + 0.5 * a, torch.tensor(1.0)

    def policy(self, z, noise):
        return 0.1 * noise, noise[:, 0]

    def expected(self, z, noise, pair):
        return -(z - 1).abs()[:, 0]


def test_elites_are_weighted_by_the_exponential_of_their_return():
    returns = torch.tensor([[4.0, 2.0, 0.0]])
    scores = [1, math.exp(-1), math.exp(-2)]  # temperature 0.5
    wanted = [score / sum(scores) for score in scores]
    assert elite_weights(returns, 0.5)[0].tolist() == pytest.approx(wanted)
    assert elite_weights(returns, 0.0)[0].tolist() == pytest.approx([1 / 3] * 3)


def test_weighted_mean_and_standard_deviation():
    elites = torch.tensor([[[[1.0], [-1.0]]]])
    mean, std = weighted_moments(elites, torch.tensor([[0.75, 0.25]]))
    assert mean.item() == pytest.approx(0.5)
    assert std.item() == pytest.approx(math.sqrt(0.75 * 0.25 + 0.25 * 2.25))


def test_a_plan_goes_where_the_return_is():
    cfg = PlannerCfg(horizon=2, num_samples=200, num_policy_samples=0, num_elites=20)
    noise = draw_noise(cfg, 3, 1, 2, torch.Generator().manual_seed(0))
    starts = torch.tensor([[0.0], [2.0], [1.0]])
    actions, mean = plan(Line(), starts, torch.zeros(2, 3, 1), cfg, noise, is_greedy=True)
    # 0.5 (a_0 + a_1) is to be 1, -1 and 0, and actions end at 1.
    assert mean.sum(0).flatten().tolist() == pytest.approx([2, -2, 0], abs=0.15)
    assert actions.abs().max() <= 1


def test_the_last_plan_begins_the_next_one_a_step_later():
    cfg = PlannerCfg(
        horizon=3, num_samples=30, num_policy_samples=0, num_elites=30, iterations=1,
        temperature=0.0, momentum=0.5, max_std=0.05,
    )  # fmt: skip
    noise = draw_noise(cfg, 1, 1, 2, torch.Generator().manual_seed(0))
    previous = torch.tensor([0.9, 0.4, -0.6]).view(3, 1, 1)
    drawn = noise.samples[0, :, 0, :, 0].mean(1)
    _, mean = plan(Line(), torch.zeros(1, 1), previous, cfg, noise, is_greedy=True)
    shifted = torch.tensor([0.4, -0.6, 0.0])
    # All samples are elites of the same weight; half of the mean stays.
    wanted = 0.5 * shifted + 0.5 * (shifted + 0.05 * drawn)
    assert mean.flatten().tolist() == pytest.approx(wanted.tolist(), abs=1e-6)


@pytest.mark.parametrize("cfg", [MODEL, PLAIN_MODEL])
def test_planning_many_environments_equals_planning_each(cfg):
    torch.manual_seed(0)
    model = cfg.build(Interface({"policy": 3}, 2))
    assert isinstance(model, WorldModel)
    for network in (model.rewards, model.critics):
        network.layers[network.output].weight.data.normal_(std=0.3)
    x, memory = torch.randn(5, 3), 0.3 * torch.randn(PLANNER.horizon, 5, 2)
    noise = model.draw_noise(5, torch.Generator().manual_seed(0))
    actions, plans = model.act(x, memory, False, noise)
    for n in range(5):
        alone = model.act(x[n : n + 1], memory[:, n : n + 1], False, noise.of_env(n))
        torch.testing.assert_close(alone[0], actions[n : n + 1], atol=2e-5, rtol=0)
        torch.testing.assert_close(alone[1], plans[:, n : n + 1], atol=2e-5, rtol=0)
    assert (actions[0] - actions[1]).abs().max() > 1e-3


def test_a_predicted_termination_ends_the_rewards_of_a_plan():
    model = MODEL.build(Interface({"policy": 1}, 1))
    model.discount.fill_(0.9)
    model.rewards.forward = lambda x: torch.zeros(len(x), 101)
    model.numbers = lambda outputs: torch.ones(outputs.shape[:-1])  # each reward and value is 1
    model.terminations.forward = lambda z: torch.tensor([[-1.0], [1.0]])
    rollouts = follow(model, torch.rand(2, 16), torch.zeros(2, 2, 1, 1), lambda _, a: a)
    found = rollouts.returns(model, torch.zeros(2, 1), torch.tensor([0, 1]))
    assert found.tolist() == pytest.approx([1 + 0.9 + 0.81, 1.0])


def test_actions_are_scaled_to_the_limit():
    model = MODEL.replace(action_limit=3.0).build(Interface({"policy": 1}, 1))
    noise = model.draw_noise(1, torch.Generator().manual_seed(0))
    inputs = torch.randn(1, 1), model.initial_memory(1), True, noise
    found, _ = model.act(*inputs)
    model.action_limit = 1.0
    assert found.item() == pytest.approx(3 * model.act(*inputs)[0].item())
