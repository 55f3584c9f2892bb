"""TD-MPC2 against its official code: math, networks, values of plans, plans, one gradient step."""

import pytest
import torch

from rrf.algorithms.planning.configs import TDMPC2Cfg, discount_for
from rrf.algorithms.planning.tdmpc2 import TDMPC2, Noise, Sequences
from rrf.envs.control_env import Interface
from rrf.networks.configs import normed_mlp
from rrf.networks.mlp import MLP, SimNorm
from rrf.policies.control.mppi import PlanNoise, follow
from rrf.policies.control.off_policy_actors import TanhGaussian
from rrf.policies.control.world_model import TwoHot, WorldModel, symexp, symlog
from rrf.policies.control.world_model_configs import (
    PlannerCfg,
    WorldModelCfg,
    WorldModelPackCfg,
)
from tests.algorithms.off_policy.golden_files import Case
from tests.closeness import assert_close
from tests.golden_files import cases

FILE = "tdmpc2.npz"
FILES = [FILE, "tdmpc2_episodic.npz"]
PLANS = [(file, name) for file in FILES for name in cases(file, "plan_.*")]
PARTS = {
    "encoder": "_encoder.state",
    "dynamics": "_dynamics",
    "rewards": "_reward",
    "prior": "_pi",
}


def bins(config: dict) -> TwoHot:
    return TwoHot(config["vmin"], config["vmax"], config["num_bins"])


def build(config: dict, **changes) -> TDMPC2:
    """Our algorithm with the sizes and constants of a case."""
    hidden = [config["enc_dim"]] * max(config["num_enc_layers"] - 1, 1)
    model = WorldModelCfg(
        backbone_cfg=normed_mlp([config["mlp_dim"]] * 2),
        encoder_backbone_cfg=normed_mlp(hidden),
        min_log_std=config["log_std_min"],
        max_log_std=config["log_std_max"],
        latent_dim=config["latent_dim"],
        simnorm_group=config["simnorm_dim"],
        num_critics=config["num_q"],
        num_bins=config["num_bins"],
        bin_range=(config["vmin"], config["vmax"]),
        predicts_termination=config["episodic"],
        planner=PlannerCfg(
            horizon=config["horizon"],
            num_samples=config["num_samples"],
            num_policy_samples=config["num_pi_trajs"],
            num_elites=config["num_elites"],
            iterations=config["iterations"],
            temperature=config["temperature"],
            min_std=config["min_std"],
            max_std=config["max_std"],
        ),
    )
    interface = Interface({"policy": config["obs_shape"]["state"][0]}, config["action_dim"])
    pack = WorldModelPackCfg(actor_cfg=model).build(interface)
    cfg = TDMPC2Cfg(
        gamma=discount_for(config["episode_length"]),
        batch_size=config["batch_size"],
        actor_lr=config["lr"],
        critic_lr=config["lr"],
        encoder_lr_scale=config["enc_lr_scale"],
        tau=config["tau"],
        max_grad_norm=config["grad_clip_norm"],
        rho=config["rho"],
        consistency_coef=config["consistency_coef"],
        reward_coef=config["reward_coef"],
        value_coef=config["value_coef"],
        termination_coef=config["termination_coef"],
        entropy_coef=config["entropy_coef"],
        dropout=config["dropout"],
    )
    return TDMPC2(cfg, pack, 1, 100, torch.Generator())


def theirs(case: Case, prefix: str) -> list[torch.Tensor]:
    """Parameters of a network in the order of ours: weight, bias, and those of the normalisation.

    Weights of an ensemble are [K, out, in] in the file and [K, in, out] here; its vectors are [K,
    out] and [K, 1, out].
    """
    kinds = ("weight", "bias", "ln.weight", "ln.bias")
    numbers = sorted({int(k.removeprefix(prefix + ".").split(".")[0]) for k in case.keys(prefix)})
    found = []
    for number in numbers:
        for kind in kinds:
            for key in case.keys(f"{prefix}.{number}.{kind}"):
                tensor = case[key]
                if "_Qs" in prefix:
                    is_matrix = tensor.dim() == 3
                    tensor = tensor.transpose(1, 2) if is_matrix else tensor.unsqueeze(1)
                found.append(tensor)
    return found


def networks(algorithm: TDMPC2) -> dict[str, torch.nn.Module]:
    """Name in the file -> our network."""
    model = algorithm.model
    named = {key: getattr(model, name) for name, key in PARTS.items()}
    if model.terminations is not None:
        named["_termination"] = model.terminations
    return named | {"_Qs.params": model.critics, "_target_Qs_params": algorithm.target_critics}


def fill(algorithm: TDMPC2, case: Case, when: str) -> None:
    for key, network in networks(algorithm).items():
        given = theirs(case, f"{when}.{key}")
        for parameter, tensor in zip(network.parameters(), given, strict=True):
            parameter.data.copy_(tensor)


def drawn(case: Case, kind: str) -> list[torch.Tensor]:
    """Random numbers of one kind, in the order they were drawn."""
    return [case[key] for key in case.keys("noise.") if key.endswith(f"_{kind}")]


def updated(file: str) -> Case:
    """The update, whose weights before it are those of plans and values, too."""
    return Case(file, "update")


def test_both_kinds_of_world_model_have_golden_numbers():
    assert {updated(file).config["episodic"] for file in FILES} == {False, True}


