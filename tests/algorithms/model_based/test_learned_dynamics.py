"""The parts of learned dynamics, on numbers worked by hand."""

import math

import numpy as np
import pytest
import torch

from rrf.algorithms.model_based import ensemble
from rrf.algorithms.model_based.learned_dynamics import RULES, LearnedDynamics
from rrf.algorithms.model_based.mbpo import branch_length
from rrf.envs.control_env import Interface
from rrf.envs.failure import NotFiniteError
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.storage.replay import ModelReplay, RowLayout, Transitions
from tests.algorithms.model_based.toy import MODEL


def test_likelihood_of_a_gaussian():
    mean, log_var, target = torch.tensor([1.0, 0.0]), torch.tensor([math.log(4.0), 0.0]), 3.0
    nll = ensemble.gaussian_nll(mean, log_var, torch.tensor([target, target]))
    # (1 - 3)^2 / 4 + log 4, and 3^2 / 1 + log 1.
    torch.testing.assert_close(nll, torch.tensor([1 + math.log(4), 9.0]))


def test_the_loss_sums_members_and_adds_the_width_of_the_bounds():
    nll = torch.tensor([[[1.0, 3.0]], [[10.0, 20.0]]])  # two members, one row, two numbers
    bounds = torch.tensor([[-10.0, -10.0]]), torch.tensor([[0.5, 0.5]])
    assert ensemble.ensemble_loss(nll, *bounds).item() == pytest.approx(2 + 15 + 0.01 * 21)


def test_log_variances_are_bent_to_their_bounds():
    low, high = torch.tensor(-10.0), torch.tensor(0.5)
    bent = ensemble.softly_bounded(torch.tensor([-1000.0, -5.0, 0.5, 1000.0]), low, high)
    # Far from the bounds nothing changes; at the upper one, softplus(0) = log 2 is lost.
    expected = [-10.0, -5.0, 0.5 - math.log(2), 0.5]
    torch.testing.assert_close(bent, torch.tensor(expected), atol=0.01, rtol=0)


def test_elites_are_the_members_with_the_lowest_errors():
    assert ensemble.elites(torch.tensor([0.3, 0.1, 0.5, 0.2]), 2).tolist() == [1, 3]


def test_branches_grow_linearly_between_two_numbers_of_steps():
    schedule = (20_000, 100_000, 1, 25)
    lengths = [branch_length(n, schedule) for n in (0, 20_000, 60_000, 99_999, 10**6)]
    assert lengths == [1, 1, 13, 24, 25]


