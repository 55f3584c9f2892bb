"""The compiled gradient step of SAC against `SAC.learn` on torch's operators. Cases are drawn."""

import functools
import random

import pytest
import torch

from rrf.algorithms.off_policy.configs import SACCfg
from rrf.algorithms.off_policy.learner import Batch
from rrf.algorithms.off_policy.sac import SAC, Noise
from rrf.compiled import sac as compiled_sac
from rrf.compiled.acceleration import accelerate
from rrf.envs.control_env import Interface
from rrf.networks.configs import plain_mlp
from rrf.policies.control.off_policy_configs import ActorQPackCfg, QNetworkCfg, SACActorCfg
from tests.compiled import learner_states

needs_compiler = pytest.mark.skipif(
    compiled_sac.library() is None, reason="this machine has no C compiler"
)


def build(seed: int, is_fused: bool, **changes) -> SAC:
    """SAC with drawn widths and settings; the same for the same seed."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    hidden = plain_mlp([draw.choice((5, 16, 33, 64)) for _ in range(draw.randrange(3))], "ReLU")
    both = {"backbone_cfg": hidden, "obs_normalization": draw.random() < 0.5}
    dims = {"actor": draw.randrange(1, 20)} | ({"critic": 7} if draw.random() < 0.5 else {})
    log_stds = draw.choice(((-20.0, 2.0), (-0.1, 0.1)))  # the latter bounds many
    pack = ActorQPackCfg(
        actor_cfg=SACActorCfg(
            min_log_std=log_stds[0],
            max_log_std=log_stds[1],
            action_limit=draw.choice((1.0, 0.7)),
            **both,
        ),
        critic_cfg=QNetworkCfg(num_critics=draw.choice((1, 2, 3)), **both),
    )
    cfg = SACCfg(
        batch_size=draw.choice((2, 3, 31, 256, 300)),
        tau=draw.choice((0.005, 0.3)),
        learn_alpha=draw.random() < 0.7,
        init_alpha=draw.choice((1.0, 0.2)),
        actor_lr=1e-3,
    )
    policy = pack.build(Interface(dims, num_actions=draw.randrange(1, 9)))
    sac = SAC(cfg.replace(**changes), policy, 1, 10, torch.Generator())
    learner_states.shift_normalizers(policy.actor, policy.critic)
    if is_fused:
        accelerate(sac)
    return sac


def a_batch(sac: SAC, seed: int, size: int | None = None) -> tuple[Batch, Noise]:
    generator = torch.Generator().manual_seed(seed)
    batch = learner_states.drawn_batch(sac, generator, size)
    size = len(batch.discounts)
    noise = torch.randn(2, size, sac.policy.actor.num_actions, generator=generator)
    return batch, Noise(noise[0], noise[1], torch.empty(0, size))


def steps(
    sac: SAC, count: int, first: int = 0, size: int | None = None
) -> list[dict[str, torch.Tensor]]:
    learner = sac.compiled or sac
    return [learner.learn(*a_batch(sac, seed, size)) for seed in range(first, first + count)]


@needs_compiler
@pytest.mark.parametrize("seed", range(10))
def test_equals_torch(seed):
    compiled, plain = build(seed, True), build(seed, False)
    assert compiled.compiled is not None
    for of_compiled, of_plain in zip(steps(compiled, 4), steps(plain, 4), strict=True):
        learner_states.assert_close(of_compiled, of_plain)
    of_compiled, of_plain = learner_states.state(compiled), learner_states.state(plain)
    if not compiled.cfg.learn_alpha:  # torch keeps nothing of what it did not move
        of_compiled = {name: one for name, one in of_compiled.items() if name in of_plain}
    learner_states.assert_close(of_compiled, of_plain)


@needs_compiler
def test_bfloat16_stays_near_it():
    exact, rounded = (build(2, True, precision=one, batch_size=256) for one in ("fp32", "bf16"))
    for of_exact, of_rounded in zip(steps(exact, 4), steps(rounded, 4), strict=True):
        learner_states.assert_close(of_rounded, of_exact, 0.05)


@needs_compiler
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_number_of_threads_changes_no_bit(precision, monkeypatch):
    made = functools.partial(build, 4, True, precision=precision, batch_size=300)
    learner_states.assert_threads_change_no_bit(monkeypatch, made, steps)


@needs_compiler
def test_continues_bit_for_bit_from_its_state():
    learner_states.assert_continues(functools.partial(build, 5, True), steps)


@needs_compiler
def test_a_state_of_torch_is_continued_by_the_code_and_back():
    mixed, plain = build(6, False), build(6, False)
    steps(plain, 6)
    steps(mixed, 2)
    accelerate(mixed)
    steps(mixed, 2, first=2)
    mixed.compiled = None
    steps(mixed, 2, first=4)
    learner_states.assert_close(learner_states.state(mixed), learner_states.state(plain))


@needs_compiler
def test_a_lowered_learning_rate_is_used():
    learner_states.assert_slow_alike(build(7, True), build(7, False), steps)


@needs_compiler
def test_a_diverged_batch_shows():
    sac = build(8, True)
    batch, noise = a_batch(sac, 0)
    batch.steps.rewards[0] = float("nan")
    assert sac.compiled.learn(batch, noise)["loss/critic"].isnan()


@needs_compiler
def test_batches_of_another_size_are_left_to_torch_and_counted():
    learner_states.assert_odd_batches_count(build(9, True), build(9, False), steps)