def test_symlog_and_two_hot():
    case = Case(FILE, "math")
    ours, x = bins(case.config), case["x"]
    assert_close(symlog(x), case["symlog"])
    assert_close(symexp(symlog(x)), case["symexp_of_symlog"])
    lower, weight = ours.place(x.squeeze(-1))
    encoded = torch.zeros_like(case["two_hot"])
    encoded.scatter_(1, lower.unsqueeze(1), 1 - weight.unsqueeze(1))
    encoded.scatter_(1, lower.unsqueeze(1) + 1, weight.unsqueeze(1))
    assert_close(encoded, case["two_hot"], scale=case.config["num_bins"])  # a place's fraction
    assert_close(ours.mean(case["two_hot_logits"]), case["two_hot_inv"].squeeze(-1))
    found = ours.loss(case["two_hot_logits"], x.squeeze(-1))
    assert_close(found, case["soft_ce"].squeeze(-1))


def test_simnorm():
    case = Case(FILE, "simnorm")
    assert_close(SimNorm(case.config["simnorm_dim"])(case["x"]), case["out"])


def test_networks():
    case = Case(FILE, "mlp")
    first, *hidden, last = case.config["dims"]
    network = MLP(normed_mlp(hidden), first, last)
    for parameter, tensor in zip(network.parameters(), theirs(case, "weights"), strict=True):
        parameter.data.copy_(tensor)
    assert_close(network(case["x"]).detach(), case["out"])


def test_the_learned_policy():
    case = Case(FILE, "policy_math")
    low, width = case.config["log_std_min"], case.config["log_std_dif"]
    actions = case["mu"].shape[-1]
    model = WorldModelCfg(min_log_std=low, max_log_std=low + width, latent_dim=8).build(
        Interface({"policy": 1}, actions)
    )
    assert isinstance(model, WorldModel)
    model.prior.forward = lambda z: z  # pyright: ignore[reportAttributeAccessIssue]
    outputs = torch.cat([case["mu"], case["raw_log_std"]], -1)
    sampled, entropy = model.policy(outputs, case["eps"])
    assert_close(sampled, case["squashed_action"])
    assert_close(entropy, -actions * case["gaussian_logprob"].squeeze(-1))
    assert_close(TanhGaussian(case["mu"], case["log_std"]).mode, case["squashed_mean"])


def test_the_scale_of_values():
    case = Case(FILE, "running_scale")
    algorithm = build(updated(FILE).config)
    algorithm.cfg = algorithm.cfg.replace(tau=case.config["tau"])
    for index in range(len(case.keys("value_after"))):
        algorithm.update_scale(case[f"x{index}"].squeeze(-1))
        assert_close(algorithm.scale, case[f"value_after{index}"].squeeze())


@pytest.mark.parametrize("file", FILES)
def test_values_of_action_sequences(file):
    case = Case(file, "estimate_value")
    algorithm = build(updated(file).config)
    fill(algorithm, updated(file), "params_before")
    algorithm.model.discount.fill_(case.config["discount"])
    pair = drawn(case, "randperm")[0][:2]
    noise = drawn(case, "randn_like")[0]
    with torch.no_grad():
        rollouts = follow(algorithm.model, case["z"], case["actions"].unsqueeze(2), lambda _, a: a)
        found = rollouts.returns(algorithm.model, noise, pair)
    assert_close(found, case["value"].squeeze(-1))


@pytest.mark.parametrize(("file", "name"), PLANS)
def test_plans(file, name):
    case = Case(file, name)
    algorithm = build(case.config)
    fill(algorithm, updated(file), "params_before")
    horizon, others = case.config["horizon"], drawn(case, "randn_like")
    samples = [one for one in drawn(case, "randn") if one.dim() == 3]
    exploring = [one for one in drawn(case, "randn") if one.dim() == 1]
    is_greedy = case.config["eval_mode"]
    assert len(exploring) == (0 if is_greedy else 1)
    noise = PlanNoise(
        policy=torch.stack(others[:horizon]).unsqueeze(1),
        samples=torch.stack(samples).unsqueeze(2),
        last=torch.stack(others[horizon:]).unsqueeze(1),
        pairs=torch.stack(drawn(case, "randperm"))[:, :2],
        choice=drawn(case, "exponential")[0].unsqueeze(0),
        action=torch.zeros(1, case.config["action_dim"]) if is_greedy else exploring[0][None],
    )
    before = case["prev_mean_before"].unsqueeze(1)
    if case.config["t0"]:
        before = torch.zeros_like(before)
    actions, plan = algorithm.model.act(case["obs"], before, is_greedy, noise)
    assert_close(actions[0], case["action"])
    assert_close(plan.squeeze(1), case["prev_mean_after"])


@pytest.mark.parametrize("file", FILES)
def test_a_gradient_step(file):
    case = updated(file)
    algorithm = build(case.config)
    fill(algorithm, case, "params_before")
    assert algorithm.cfg.gamma == pytest.approx(case.config["discount"])
    of_targets, of_policy = drawn(case, "randn_like")
    pairs = torch.stack(drawn(case, "randperm"))[:, :2]
    batch = Sequences(
        case["obs"], case["action"], case["reward"].squeeze(-1), case["terminated"].squeeze(-1)
    )
    noise = Noise(of_targets.flatten(0, 1), of_policy.flatten(0, 1), pairs, None)
    metrics = algorithm.learn(batch, noise)
    names = [
        ("loss/consistency", "consistency_loss"),
        ("loss/reward", "reward_loss"),
        ("loss/value", "value_loss"),
        ("gradient/norm", "grad_norm"),
        ("loss/actor", "pi_loss"),
        ("value/scale", "pi_scale"),
    ]
    if case.config["episodic"]:
        names.append(("loss/termination", "termination_loss"))
    for ours, key in names:
        assert_close(metrics[ours].item(), case[f"info.{key}"].item())
    assert_close(algorithm.scale, case["scale_after"].squeeze())
    for key, network in networks(algorithm).items():
        expected = theirs(case, f"params_after.{key}")
        for parameter, tensor in zip(network.parameters(), expected, strict=True):
            assert_close(parameter.detach(), tensor)
