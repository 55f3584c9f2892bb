"""DSAC-T's gradient step against the original code's, on its weights, batches and noise."""

import pytest
import torch

from rrf.algorithms.off_policy.configs import DSACTCfg
from rrf.algorithms.off_policy.dsac import DSACT
from rrf.algorithms.off_policy.learner import Batch
from rrf.algorithms.off_policy.sac import Noise
from rrf.envs.control_env import Interface
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.policies.control import off_policy_actors
from rrf.policies.control.off_policy_configs import ActorQPackCfg, DistributionalQCfg, SACActorCfg
from rrf.storage.replay import RowLayout, Transitions
from tests.algorithms.off_policy.golden_files import (
    Case,
    batched,
    fill_actor,
    fill_critic,
    linear_layers,
)
from tests.closeness import assert_close
from tests.golden_files import activation, cases

FILE = "dsac_t.npz"
POLICY = "params_before.policy.policy"


def theirs_log_tanh_slope(u):
    """The original adds a small number where ours is exact."""
    return torch.log(1 + 1e-6 - torch.tanh(u) ** 2)


def critic_layers(case: Case, when: str, suffix: str = ""):
    return [linear_layers(case, f"{when}.q{k}{suffix}.q.") for k in (1, 2)]


def hidden_of(case: Case, prefix: str) -> MLPCfg:
    """A network as wide and as deep as the layers under `prefix`."""
    sizes = [len(bias) for _, bias in linear_layers(case, prefix)[:-1]]
    return plain_mlp(sizes, activation(case.config["activation"]))


def build(case: Case) -> DSACT:
    config = case.config
    limit = config["lim"][1]
    actor_hidden = hidden_of(case, POLICY)
    pack = ActorQPackCfg(
        actor_cfg=SACActorCfg(
            backbone_cfg=actor_hidden,
            min_log_std=config["min_log_std"],
            max_log_std=config["max_log_std"],
            action_limit=limit,
        ),
        critic_cfg=DistributionalQCfg(backbone_cfg=hidden_of(case, "params_before.q1.q.")),
    )
    policy = pack.build(Interface({"policy": config["obs"]}, num_actions=config["act"]))
    fill_actor(policy, linear_layers(case, POLICY))
    fill_critic(policy.critic, critic_layers(case, "params_before"))
    alpha = config.get("alpha") or case["params_before.log_alpha"].exp().item()
    cfg = DSACTCfg(
        gamma=config["gamma"],
        tau=config["tau"],
        tau_b=config.get("tau_b", config["tau"]),
        actor_lr=config["policy_lr"],
        critic_lr=config["value_lr"],
        alpha_lr=config["alpha_lr"],
        init_alpha=alpha,
        learn_alpha=config["auto_alpha"],
        target_entropy=config["target_entropy"],
        policy_delay=config["delay_update"],
    )
    dsact = DSACT(cfg, policy, 1, 100, torch.Generator())
    fill_critic(dsact.target_critic, critic_layers(case, "params_before", "_target"))
    slow = [t for layer in linear_layers(case, "params_before.policy_target.policy") for t in layer]
    for parameter, tensor in zip(dsact.target_actor.backbone.parameters(), slow, strict=True):
        parameter.copy_(tensor)
    return dsact


@pytest.mark.parametrize("name", cases(FILE, r"dsac\d+"))
def test_gradient_steps_are_those_of_the_original(name, monkeypatch):
    monkeypatch.setattr(off_policy_actors, "log_tanh_slope", theirs_log_tanh_slope)
    case = Case(FILE, name)
    dsact = build(case)
    noises = [case[key] for key in case.keys("noise.")]
    num_steps = case.config["steps"]
    layout = RowLayout(case.config["obs"], None, case.config["act"])
    # Of a step: policy, target policy, q1, q2, target q1, target q2, two that nobody uses.
    num_noises = len(noises) // num_steps
    for step in range(num_steps):
        now, action, reward, after, done = (
            case[f"batch{step}.{key}"] for key in ("obs", "act", "rew", "obs2", "done")
        )
        flags = done.unsqueeze(-1)
        rows = torch.cat([now, action, reward.unsqueeze(-1), flags, flags, after], -1)
        batch = Batch(Transitions(rows, layout), case.config["gamma"] * (1 - done))
        own = noises[num_noises * step :]
        metrics = dsact.learn(batch, Noise(own[0], own[1], torch.stack(own[4:6])))

        expected = case[f"info{step}.loss_critic"].item()
        assert_close(metrics["loss/critic"].item(), expected)
        if step % case.config["delay_update"] == 0:
            expected = case[f"info{step}.loss_actor"].item()
            assert_close(metrics["loss/actor"].item(), expected)
            expected = case[f"info{step}.DSAC2_entropy-RL iter"].item()
            assert_close(metrics["policy/entropy"].item(), expected)
        running = case[f"mean_std{step}"].float()
        assert_close(dsact.running_std, running)

    after = f"params_after{num_steps - 1}"
    slow_actor = [t for layer in linear_layers(case, f"{after}.policy_target") for t in layer]
    pairs = [
        (dsact.policy.critic, batched(critic_layers(case, after))),
        (dsact.target_critic, batched(critic_layers(case, after, "_target"))),
        (dsact.policy.actor, [t for pair in linear_layers(case, f"{after}.policy.") for t in pair]),
        (dsact.target_actor, slow_actor),
    ]
    for network, expected in pairs:
        for ours, theirs in zip(network.backbone.parameters(), expected, strict=True):
            assert_close(ours.data, theirs)
    if case.config["auto_alpha"]:
        ours = dsact.temperature.log_alpha.detach()
        assert_close(ours, case[f"{after}.log_alpha"])
