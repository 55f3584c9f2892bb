"""A policy that starts from one which sees less: it acts the same until it learns to look."""

import dataclasses

import pytest
import torch
from tensordict import TensorDict

from rrf.envs.control_env import Interface
from rrf.networks import plain_mlp
from rrf.policies import ActorCriticPackCfg, MemoryCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.presets import resolve
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.control import load_interface, load_module
from rrf.runners.control.resume import widened

BEFORE = {"actor": {"speed": 3, "joints": 2}, "critic": {"speed": 3, "forces": 1}}
NOW = {
    "actor": {"speed": 3, "scan": 4, "joints": 2},
    "critic": {"speed": 3, "scan": 4, "forces": 1},
}
PLACES = {"actor": [0, 1, 2, 7, 8], "critic": [0, 1, 2, 7]}  # of what was seen before
NEW = [3, 4, 5, 6]


def interface(terms: dict[str, dict[str, int]]) -> Interface:
    dims = {group: sum(widths.values()) for group, widths in terms.items()}
    return Interface(dims, num_actions=2, observation_terms=terms)


def policy(terms: dict[str, dict[str, int]], memory: MemoryCfg | None = None):
    # As many hidden features as the actor saw before: their columns must not be mistaken for it.
    shared = {"backbone_cfg": plain_mlp([5, 5], "ELU"), "memory": memory}
    cfg = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(**shared),
        critic_cfg=VNetworkCfg(**shared, observation_groups=["actor", "critic"]),
    )
    return cfg.build(interface(terms))


def observations(terms: dict[str, dict[str, int]], num: int = 64) -> TensorDict:
    dims = interface(terms).observation_dims
    return TensorDict({g: 3 + 2 * torch.randn(num, dims[g]) for g in dims}, [num])


def seen_before(wide: TensorDict) -> TensorDict:
    return TensorDict({g: wide[g][:, PLACES[g]] for g in PLACES}, wide.batch_size)


def outputs(network, given: TensorDict) -> torch.Tensor:
    return network.step(network.read(given), network.initial_memory(len(given)))[0]


@pytest.mark.parametrize("kind", [None, "gru", "lstm"])
def test_what_is_new_changes_nothing_at_first(kind):
    memory = MemoryCfg(kind=kind, hidden_size=5) if kind else None
    walker, sighted = policy(BEFORE, memory), policy(NOW, memory)
    for network in (walker.actor, walker.critic):
        network.normalizer.update(network.read(observations(BEFORE, 1000)))
    first = observations(NOW)
    weights = widened(walker.state_dict(), sighted, walker.interface, sighted.interface, first)
    checkpoint.fill(sighted, weights, what="walker")
    other = observations(NOW)
    with torch.no_grad():
        for name in ("actor", "critic"):
            expected = outputs(getattr(walker, name), seen_before(other))
            torch.testing.assert_close(outputs(getattr(sighted, name), other), expected)
    normalizer = sighted.actor.normalizer
    torch.testing.assert_close(normalizer.mean[NEW], first["actor"][:, NEW].mean(0))
    torch.testing.assert_close(normalizer.std[NEW], first["actor"][:, NEW].std(0, correction=0))
    assert normalizer.count == 1000


def test_the_statistics_of_a_long_training_soon_know_the_new_columns():
    walker, sighted = policy(BEFORE), policy(NOW)
    walker.actor.normalizer.count.fill_(10**9)
    first = observations(NOW, 8)
    weights = widened(walker.state_dict(), sighted, walker.interface, sighted.interface, first)
    assert weights["actor.normalizer.count"] == 800
    assert weights["critic.normalizer.count"] == 0


def without_names(known: Interface) -> Interface:
    return dataclasses.replace(known, observation_terms={})


def test_a_policy_from_before_terms_were_saved_keeps_its_weights():
    walker, same = policy(NOW), policy(NOW)
    walker.actor.normalizer.count.fill_(10**9)
    before = without_names(walker.interface)
    weights = widened(walker.state_dict(), same, before, same.interface, observations(NOW, 8))
    assert weights["actor.normalizer.count"] == 10**9


@pytest.mark.parametrize(
    ("before", "forget"),
    [
        (BEFORE | {"actor": {"speed": 3, "camera": 2}}, lambda known: known),
        (BEFORE | {"actor": {"speed": 2, "joints": 3}}, lambda known: known),  # of other widths
        (BEFORE, without_names),
    ],
)
def test_what_cannot_be_matched_is_refused(before, forget):
    walker, sighted = policy(before), policy(NOW)
    weights = widened(
        walker.state_dict(),
        sighted,
        forget(walker.interface),
        sighted.interface,
        observations(NOW),
    )
    with pytest.raises(ValueError, match=r"normalizer.mean is \[5\], expected \[9\]"):
        checkpoint.fill(sighted, weights, what="walker")


def test_a_walker_of_flat_ground_gets_a_height_scan(tmp_path):
    few = {"env.num_envs": 2, "max_iterations": 1, "num_steps_per_env": 2, "trackers": []}
    flat = resolve("go1-flat-ppo", few).build(tmp_path / "flat").run()["checkpoint"]
    known = load_interface(flat)
    assert list(known.observation_terms["actor"]) == known.robot["observation_names"]
    cfg = resolve("go1-rough-teacher", few | {"init_from": str(flat)})
    runner = cfg.build(tmp_path / "rough")
    module, given = load_module(flat), runner.observations
    dims = runner.env.interface.observation_dims
    height = range(48, 48 + 17 * 11)  # of mjlab's grid, behind what the walker sees
    scan = {name: [c for c in range(width) if c not in height] for name, width in dims.items()}
    before = TensorDict({n: given[n][:, scan[n]] for n in dims}, given.batch_size)
    with torch.no_grad():
        for name in ("actor", "critic"):
            expected = outputs(getattr(module, name), before)
            torch.testing.assert_close(outputs(getattr(runner.policy, name), given), expected)
    runner.env.close()
