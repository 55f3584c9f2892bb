"""The pre-flight check passes an honest pair of policies and names what is wrong with another."""

import pytest
import torch

from rrf.data.dataset.transforms import Normalize
from rrf.networks import MLPCfg
from rrf.policies import DiscreteTokenHeadCfg, FlowMatchingHeadCfg, GaussianHeadCfg
from rrf.runners.vla_rl.job_sources import JobList
from rrf.runners.vla_rl.preflight import check_log_probs
from tests.runners.vla_rl.test_job_sources import states
from tests.runners.vla_rl.toy import ToyBackend, make_policy, policy_cfg

HEADS = [DiscreteTokenHeadCfg(), GaussianHeadCfg(), FlowMatchingHeadCfg()]


def rollouts(policy):
    source = JobList([state for state, _ in zip(states(), range(6), strict=False)])
    ToyBackend(policy).play(source, (0,))
    return source.episodes


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_the_same_policy_passes(head):
    cfg = policy_cfg(head)
    found = check_log_probs(make_policy(cfg), make_policy(cfg), rollouts(make_policy(cfg)))
    assert found["preflight/max_ratio_error"] <= 1e-3
    assert found["preflight/approx_kl"] < 1e-5


def refused(player, trained):
    with pytest.raises(ValueError, match="disagree before the first update") as error:
        check_log_probs(player, trained, rollouts(player))
    return str(error.value).partition("What differs: ")[2]


def test_dropout_is_named():
    trunk = MLPCfg(
        hidden_features=[32],
        activations=[[("ReLU", {}), ("Dropout", {"p": 0.5})], [("ReLU", {})]],
    )
    cfg = policy_cfg(trunk=trunk)
    trained = make_policy(cfg).train()
    assert refused(make_policy(cfg), trained).startswith("dropout is active in trunk.layers")


def test_a_temperature_is_named():
    hot, cold = (policy_cfg(GaussianHeadCfg(temperature=t)) for t in (1.0, 0.5))
    assert refused(make_policy(hot), make_policy(cold)) == "the temperature (1.0 and 0.5)"


def test_another_normaliser_is_named():
    cfg = policy_cfg()
    trained = make_policy(cfg)
    other = {"mean": [0.5, 0.0], "std": [0.5, 0.5]}
    trained.normalize_state = Normalize(other, mode="mean_std")
    assert "normaliser normalize_state" in refused(make_policy(cfg), trained)


def test_another_number_format_is_named():
    player, trained = make_policy(policy_cfg(HEADS[0])), make_policy(policy_cfg(HEADS[0]))
    for policy in (player, trained):
        torch.nn.init.normal_(policy.head.output.weight, generator=torch.Generator().manual_seed(1))
    episodes = rollouts(player)
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(ValueError, match=r"the number format \(autocast to torch.bfloat16\)"),
    ):
        check_log_probs(player, trained, episodes)


def test_other_weights_are_named():
    cfg = policy_cfg()
    trained = make_policy(cfg)
    with torch.no_grad():
        trained.head.output.bias += 0.1
    assert refused(make_policy(cfg), trained) == "the weights head.output.bias"


def test_rounding_of_a_narrow_density_passes_and_a_small_change_of_the_weights_does_not():
    cfg = policy_cfg(GaussianHeadCfg(temperature=0.1, min_std=0.05, initial_std=0.05))
    player, trained = make_policy(cfg), make_policy(cfg)
    episodes = rollouts(player)
    for change, is_refused in ((4e-6, False), (1e-3, True)):
        with torch.no_grad():
            trained.head.output.bias.copy_(player.head.output.bias + change)
        if is_refused:
            with pytest.raises(ValueError, match=r"the weights head\.output\.bias"):
                check_log_probs(player, trained, episodes)
        else:
            found = check_log_probs(player, trained, episodes)
            assert found["preflight/max_ratio_error"] > 1e-3


def test_another_mask_is_named():
    cfg = policy_cfg(FlowMatchingHeadCfg())
    player, trained = make_policy(cfg), make_policy(cfg)
    trained.head.is_executed[..., -1] = False
    assert "mask of executed elements" in refused(player, trained)
