"""Gradient steps of IQL and CQL against CORL's, on its weights, batches and noise."""

import pytest
import torch

from rrf.algorithms.off_policy.learner import Batch
from rrf.algorithms.off_policy.losses import expectile_loss
from rrf.algorithms.offline.configs import CQLCfg, IQLCfg
from rrf.algorithms.offline.cql import CQL, ProposalNoise
from rrf.algorithms.offline.iql import IQL
from rrf.envs.control_env import Interface
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import VNetworkCfg
from rrf.policies.control.off_policy_configs import ActorQPackCfg, QNetworkCfg, SACActorCfg
from rrf.policies.control.offline_configs import BoundedActorCfg, IQLPackCfg
from rrf.storage.replay import RowLayout, Transitions
from tests.algorithms.off_policy.golden_files import Case, batched, fill_critic, linear_layers
from tests.closeness import assert_close
from tests.golden_files import activation, cases, golden

IQL_FILE, CQL_FILE = "corl_iql.npz", "corl_cql.npz"


def batch_of(case: Case, prefix: str) -> Batch:
    now, actions, rewards, after, dones = (
        case[f"{prefix}.{key}"] for key in ("obs", "act", "rew", "next_obs", "done")
    )
    rows = torch.cat([now, actions, rewards, dones, dones, after], -1)
    steps = Transitions(rows, RowLayout(now.shape[-1], None, actions.shape[-1]))
    return Batch(steps, case.config["discount"] * (1 - dones).squeeze(-1))


def interface(case: Case, prefix: str) -> Interface:
    widths = [case[f"{prefix}.{key}"].shape[-1] for key in ("obs", "act")]
    return Interface({"policy": widths[0]}, num_actions=widths[1])


def tensors(layers) -> list[torch.Tensor]:
    return [tensor for layer in layers for tensor in layer]


def fill(module, layers) -> None:
    for parameter, tensor in zip(module.parameters(), tensors(layers), strict=True):
        parameter.data.copy_(tensor)


def same(module, expected: list[torch.Tensor]) -> None:
    for ours, theirs in zip(module.parameters(), expected, strict=True):
        assert_close(ours.data, theirs)


# ---------------------------------------------------------------------- IQL


def iql_critics(case: Case, when: str, name: str):
    return [linear_layers(case, f"{when}.{name}.q{k}.") for k in (1, 2)]


@pytest.mark.parametrize("name", cases(IQL_FILE, r"iql\d+"))
def test_iql_steps_are_those_of_corl(name):
    case = Case(IQL_FILE, name)
    config = case.config
    hidden = plain_mlp([config["hidden"]] * 2, activation(config["activation"]))
    pack = IQLPackCfg(
        actor_cfg=BoundedActorCfg(backbone_cfg=hidden, is_deterministic=config["det"]),
        critic_cfg=QNetworkCfg(backbone_cfg=hidden),
        value_cfg=VNetworkCfg(backbone_cfg=hidden, obs_normalization=False),
    )
    policy = pack.build(interface(case, "batch0"))
    cfg = IQLCfg(
        gamma=config["discount"],
        tau=config["soft"],
        expectile=config["tau"],
        beta=config["beta"],
        max_weight=config["exp_adv_max"],
        actor_lr=config["lr"],
        critic_lr=config["lr"],
        value_lr=config["lr"],
        actor_decay_updates=1000,
    )
    iql = IQL(cfg, policy, 1, 10, torch.Generator())
    fill(policy.actor.backbone, linear_layers(case, "params_before.actor.net"))
    fill(policy.value.backbone, linear_layers(case, "params_before.v"))
    fill_critic(policy.critic, iql_critics(case, "params_before", "q"))
    fill_critic(iql.target_critic, iql_critics(case, "params_before", "q_target"))
    if not config["det"]:
        policy.actor.log_std.data.copy_(case["params_before.actor.log_std"])

    for step in range(config["steps"]):
        metrics = iql.learn(batch_of(case, f"batch{step}"))
        for ours, theirs in (("value", "value"), ("critic", "q"), ("actor", "actor")):
            expected = case[f"losses{step}.{theirs}_loss"].item()
            assert_close(metrics[f"loss/{ours}"].item(), expected)

    same(policy.actor.backbone, tensors(linear_layers(case, "params_after.actor.net")))
    same(policy.value.backbone, tensors(linear_layers(case, "params_after.v")))
    same(policy.critic.backbone, batched(iql_critics(case, "params_after", "q")))
    slow = batched(iql_critics(case, "params_after", "q_target"))
    same(iql.target_critic.backbone, slow)
    if not config["det"]:
        assert_close(policy.actor.log_std.data, case["params_after.actor.log_std"])


