import pytest
import torch

from rrf.algorithms import CAPSCfg
from tests.algorithms.on_policy import linear
from tests.envs.toy import CorridorCfg

TEMPORAL = CAPSCfg(temporal_coef=2.0, spatial_coef=0.0)
STATES = [[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]
SUCCESSORS = [[3.0, 4.0], [1.0, 0.0], [9.0, 9.0]]


def terms(cfg, material, rows=None):
    built = linear.policy([[1.0, 0.0], [0.0, 1.0]])
    learner = linear.algorithm(cfg, built)
    batch = linear.batch_of(material, rows)
    return learner.penalty(batch, linear.distribution(built, batch))


def test_temporal_term_by_hand():
    # mu(s) = s. Distances 5 and 1; the third episode ended, so its 9, 9 counts 0. Mean 6 / 3.
    loss, numbers = terms(TEMPORAL, linear.samples(STATES, SUCCESSORS, [True, True, False]))
    assert numbers["loss/temporal"].item() == pytest.approx(2.0)
    assert loss.item() == pytest.approx(4.0)


def test_order_of_samples_does_not_matter():
    material = linear.samples(STATES, SUCCESSORS, [True, True, False])
    assert terms(TEMPORAL, material)[0].item() == pytest.approx(
        terms(TEMPORAL, material, rows=[2, 0, 1])[0].item()
    )


def test_successors_are_what_the_environment_did_next():
    env = CorridorCfg(num_envs=2, length=2).build()
    policy = linear.policy([[1.0]], std=0.5)
    learner = linear.algorithm(CAPSCfg(), policy, num_envs=2, num_steps=3)
    seen = linear.fill(learner, env)
    material = learner.returns(seen[-1])
    # Episodes last 2 steps: the second step (rows 2 and 3) ends them.
    assert material.goes_on.tolist() == [True, True, False, False, True, True]
    torch.testing.assert_close(material.next_actor_obs[:2], seen[1]["policy"])
    torch.testing.assert_close(material.next_actor_obs[4:], seen[3]["policy"])


def test_spatial_term_is_the_noise_a_linear_policy_passes_on():
    # mu(s) = 3 s in one dimension: E |3 sigma n| = 3 sigma sqrt(2 / pi) = 0.2394 for sigma 0.1.
    built = linear.policy([[3.0]])
    cfg = CAPSCfg(temporal_coef=0.0, spatial_coef=1.0, sigma=0.1)
    learner = linear.algorithm(cfg, built)
    states = torch.zeros(20_000, 1).tolist()
    batch = linear.batch_of(linear.samples(states, states, [True] * 20_000))
    loss, _ = learner.penalty(batch, linear.distribution(built, batch))
    assert loss.item() == pytest.approx(0.2394, rel=0.03)


def test_an_unchanging_action_costs_nothing_and_its_gradient_is_a_number():
    built = linear.policy([[0.0, 0.0]])
    learner = linear.algorithm(CAPSCfg(), built)
    batch = linear.batch_of(linear.samples(STATES, SUCCESSORS, [True, True, False]))
    loss, _ = learner.penalty(batch, linear.distribution(built, batch))
    loss.backward()
    assert loss.item() == 0.0
    assert torch.isfinite(built.actor.backbone.layers[0].weight.grad).all()


def test_recurrent_policies_are_refused():
    with pytest.raises(ValueError, match=r"CAPS compares actions in single states.*memory=null"):
        linear.algorithm(CAPSCfg(), linear.recurrent_policy())
