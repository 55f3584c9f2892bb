"""SAC's gradient step against Stable-Baselines3's, on its weights, batches and noise."""

import pytest
import torch

from rrf.algorithms.off_policy.configs import SACCfg
from rrf.algorithms.off_policy.learner import Batch
from rrf.algorithms.off_policy.sac import SAC, Noise
from rrf.envs.control_env import Interface
from rrf.networks.configs import plain_mlp
from rrf.policies.control import off_policy_actors
from rrf.policies.control.off_policy_actors import TanhGaussian
from rrf.policies.control.off_policy_configs import ActorQPackCfg, QNetworkCfg, SACActorCfg
from rrf.storage.replay import RowLayout, Transitions
from tests.algorithms.off_policy.golden_files import (
    Case,
    batched,
    fill_actor,
    fill_critic,
    linear_layers,
)
from tests.closeness import assert_close, tolerance
from tests.golden_files import activation, cases, configs

FILE = "sb3_sac.npz"
CASES = cases(FILE, r"sac\d+")
HEADS = ("mu", "log_std")
SMALL_NUMBER = configs(FILE)["tanh_gaussian"]["epsilon"]


def theirs_log_tanh_slope(u):
    """Stable-Baselines3 adds a small number where ours is exact."""
    return torch.log(1 - torch.tanh(u) ** 2 + SMALL_NUMBER)


def actor_layers(case: Case, when: str):
    heads = [(case[f"{when}.actor.{n}.weight"], case[f"{when}.actor.{n}.bias"]) for n in HEADS]
    joined = tuple(torch.cat(parts) for parts in zip(*heads, strict=True))
    return [*linear_layers(case, f"{when}.actor.latent_pi"), joined]


def critic_layers(case: Case, when: str, name: str = "critic"):
    num_critics = case.config["n_critics"]
    return [linear_layers(case, f"{when}.{name}.qf{k}.") for k in range(num_critics)]


def widths(case: Case) -> tuple[int, int]:
    """Of observations and actions."""
    return case["batch0.observations"].shape[-1], case["batch0.actions"].shape[-1]


def build(case: Case) -> SAC:
    config = case.config
    hidden = plain_mlp(config["net"], activation(config["activation"]))
    pack = ActorQPackCfg(
        actor_cfg=SACActorCfg(backbone_cfg=hidden),
        critic_cfg=QNetworkCfg(backbone_cfg=hidden, num_critics=config["n_critics"]),
    )
    observation_width, action_width = widths(case)
    policy = pack.build(Interface({"policy": observation_width}, num_actions=action_width))
    fill_actor(policy, actor_layers(case, "params_before"))
    fill_critic(policy.critic, critic_layers(case, "params_before"))
    is_learned = str(config["ent_coef"]).startswith("auto")
    alpha = case["params_before.log_ent_coef"].exp().item() if is_learned else config["ent_coef"]
    cfg = SACCfg(
        gamma=config["gamma"],
        tau=config["tau"],
        actor_lr=config["lr"],
        critic_lr=config["lr"],
        alpha_lr=config["lr"],
        init_alpha=alpha,
        learn_alpha=is_learned,
        target_entropy=config["target_entropy"],
    )
    sac = SAC(cfg, policy, 1, 100, torch.Generator())
    fill_critic(sac.target_critic, critic_layers(case, "params_before", "critic_target"))
    return sac


def batch_of(case: Case, index: int) -> Batch:
    now, actions, after, dones, rewards = (
        case[f"batch{index}.{key}"]
        for key in ("observations", "actions", "next_observations", "dones", "rewards")
    )
    rows = torch.cat([now, actions, rewards, dones, dones, after], -1)
    key = f"batch{index}.discounts"
    discounts = case[key] if case.keys(key) else torch.full_like(dones, case.config["gamma"])
    observation_width, action_width = widths(case)
    steps = Transitions(rows, RowLayout(observation_width, None, action_width))
    return Batch(steps, (discounts * (1 - dones)).squeeze(-1))