def test_the_expectile_loss_is_that_of_corl():
    _, arrays = golden(IQL_FILE, "expectile")
    losses = {k: v for k, v in arrays.items() if k.startswith("loss_tau")}
    assert losses
    for key, expected in losses.items():
        found = expectile_loss(arrays["u"], float(key.removeprefix("loss_tau")))
        assert_close(found.item(), expected.item())


# ---------------------------------------------------------------------- CQL


def cql_critics(case: Case, when: str, name: str = "critic"):
    return [linear_layers(case, f"{when}.{name}_{k}.") for k in (1, 2)]


def cql_actor(case: Case, when: str) -> list[torch.Tensor]:
    """The layers of the actor, with the offset of the log stds as a part of the output's bias."""
    assert case["params_before.actor.log_std_multiplier.constant"] == 1
    found = [t.clone() for t in tensors(linear_layers(case, f"{when}.actor.base_network"))]
    offset = case["params_before.actor.log_std_offset.constant"]
    found[-1][len(found[-1]) // 2 :] += offset
    return found


def cql_noise(case: Case) -> ProposalNoise:
    drawn = [case[key] for key in case.keys("noise.")]
    if case.config["bc_steps"]:
        del drawn[1]  # an action of theirs, whose probability they take for the recorded one's
    if len(drawn) == 5:
        now, after, uniform, ours, theirs = drawn
    return ProposalNoise(now, after, torch.empty(0), uniform, ours, theirs)


@pytest.mark.parametrize("name", cases(CQL_FILE, r"cql\d+", bc_steps=0))
def test_a_cql_step_is_that_of_corl(name):
    case = Case(CQL_FILE, name)
    config = case.config
    hidden = plain_mlp([config["hidden"]] * 2, "ReLU")
    pack = ActorQPackCfg(
        actor_cfg=SACActorCfg(backbone_cfg=hidden),
        critic_cfg=QNetworkCfg(backbone_cfg=hidden),
    )
    policy = pack.build(interface(case, "batch"))
    learns_alpha = config.get("use_automatic_entropy_tuning", True)
    key = "params_before.log_alpha.constant"
    cfg = CQLCfg(
        gamma=config["discount"],
        tau=config["soft_target_update_rate"],
        actor_lr=config["policy_lr"],
        critic_lr=config["qf_lr"],
        alpha_lr=config["policy_lr"],
        target_entropy=config["target_entropy"],
        learn_alpha=learns_alpha,
        init_alpha=case[key].exp().item() if learns_alpha else config["alpha_multiplier"],
        cql_alpha=config["cql_alpha"],
        num_actions=config["cql_n_actions"],
        cql_temperature=config.get("cql_temp", 1.0),
        uses_importance=config.get("cql_importance_sample", True),
        gap=config["cql_target_action_gap"] if config.get("cql_lagrange") else None,
        max_gap=config.get("cql_clip_diff_max"),
        backs_up_entropy=config.get("backup_entropy", False),
        backs_up_max=config.get("cql_max_target_backup", False),
    )
    cql = CQL(cfg, policy, 1, 10, torch.Generator())
    for parameter, given in zip(
        policy.actor.backbone.parameters(), cql_actor(case, "params_before"), strict=True
    ):
        parameter.data.copy_(given)
    fill_critic(policy.critic, cql_critics(case, "params_before"))
    fill_critic(cql.target_critic, cql_critics(case, "params_before", "target_critic"))
    if cfg.gap is not None:
        cql.gap_weight.log_alpha.data.copy_(case["params_before.log_alpha_prime.constant"])

    metrics = cql.learn(batch_of(case, "batch"), cql_noise(case))

    def expected(*names: str) -> float:
        return sum(case[f"losses.{name}"].item() for name in names)

    ours = {name: value.item() for name, value in metrics.items()}
    assert_close(ours["loss/actor"], expected("policy_loss"))
    assert_close(ours["policy/entropy"], -expected("log_pi"))
    gaps = expected("cql_qf1_diff", "cql_qf2_diff") / 2
    assert_close(ours["value/gap"], gaps)
    conservative = expected("cql_min_qf1_loss", "cql_min_qf2_loss")
    assert_close(ours["loss/conservative"], conservative)
    assert_close(ours["policy/alpha"], expected("alpha"))
    if cfg.gap is not None:
        after = case["params_after.log_alpha_prime.constant"]
        assert_close(cql.gap_weight.log_alpha.data, after)
    if cfg.learn_alpha:
        assert_close(ours["loss/alpha"], expected("alpha_loss"))
        after = case["params_after.log_alpha.constant"]
        assert_close(cql.temperature.log_alpha.data, after)
    same(policy.actor.backbone, cql_actor(case, "params_after"))
    same(policy.critic.backbone, batched(cql_critics(case, "params_after")))
    slow = batched(cql_critics(case, "params_after", "target_critic"))
    same(cql.target_critic.backbone, slow)
