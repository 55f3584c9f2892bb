"""PPO's arithmetic against rsl_rl 5.4.2, which computed tests/golden/rsl_rl_ppo.npz."""

import pytest
import torch

from rrf.algorithms import PPOCfg
from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.returns import add_time_limit_bootstrap, gae
from rrf.compiled import ppo as compiled_ppo
from rrf.compiled.acceleration import accelerate
from rrf.envs.control_env import Interface
from rrf.networks import plain_mlp
from rrf.policies import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.policies.control.actor_critic import DiagonalGaussian
from rrf.policies.control.normalizer import EmpiricalNormalizer, RewardScaler
from rrf.storage.rollout import Samples
from tests.closeness import ULP, assert_close
from tests.golden_files import activation, cases, configs, golden

FILE = "rsl_rl_ppo.npz"
SETTINGS = configs(FILE)
CASES = cases(FILE, r"ppo\d+")
ARRAYS = {
    f"{case}/{name}": array for case in SETTINGS for name, array in golden(FILE, case)[1].items()
}


def tensor(name: str) -> torch.Tensor:
    return ARRAYS[name]


def ours_by_golden(case: str) -> dict[str, str]:
    """Our parameter names -> theirs, beneath params_before etc."""
    settings = SETTINGS[case]
    names = {}
    for network in ("actor", "critic"):
        for layer in range(0, 2 * len(settings["hidden"]) + 1, 2):
            for kind in ("weight", "bias"):
                ours = f"{network}.backbone.layers.{layer}.{kind}"
                names[ours] = f"{network}.mlp.{layer}.{kind}"
        if settings["norm"]:
            for buffer, theirs in (("mean", "_mean"), ("var", "_var"), ("std", "_std")):
                names[f"{network}.normalizer.{buffer}"] = f"{network}.obs_normalizer.{theirs}"
            names[f"{network}.normalizer.count"] = f"{network}.obs_normalizer.count"
    is_log = settings["std_type"] == "log"
    ours = "actor.log_std" if is_log else "actor.std"
    names[ours] = f"actor.distribution.{'log_std_param' if is_log else 'std_param'}"
    return names


def algorithm(case: str):
    settings = SETTINGS[case]
    mlp = plain_mlp(settings["hidden"], activation(settings["activation"]))
    policy_cfg = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(
            backbone_cfg=mlp,
            obs_normalization=settings["norm"],
            use_log_std=settings["std_type"] == "log",
            init_std=settings["init_std"],
        ),
        critic_cfg=VNetworkCfg(
            backbone_cfg=mlp,
            observation_groups=["policy", "privileged"],
            obs_normalization=settings["norm"],
        ),
    )
    dims = {"policy": settings["obs"], "privileged": settings["priv"]}
    policy = policy_cfg.build(Interface(dims, settings["act"]))
    state = {}
    for ours, theirs in ours_by_golden(case).items():
        kind = "params_after_rollout" if "normalizer" in theirs else "params_before"
        state[ours] = tensor(f"{case}/{kind}.{theirs}").view(policy.state_dict()[ours].shape)
    policy.load_state_dict(state)
    cfg = PPOCfg(**settings["ppo"])
    return cfg.build(policy, settings["N"], settings["T"], torch.Generator())


