import pytest
import torch

from rrf.algorithms import L2C2Cfg
from rrf.algorithms.smooth.terms import between
from tests.algorithms.on_policy import linear
from tests.envs.toy import CorridorCfg

CFG = L2C2Cfg(policy_coef=10.0, value_coef=100.0)
STATES = [[0.0, 0.0], [1.0, 1.0]]
SUCCESSORS = [[2.0, 4.0], [5.0, 5.0]]


def test_a_state_between_two_by_hand():
    mix = torch.tensor([[0.5, -1.0], [1.0, 1.0]])
    found = between(
        torch.tensor(STATES), torch.tensor(SUCCESSORS), torch.tensor([True, False]), mix
    )
    assert found.tolist() == [[1.0, -4.0], [1.0, 1.0]]


def test_both_terms_by_hand():
    # s~ = (1, -4) and, where the episode ended, s~ = s. mu = 2 s_0, so the change is 2 and its
    # square 4; V = s_0 + s_1, so the change is -3 and its square 9. Halved: the other row is 0.
    built = linear.policy([[2.0, 0.0]])
    learner = linear.algorithm(CFG, built)
    batch = linear.batch_of(linear.samples(STATES, SUCCESSORS, [True, False]))
    learner._actor_mix = learner._critic_mix = torch.tensor([[0.5, -1.0], [1.0, 1.0]])
    loss, numbers = learner.penalty(batch, linear.distribution(built, batch))
    assert numbers["loss/policy_change"].item() == pytest.approx(2.0)
    assert loss.item() == pytest.approx(20.0)
    values = built.critic.value(batch.critic_obs)
    loss, numbers = learner.critic_penalty(batch, values)
    assert numbers["loss/value_change"].item() == pytest.approx(4.5)
    assert loss.item() == pytest.approx(450.0)


def test_mixes_are_drawn_from_minus_one_to_one_for_every_batch():
    learner = linear.algorithm(CFG, linear.policy([[2.0, 0.0]]))
    learner.cfg.num_learning_epochs = 100
    material = linear.samples(STATES, SUCCESSORS, [True, False])
    drawn = torch.cat([learner._actor_mix.flatten() for _ in learner.batches(material)])
    assert len(drawn) == len(drawn.unique()) == 400
    assert -1 <= drawn.min() < -0.9
    assert 0.9 < drawn.max() <= 1


@pytest.mark.slow
def test_a_second_thread_changes_nothing():
    weights = []
    for threads in (1, 2):
        env = CorridorCfg(num_envs=4).build()
        built = linear.policy([[1.0]])
        learner = linear.algorithm(
            CFG.replace(learner_threads=threads), built, num_envs=4, num_steps=6
        )
        for _ in range(3):
            learner.update(linear.fill(learner, env)[-1])
        weights.append(torch.cat([value.flatten() for value in built.state_dict().values()]))
    assert torch.equal(*weights)


def test_recurrent_policies_are_refused():
    with pytest.raises(ValueError, match=r"L2C2 compares actions in single states.*memory=null"):
        linear.algorithm(CFG, linear.recurrent_policy())
