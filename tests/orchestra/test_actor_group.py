"""Two actor ranks learn what one learns."""

import pytest
import torch

from rrf.envs.process.child import Child, close_all
from rrf.orchestra.actor_group import RANK, ActorGroup
from tests.orchestra import toy

pytestmark = pytest.mark.slow
UPDATE = (8, 0, 1.0, 0)  # horizon, round, factor of the learning rate, seed


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The config of a run, its parent, its runner, and groups that it played."""
    folder = tmp_path_factory.mktemp("group")
    parent = toy.save_parent(folder / "sft")
    runner = toy.runner_of(parent, folder / "run")
    episodes = toy.play(runner.backend)
    runner.backend.close()
    for number, episode in enumerate(episodes):
        episode.success = number % 2 == 0  # a contrast in every group
    return parent, runner, [episodes[start : start + 2] for start in range(0, 8, 2)]


@pytest.fixture
def group(played):
    """Two ranks in child processes."""
    parent, runner, _ = played
    arguments = {"cfg": runner.cfg.to_dict(), "parent": str(parent), "size": 2}
    ranks = [Child(RANK, f"actor {n}", {**arguments, "rank": n}, 600.0) for n in range(2)]
    yield ActorGroup(ranks, "127.0.0.1", runner.actor)
    close_all(ranks)


def test_an_update_of_two_ranks_is_that_of_one_up_to_the_order_of_sums(played, group):
    _, runner, groups = played
    actor = runner.actor
    before = {name: value.clone() for name, value in actor.weights().items()}
    start = group.weights()
    assert all(torch.equal(start[name], before[name]) for name in before)
    theirs = group.update(groups, *UPDATE)
    learned, averaged, (tensors, facts) = group.weights(), group.deployed_weights(), group.state()
    actor.policy.load_state_dict(before)  # the group showed its weights in it
    ours = actor.update(groups, *UPDATE)
    expected = actor.weights()
    assert any(not torch.equal(expected[name], before[name]) for name in before)
    for name, value in expected.items():
        assert (learned[name] - value).abs().max() <= 1e-6 * value.abs().max().clamp(min=1), name
    for name, value in actor.deployed_weights().items():
        assert (averaged[name] - value).abs().max() <= 1e-6 * value.abs().max().clamp(min=1), name
    mine, my_facts = actor.state()
    assert facts == my_facts
    assert {name: value.shape for name, value in tensors.items()} == {
        name: value.shape for name, value in mine.items()
    }
    for name in ("actor/loss", "actor/grad_norm", "actor/entropy"):
        assert theirs[name] == pytest.approx(ours[name], rel=1e-4, abs=1e-6), name

    # What was saved is restored: another update from there is the same again.
    group.restore(averaged, tensors, facts)
    again = group.weights()
    assert all(torch.equal(again[name], learned[name]) for name in learned)
