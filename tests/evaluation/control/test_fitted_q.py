"""Fitted-Q evaluation estimates what a policy earns in a task that it never steps."""

import dataclasses

import numpy as np
import pytest
import torch

from rrf.data.dataset.transitions import read_transitions, returns_to_go
from rrf.evaluation.control.fitted_q import fitted_q
from tests.algorithms.offline.corridor import record

GAMMA = 0.8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return record(tmp_path_factory.mktemp("fitted") / "walks")


def towards(goal: float):
    """Walks to a place and stays there."""
    return lambda x: (5 * (goal - x)).clamp(-1, 1)


def earned(data, act) -> float:
    """The mean discounted return from the recorded initial states, by walking on for long."""
    first = np.concatenate([[True], data.ended[:-1]])
    x, total = torch.from_numpy(data.observations[first]), 0.0
    for step in range(100):
        x = x + 0.2 * act(x)
        total += GAMMA**step * -(x - 1).abs().mean().item()
    return total


@pytest.mark.parametrize(
    ("goal", "num_updates", "tau"),
    [pytest.param(1.0, 1500, 0.02, marks=pytest.mark.slow), (-0.5, 700, 0.04)],
)
def test_estimates_are_what_policies_earn(dataset, goal, num_updates, tau):
    data, act = read_transitions(dataset), towards(goal)
    found = fitted_q(data, act, data.actions, GAMMA, num_updates, width=64, tau=tau)
    assert found.mean == pytest.approx(earned(data, act), rel=0.1)
    assert not found.has_diverged
    walks = np.split(data.rewards, np.flatnonzero(data.ended)[:-1] + 1)
    recorded = [walk @ GAMMA ** np.arange(len(walk)) for walk in walks]
    assert found.recorded == pytest.approx(np.mean(recorded))


@pytest.mark.slow
def test_a_state_that_trembles_does_not_decide_the_estimate(dataset):
    data, act = read_transitions(dataset), towards(-0.5)
    still = np.full_like(data.observations, 0.3)
    wider = dataclasses.replace(
        data,
        observations=np.concatenate([data.observations, still], 1),
        next_observations=np.concatenate([data.next_observations, still + 1e-5], 1),
    )
    found = fitted_q(wider, lambda x: act(x[:, :1]), data.actions, GAMMA, 1500, 64, 0.02)
    assert found.mean == pytest.approx(earned(data, act), rel=0.1)  # the step was 10 deviations


def test_returns_are_summed_within_episodes():
    rewards, ended = np.array([1.0, 2.0, 4.0, 8.0]), np.array([False, True, False, True])
    assert returns_to_go(rewards, ended, 0.5).tolist() == [2.0, 2.0, 8.0, 8.0]