def test_a_constant_column_only_loses_its_mean():
    rows = torch.tensor([[1.0, 300.1], [3.0, 300.1]])
    standardizer = ensemble.Standardizer(2)
    standardizer.fit(rows)
    torch.testing.assert_close(standardizer(rows), torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    torch.testing.assert_close(standardizer.inverse(standardizer(rows)), rows)


def test_an_input_that_hardly_changes_does_not_blow_up_what_is_beside_it():
    rng = np.random.default_rng(0)
    rows = np.stack([rng.normal(size=500), 0.3 + 1e-6 * rng.normal(size=500)], 1)
    standardizer = ensemble.Standardizer(2)
    standardizer.fit(torch.from_numpy(rows.astype(np.float32)))
    beside = standardizer(torch.tensor([[0.0, 0.301]]))
    assert beside[0, 1].item() == pytest.approx(0.001 / 0.0003, rel=0.02)  # was 1000


def test_a_constant_target_is_predicted_within_the_floor():
    rows = torch.tensor([[1.0, 2.0], [3.0, 2.0]])
    targets = ensemble.Standardizer(2)
    targets.fit(rows, is_target=True)
    torch.testing.assert_close(targets.inverse(torch.ones(2)), torch.tensor([3.0, 2.0001]))


@pytest.mark.parametrize("noise", [0.0, 1e-8, 1e-5])
def test_a_state_that_hardly_changes_stays_where_it_is_in_imagination(noise):
    steps, rng = circle(300), np.random.default_rng(1)
    still = [torch.from_numpy(0.3 + noise * rng.normal(size=(300, 1))).float() for _ in "ab"]
    parts = [steps.actor_obs, still[0], *steps.rows.split([2, 1, 1, 1, 1, 2], 1)[1:5]]
    rows = torch.cat([*parts, steps.next_actor_obs, still[1]], 1)
    torch.manual_seed(0)
    cfg, interface = MODEL.replace(max_updates=600), Interface({"policy": 3}, 1, task="circle")
    model = cfg.build(interface, 3, torch.Generator().manual_seed(0), torch.device("cpu"))
    wider = Transitions(rows, RowLayout(3, None, 1))
    model.fit(wider)
    step = model.step(wider.actor_obs, wider.actions)
    assert (step.observations[:, 2] - 0.3).abs().max() < 1e-3


def test_weights_decay_with_the_number_of_their_layer():
    model = ensemble.Ensemble(MODEL.replace(weight_decays=[0.25, 0.5]), 2, 1)
    first, second, rest = model.parameter_groups()
    assert (first["weight_decay"], first["params"][0].shape) == (0.25, (3, 2, 16))
    assert (second["weight_decay"], second["params"][0].shape) == (0.5, (3, 16, 2))
    assert rest["weight_decay"] == 0
    assert {p.shape[-2] for p in rest["params"]} == {1}  # biases and bounds
    grouped = sum(len(group["params"]) for group in (first, second, rest))
    assert grouped == len(list(model.parameters()))


def test_imagined_transitions_overwrite_the_oldest():
    replay = ModelReplay(RowLayout(1, None, 1), 4)
    rows = torch.arange(9).unsqueeze(1).expand(9, replay.layout.width).float()
    for part in rows.split(3):
        replay.extend(part)
    assert replay.rows[:, 0].tolist() == [8.0, 5.0, 6.0, 7.0]
    assert (len(replay), replay.total_steps) == (4, 9)


@pytest.mark.parametrize(("newest", "drawn"), [(4, {5.0, 6.0, 7.0, 8.0}), (2, {7.0, 8.0})])
def test_only_the_newest_imagined_transitions_are_drawn(newest, drawn):
    replay = ModelReplay(RowLayout(1, None, 1), 4)
    replay.extend(torch.zeros(3, replay.layout.width))
    replay.extend(torch.full((1, replay.layout.width), 1.0))
    for number in range(5, 9):
        replay.extend(torch.full((1, replay.layout.width), float(number)))
    replay.num_newest = newest
    rows = replay.sample((200,), torch.Generator().manual_seed(0))
    assert set(replay.gather(rows).rows[:, 0].tolist()) == drawn


RADIUS, TICK = 3.0, 0.1


def circle(count: int, seed: int = 0, limit: float = math.inf) -> Transitions:
    """Points that turn by `TICK` a step, faster or slower by their action; the reward is the sine.
    An episode ends beyond `limit` of the first coordinate."""
    rng = np.random.default_rng(seed)
    angle, action = rng.uniform(-np.pi, np.pi, count), rng.uniform(-1, 1, count)
    after = angle + TICK * (1 + action)
    now, then = (RADIUS * np.stack([np.cos(a), np.sin(a)], 1) for a in (angle, after))
    terminated = then[:, :1] > limit
    columns = [now, action[:, None], np.sin(angle)[:, None], terminated, terminated, then]
    rows = torch.from_numpy(np.concatenate(columns, 1).astype(np.float32))
    return Transitions(rows, RowLayout(2, None, 1))


def model_of(task: str = "circle", **changes) -> LearnedDynamics:
    torch.manual_seed(0)
    cfg = MODEL.replace(max_updates=600, **changes)
    interface = Interface({"policy": 2}, 1, task=task)
    return cfg.build(interface, 2, torch.Generator().manual_seed(0), torch.device("cpu"))


def test_a_model_learns_the_next_state_the_reward_and_the_termination():
    model = model_of()
    metrics = model.fit(circle(600, limit=2.0))
    assert metrics["model/num_transitions"] == 600
    assert metrics["model/error"] < 0.2  # with the loss of the terminations
    unseen = circle(500, seed=1, limit=2.0)
    step = model.step(unseen.actor_obs, unseen.actions)
    moved = (unseen.next_actor_obs - unseen.actor_obs).square().mean().sqrt()
    missed = (step.observations - unseen.next_actor_obs).square().mean().sqrt()
    assert missed < 0.2 * moved
    assert (step.rewards - unseen.rewards).abs().mean() < 0.1
    is_ended = unseen.terminated > 0.5
    assert 0.1 < is_ended.float().mean() < 0.4
    assert (step.terminated == is_ended).float().mean() > 0.95


def test_only_elites_predict_and_each_member_keeps_its_best_weights():
    model = model_of()
    model.fit(circle(300))
    unseen = circle(400, seed=1)
    before = model.ensemble.state_dict()
    generator = model.generator.get_state()
    expected = model.step(unseen.actor_obs, unseen.actions)
    (outcast,) = set(range(3)) - set(model.elites.tolist())
    with torch.no_grad():
        for parameter in model.ensemble.network.parameters():
            parameter[outcast] = 1000.0
    model.generator.set_state(generator)
    again = model.step(unseen.actor_obs, unseen.actions)
    assert torch.equal(expected.observations, again.observations)
    assert before.keys() == model.ensemble.state_dict().keys()


def test_the_order_of_states_survives_the_deal_to_elites():
    model = model_of()
    with torch.no_grad():  # predicts that nothing changes, almost without noise
        for parameter in model.ensemble.network.parameters():
            parameter.zero_()
        model.ensemble.max_log_var.fill_(-29.0)
        model.ensemble.min_log_var.fill_(-30.0)
    states = torch.arange(14.0).view(7, 2) / 10  # 7 states for 2 elites
    step = model.step(states, torch.zeros(7, 1))
    torch.testing.assert_close(step.observations, states, atol=1e-5, rtol=0)
    assert not step.terminated.any()


def test_predictions_far_from_all_observations_are_refused():
    model = model_of(max_deviation=10.0)
    model.fit(circle(100))
    with pytest.raises(NotFiniteError, match=r"model of circle has diverged: .* dimension 1 .*"):
        model.step(torch.tensor([[0.0, 100.0]]), torch.zeros(1, 1))
    with pytest.raises(NotFiniteError, match="predicts a reward that is not finite"):
        model.step(torch.tensor([[0.0, torch.nan]]), torch.zeros(1, 1))


def test_a_rule_that_the_observations_contradict_is_refused():
    model = model_of("InvertedPendulum-v5")
    with pytest.raises(ValueError, match=r"wrong about \d+ of 100 observed steps.*=learned"):
        model.fit(circle(100))


@pytest.mark.parametrize("task", ["InvertedPendulum-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5"])
def test_the_rules_of_termination_are_those_of_the_tasks(task):
    env = GymnasiumEnvCfg(task=task, num_envs=2).build(seed=0, device="cpu")
    generator, ends = torch.Generator().manual_seed(0), 0
    for _ in range(150):
        actions = 2 * torch.rand(2, env.num_actions, generator=generator) - 1
        observations, _, dones, extras = env.step(actions)
        after = observations["policy"].clone()
        if extras["final_obs"] is not None:
            after[dones] = extras["final_obs"]["policy"]
        terminated = dones & ~extras["time_outs"]
        assert torch.equal(RULES[task](after), terminated)
        ends += int(terminated.sum())
    assert ends > 0
