"""The compiled update of PPO against the loop on torch's operators. Cases are drawn."""

import functools
import random
import typing

import pytest
import torch

from rrf.algorithms import PPOCfg
from rrf.algorithms.on_policy.ppo import PPO
from rrf.compiled import ppo as compiled_ppo
from rrf.compiled.acceleration import accelerate
from rrf.envs.control_env import Interface
from rrf.networks import plain_mlp
from rrf.policies import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.policies.control.actor_critic import DiagonalGaussian
from rrf.storage.rollout import Samples
from tests.compiled.learner_states import (
    assert_close,
    assert_slow_alike,
    assert_threads_change_no_bit,
    state,
)

needs_compiler = pytest.mark.skipif(
    compiled_ppo.library() is None, reason="this machine has no C compiler"
)


def build(seed: int, is_fused: bool, **changes) -> PPO:
    """PPO with drawn widths and settings; the same for the same seed."""
    draw = random.Random(seed)
    torch.manual_seed(seed)

    def network() -> dict:
        hidden = [draw.choice((5, 16, 33, 64)) for _ in range(draw.randrange(3))]
        is_normalized = draw.random() < 0.5
        activation = draw.choice(("ReLU", "Tanh", "ELU"))
        return {"backbone_cfg": plain_mlp(hidden, activation), "obs_normalization": is_normalized}

    dims = {"policy": draw.randrange(1, 20)} | ({"critic": 7} if draw.random() < 0.5 else {})
    low, high = draw.choice(((1e-3, 10.0), (0.69, 0.71)))
    std = {"init_std": 0.7, "min_std": low, "max_std": high, "use_log_std": draw.random() < 0.7}
    pack = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(**network(), **std), critic_cfg=VNetworkCfg(**network())
    )
    cfg = PPOCfg(
        num_learning_epochs=draw.randrange(1, 4),
        num_mini_batches=draw.choice((1, 3, 16)),
        schedule=draw.choice(("adaptive", "fixed", "linear")),
        desired_kl=draw.choice((1e-4, 0.05)),
        clip_param=draw.choice((0.05, 0.3)),
        entropy_coef=draw.choice((0.0, 0.02)),
        value_loss_coef=draw.choice((0.5, 1.0)),
        use_clipped_value_loss=draw.random() < 0.5,
        normalize_advantage_per_mini_batch=draw.random() < 0.5,
        max_grad_norm=draw.choice((0.05, 100.0)),
        adam_eps=draw.choice((1e-5, 1e-8)),
    )
    policy = pack.build(Interface(dims, num_actions=draw.randrange(1, 9)))
    for part in (policy.actor, policy.critic):
        if part.normalizer is not None:
            part.normalizer.update(torch.randn(50, part.width) * 3 + 1)
    num_envs = draw.choice((2, 5, 21))
    ppo = cfg.replace(**changes).build(policy, num_envs, 20, torch.Generator().manual_seed(seed))
    if is_fused:
        accelerate(ppo)
    return ppo


def drawn_samples(ppo: PPO, seed: int) -> Samples:
    """Samples of a policy near this one, some of them clipped."""
    torch.manual_seed(seed)
    size, actor, critic = num_samples(ppo), ppo.policy.actor, ppo.policy.critic
    actor_obs, critic_obs = (torch.randn(size, one.width) for one in (actor, critic))
    with torch.no_grad():
        now = typing.cast(DiagonalGaussian, actor.distribution(actor(actor_obs)))
        before = DiagonalGaussian(now.mean + 0.1 * torch.randn_like(now.mean), now.std * 1.1)
        values = critic.value(critic_obs)
    actions = before.sample()
    return Samples(
        actor_obs=actor_obs,
        critic_obs=critic_obs,
        next_actor_obs=actor_obs,
        next_critic_obs=critic_obs,
        goes_on=torch.ones(size, dtype=torch.bool),
        actions=actions,
        log_prob=before.log_prob(actions),
        distribution=before.parameters,
        values=values + 0.2 * torch.randn(size),
        returns=values + torch.randn(size),
        advantages=torch.randn(size),
    )


def num_samples(ppo: PPO) -> int:
    return ppo.rollout.num_steps * ppo.rollout.num_envs


def updates(ppo: PPO, count: int, first: int = 0) -> list[dict[str, float]]:
    """So many updates; returns their metrics."""
    made = []
    for seed in range(first, first + count):
        learner = ppo.compiled or ppo
        made.append(learner.learn(drawn_samples(ppo, seed)))
    return made


def close(found: dict, expected: dict) -> None:
    first, second = (
        {name: torch.as_tensor(one) for name, one in of.items()} for of in (found, expected)
    )
    assert_close(first, second, 5e-5)


@needs_compiler
@pytest.mark.parametrize("seed", range(16))
def test_equals_torch(seed):
    compiled, plain = build(seed, True), build(seed, False)
    assert compiled.compiled is not None
    for of_compiled, of_plain in zip(updates(compiled, 3), updates(plain, 3), strict=True):
        close(of_compiled, of_plain)
    close(state(compiled), state(plain))
    assert torch.equal(compiled.generator.get_state(), plain.generator.get_state())


@needs_compiler
def test_the_cases_clip_and_adapt():
    made = [updates(build(seed, True), 3) for seed in range(16)]
    clipped = [one["policy/clip_fraction"] for of_case in made for one in of_case]
    assert sum(0.02 < one < 0.9 for one in clipped) > 20
    rates = set()
    for seed in range(16):
        ppo = build(seed, True, schedule="adaptive", learning_rate=1e-3)
        updates(ppo, 3)
        rates.add(ppo.learning_rate.item())
    assert min(rates) < 1e-3 < max(rates)


@needs_compiler
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_number_of_threads_changes_no_bit(precision, monkeypatch):
    monkeypatch.setattr(compiled_ppo, "_FEW", 0)
    made = functools.partial(build, 4, True, precision=precision)
    assert_threads_change_no_bit(monkeypatch, made, updates)


@needs_compiler
def test_continues_bit_for_bit_from_its_state():
    made = functools.partial(build, 5, True, schedule="adaptive")
    whole, first, second = made(), made(), made()
    updates(whole, 6)
    updates(first, 3)
    tensors, facts = first.state()
    updates(second, 1)  # so that it holds addresses that the state replaces
    second.policy.load_state_dict(first.policy.state_dict())
    second.load_state(tensors, facts)
    second.generator.set_state(first.generator.get_state())
    updates(second, 3, first=3)
    expected, found = state(whole), state(second)
    assert all(torch.equal(found[name], one) for name, one in expected.items())


@needs_compiler
def test_rewards_in_double_precision():
    compiled, plain = build(3, True), build(3, False)
    for ppo in (compiled, plain):
        samples = drawn_samples(ppo, 0)
        samples.returns, samples.advantages = samples.returns.double(), samples.advantages.double()
        assert (ppo.compiled is None) == (ppo is plain)
        (ppo.compiled or ppo).learn(samples)
    close(state(compiled), state(plain))


@needs_compiler
def test_a_lowered_learning_rate_is_used():
    compiled, plain = (build(7, is_fused, schedule="adaptive") for is_fused in (True, False))
    assert_slow_alike(compiled, plain, updates, 5e-5)


@needs_compiler
def test_a_diverged_sample_shows():
    for field in ("advantages", "returns", "log_prob"):
        ppo = build(8, True)
        samples = drawn_samples(ppo, 0)
        getattr(samples, field)[0] = float("nan")
        ppo.compiled.learn(samples)
        assert not all(one.isfinite().all() for one in ppo.policy.parameters())