def run(case: Case) -> tuple[SAC, dict[str, float]]:
    sac = build(case)
    noises = [case[key] for key in case.keys("noise.")]
    rounds = []
    for step in range(len(noises) // 2):
        noise = Noise(noises[2 * step], noises[2 * step + 1], torch.empty(0))
        rounds.append(sac.learn(batch_of(case, step), noise))
    return sac, {k: sum(r[k].item() for r in rounds) / len(rounds) for k in rounds[0]}


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_step_is_that_of_stable_baselines3(name, monkeypatch):
    monkeypatch.setattr(off_policy_actors, "log_tanh_slope", theirs_log_tanh_slope)
    case = Case(FILE, name)
    sac, metrics = run(case)

    assert_close(metrics["loss/actor"], case["losses.actor_loss"].item())
    assert_close(metrics["loss/critic"], case["losses.critic_loss"].item())
    assert_close(metrics["policy/alpha"], case["losses.ent_coef"].item())
    if case.keys("losses.ent_coef_loss"):
        assert_close(metrics["loss/alpha"], case["losses.ent_coef_loss"].item())
        log_alpha = sac.temperature.log_alpha
        assert_close(log_alpha.detach().view(1), case["params_after.log_ent_coef"])
    pairs = [
        (sac.policy.critic, batched(critic_layers(case, "params_after"))),
        (sac.target_critic, batched(critic_layers(case, "params_after", "critic_target"))),
        (sac.policy.actor, [t for pair in actor_layers(case, "params_after") for t in pair]),
    ]
    for network, expected in pairs:
        for ours, theirs in zip(network.backbone.parameters(), expected, strict=True):
            assert_close(ours.data, theirs)


@pytest.mark.parametrize("name", CASES)
def test_the_exact_log_probability_changes_the_losses_only_slightly(name):
    case = Case(FILE, name)
    _, metrics = run(case)
    assert metrics["loss/actor"] == pytest.approx(case["losses.actor_loss"].item(), abs=1e-4)
    assert metrics["loss/critic"] == pytest.approx(case["losses.critic_loss"].item(), abs=1e-4)


def test_log_probabilities_are_those_of_stable_baselines3(monkeypatch):
    monkeypatch.setattr(off_policy_actors, "log_tanh_slope", theirs_log_tanh_slope)
    case = Case(FILE, "tanh_gaussian")
    policy = TanhGaussian(case["mean"], case["log_std"])
    actions, log_prob = policy.sample_with_log_prob(case["noise"])
    assert_close(actions, case["action"])
    assert_close(log_prob, case["log_prob_from_gaussian"])
    assert_close(policy.mode, case["mode"])

    policy = TanhGaussian(case["mean_ext"], case["log_std_ext"])
    found = policy.log_prob(case["actions_ext"])
    # Where actions are -1 or 1 theirs corrects for that, ours for the float next to it.
    is_inside = (case["actions_ext"].abs() < 1).all(-1)
    assert is_inside.any()
    expected = case["log_prob_from_action"]
    assert_close(found[is_inside], expected[is_inside])


def test_log_probabilities_without_the_small_number_agree_where_tanh_does_not_saturate():
    case = Case(FILE, "tanh_gaussian")
    policy = TanhGaussian(case["mean"], case["log_std"])
    _, log_prob = policy.sample_with_log_prob(case["noise"])
    is_inside = case["action"].abs().amax(-1) < 0.9
    assert is_inside.any()
    expected = case["log_prob_from_gaussian"]
    # d log(1 - tanh^2 + c) = c / (1 - tanh^2), in every dimension
    apart = case["action"].shape[-1] * SMALL_NUMBER / (1 - 0.9**2)
    assert (log_prob - expected)[is_inside].abs().max() < apart + tolerance(expected[is_inside])