@pytest.mark.parametrize("case", CASES)
def test_returns_and_advantages(case):
    settings = SETTINGS[case]
    values = tensor(f"{case}/rollout.values").squeeze(-1)
    # Upstream bootstraps a time-out with the value before the step; so do we, given that value.
    rewards = add_time_limit_bootstrap(
        tensor(f"{case}/rollout.rewards"),
        tensor(f"{case}/rollout.time_outs"),
        values,
        settings["ppo"]["gamma"],
    )
    assert_close(rewards, tensor(f"{case}/stored_rewards").squeeze(-1))
    dones = tensor(f"{case}/rollout.dones")
    advantages, returns = gae(
        rewards,
        torch.cat([values, tensor(f"{case}/last_values").view(1, -1)]),
        torch.cat([torch.zeros_like(dones[:1]), dones]),
        settings["ppo"]["gamma"],
        settings["ppo"]["lam"],
    )
    assert_close(returns, tensor(f"{case}/returns").squeeze(-1))
    if not settings["ppo"]["normalize_advantage_per_mini_batch"]:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    assert_close(advantages, tensor(f"{case}/advantages").squeeze(-1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_update(case, threads):
    ppo = algorithm(case)
    settings = SETTINGS[case]["ppo"]
    if threads == 1:
        ppo.critic_thread = None
    samples, order = golden_samples(case)
    sums = {"surrogate": 0.0, "value": 0.0, "entropy": 0.0}
    parts = order.chunk(settings["num_mini_batches"])
    count = settings["num_learning_epochs"] * len(parts)
    for _ in range(settings["num_learning_epochs"]):
        for part in parts:
            metrics = ppo.step(samples.rows(part))
            for name in sums:
                sums[name] += float(metrics[f"loss/{name}"]) / count
    for name, value in sums.items():
        assert_close(value, tensor(f"{case}/losses.{name}").item())
    assert_learned(ppo, case)


@pytest.mark.skipif(compiled_ppo.library() is None, reason="this machine has no C compiler")
@pytest.mark.parametrize("case", CASES)
def test_compiled_update(case):
    ppo = algorithm(case)
    samples, order = golden_samples(case)
    ppo.order = lambda count: order
    accelerate(ppo)
    metrics = ppo.compiled.learn(samples)
    for name in ("surrogate", "value", "entropy"):
        expected = tensor(f"{case}/losses.{name}").item()
        assert_close(metrics[f"loss/{name}"], expected)
    assert_learned(ppo, case)


def golden_samples(case: str) -> tuple[Samples, torch.Tensor]:
    """The samples of the rollout, and their order in every epoch."""
    policy_obs = tensor(f"{case}/rollout.policy").flatten(0, 1)
    critic_obs = torch.cat([policy_obs, tensor(f"{case}/rollout.privileged").flatten(0, 1)], dim=-1)
    mean, std = tensor(f"{case}/rollout.mean"), tensor(f"{case}/rollout.std")
    samples = Samples(
        actor_obs=policy_obs,
        critic_obs=critic_obs,
        next_actor_obs=policy_obs,
        next_critic_obs=critic_obs,
        goes_on=torch.ones(len(policy_obs), dtype=torch.bool),
        actions=tensor(f"{case}/rollout.actions").flatten(0, 1),
        log_prob=tensor(f"{case}/rollout.log_prob").flatten(),
        distribution=torch.cat([mean, std], -1).flatten(0, 1),
        values=tensor(f"{case}/rollout.values").flatten(),
        returns=tensor(f"{case}/returns").flatten(),
        advantages=tensor(f"{case}/advantages").flatten(),
    )
    return samples, tensor(f"{case}/minibatch_permutation")


def assert_learned(ppo: PPO, case: str) -> None:
    """Fail unless learning rate and weights are those of rsl_rl."""
    assert float(ppo.learning_rate) == pytest.approx(
        tensor(f"{case}/learning_rate_after").item(), rel=16 * ULP
    )
    after = ppo.policy.state_dict()
    for ours, theirs in ours_by_golden(case).items():
        if "normalizer" not in theirs:
            expected = tensor(f"{case}/params_after.{theirs}")
            assert_close(after[ours], expected)


def test_observation_statistics():
    num_batches = len([name for name in ARRAYS if name.startswith("empirical_norm/batch")])
    assert num_batches > 1
    normalizer = EmpiricalNormalizer(tensor("empirical_norm/batch0").shape[-1])
    for number in range(num_batches):
        batch = tensor(f"empirical_norm/batch{number}")
        normalizer.update(batch)
        for name in ("mean", "var", "std", "count"):
            expected = tensor(f"empirical_norm/{name}_after{number}")
            assert_close(getattr(normalizer, name), expected.squeeze(0))
        expected = tensor(f"empirical_norm/normalised_after{number}")
        assert_close(normalizer(batch), expected)


def test_reward_statistics():
    case = "discounted_reward_norm"
    rewards = tensor(f"{case}/rewards")
    scaler = RewardScaler(rewards.shape[1], SETTINGS[case]["gamma"])
    nobody = torch.zeros(1, rewards.shape[1], dtype=torch.bool)
    scaled = torch.cat([scaler(row.unsqueeze(0), nobody) for row in rewards])
    assert_close(scaled, tensor(f"{case}/normalised"))


def test_gaussian_matches_rsl_rl():
    case = "dist_gaussian_scalar"
    mine = DiagonalGaussian(tensor(f"{case}/mean"), tensor(f"{case}/std"))
    assert_close(mine.log_prob(tensor(f"{case}/actions")), tensor(f"{case}/log_prob"))
    assert_close(mine.entropy(), tensor(f"{case}/entropy"))
    first = DiagonalGaussian(tensor(f"{case}/params1_0"), tensor(f"{case}/params1_1"))
    second = DiagonalGaussian(tensor(f"{case}/params2_0"), tensor(f"{case}/params2_1"))
    assert_close(first.kl_to(second), tensor(f"{case}/kl_1_2"))
