import shutil

import pytest
import torch

from rrf.algorithms import EPOCfg
from rrf.algorithms.on_policy.epo import offspring
from rrf.runners import EPOOnPolicyRunnerCfg
from rrf.storage.rollout import ControlStep
from tests.algorithms.on_policy import linear, populations
from tests.envs.toy import CorridorCfg

LATENTS = torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0], [4.0, 4.0, 4.0]])
FITNESS = torch.tensor([5.0, -1.0, 7.0, 0.0])
BRED = {"learn_latents": False, "num_members": 5}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_fittest_live_on_unchanged():
    latents, origins = offspring(LATENTS, FITNESS, 0.5, 0.3, generator())
    assert origins[[0, 2]].tolist() == [0, 2]
    assert set(origins[[1, 3]].tolist()) <= {0, 2}
    assert torch.equal(latents[[0, 2]], LATENTS[[0, 2]])
    assert not torch.isclose(latents[[1, 3]], LATENTS[[1, 3]]).any()


def test_children_have_every_coordinate_from_either_parent():
    wide = LATENTS[:, :1].expand(-1, 400).clone()
    latents, _ = offspring(wide, FITNESS, 0.5, 0.0, generator())
    for child in latents[[1, 3]]:
        share = (child == 1.0).float().mean().item()  # from member 0; the others from member 2
        assert set(child.tolist()) == {1.0, 3.0}
        assert share == pytest.approx(0.5, abs=0.1)


def test_mutations_have_the_asked_for_size():
    same = torch.zeros(4, 5000)
    latents, _ = offspring(same, FITNESS, 0.5, 0.3, generator())
    assert latents[1].std().item() == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize(("fraction", "num_children"), [(0.01, 2), (0.99, 1)])
def test_two_live_on_and_one_is_replaced_at_least(fraction, num_children):
    _, origins = offspring(LATENTS, FITNESS, fraction, 0.1, generator())
    assert (origins != torch.arange(4)).sum() == num_children


def epo(**settings):
    cfg = EPOCfg(evolution_interval=1, mutation_std=0.5, **settings)
    policy = populations.population(width=1, **BRED)
    return populations.learner(cfg, policy, num_envs=5, num_steps=3)


def step(rewards, dones):
    return ControlStep(None, None, torch.tensor(rewards), torch.tensor(dones), None, None, None)


def test_fitness_is_the_return_of_whole_episodes(monkeypatch):
    learner = epo()
    monkeypatch.setattr(learner.rollout, "write", lambda **values: None)
    monkeypatch.setattr(learner.rollout, "advance", lambda: None)
    ends = [True] * 5
    learner.observe(step([9.0] * 5, ends))  # began before we looked: counts for nobody
    assert learner._sums[1].tolist() == [0.0] * 5
    learner.observe(step([1.0, 2.0, 3.0, 4.0, 5.0], [False] * 5))
    learner.observe(step([1.0, 1.0, 1.0, 1.0, 1.0], ends))
    assert (learner._sums[0] / learner._sums[1]).tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]


def test_unfit_latents_change_and_those_of_elites_and_leader_stay():
    learner = epo(elite_fraction=0.5)
    env = CorridorCfg(num_envs=5, length=2).build()
    before = learner.population.latents.clone()
    learner.update(linear.fill(learner, env)[-1])  # every member finished a whole episode? not yet
    assert torch.equal(learner.population.latents, before)
    metrics = learner.update(linear.fill(learner, env)[-1])
    after = learner.population.latents
    changed = (after != before).any(-1)
    assert changed.sum() == 2
    assert not changed[0]
    assert torch.equal(learner.policy.critic.backbone.latents, after)
    assert metrics["population/fitness_best"] >= metrics["population/fitness_mean"]
    # Episodes of replaced members count from their next beginning only.
    assert torch.equal(learner._running.isnan(), changed)


def test_children_explore_as_a_parent_does():
    learner = epo(elite_fraction=0.5)
    population = learner.population
    with torch.no_grad():
        population.actor.log_stds.copy_(torch.arange(5.0).unsqueeze(-1))
    is_replaced = learner._evolve(torch.tensor([5.0, -1.0, 7.0, 0.0]))
    assert is_replaced.tolist() == [False, False, True, False, True]
    stds = population.actor.log_stds[:, 0].tolist()
    assert [stds[0], stds[1], stds[3]] == [0.0, 1.0, 3.0]
    assert {stds[2], stds[4]} <= {1.0, 3.0}


def test_what_ran_before_a_reset_counts_for_nobody():
    learner = epo()
    learner._running.fill_(5.0)
    learner.episodes_cut()
    assert learner._running.isnan().all()  # nor do the first ones after it, which begin anywhere


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    cfg = EPOOnPolicyRunnerCfg(
        env=CorridorCfg(num_envs=5, length=4),
        num_steps_per_env=6,
        max_iterations=6,
        save_interval=3,
        num_checkpoints_kept=9,
        policy=populations.pack(**BRED),
        algorithm=EPOCfg(evolution_interval=2),
    )
    whole = cfg.build(tmp_path / "whole")
    before = whole.policy.latents.clone()
    whole.run()
    assert not torch.equal(whole.policy.latents, before)
    shutil.copytree(tmp_path / "whole/global_step_3", tmp_path / "rest/global_step_3")
    rest = cfg.build(tmp_path / "rest")
    rest.run()
    for name, value in whole.policy.state_dict().items():
        assert torch.equal(value, rest.policy.state_dict()[name]), name


def test_bad_settings_are_named():
    few = populations.population(width=1, learn_latents=False)
    with pytest.raises(ValueError, match=r"num_members is 3 .*at least 3 followers"):
        populations.learner(EPOCfg(), few)
    learned = populations.population(width=1, num_members=6)
    with pytest.raises(ValueError, match=r"learn_latents true.*policy.learn_latents=false"):
        populations.learner(EPOCfg(), learned)
    with pytest.raises(ValueError, match=r"elite_fraction is 1.0"):
        EPOCfg(elite_fraction=1.0)
