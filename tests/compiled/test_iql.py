"""The compiled gradient step of IQL against `IQL.learn` on torch's operators. Cases are drawn."""

import functools
import random

import pytest
import torch

from rrf.algorithms.off_policy.learner import Batch
from rrf.algorithms.offline.configs import IQLCfg
from rrf.algorithms.offline.iql import IQL
from rrf.compiled import iql as compiled_iql
from rrf.compiled.acceleration import accelerate
from rrf.envs.control_env import Interface
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import VNetworkCfg
from rrf.policies.control.off_policy_configs import QNetworkCfg
from rrf.policies.control.offline_configs import BoundedActorCfg, IQLPackCfg
from tests.compiled import learner_states

needs_compiler = pytest.mark.skipif(
    compiled_iql.library() is None, reason="this machine has no C compiler"
)


def build(seed: int, is_fused: bool, **changes) -> IQL:
    """IQL with drawn widths and settings; the same for the same seed."""
    draw = random.Random(seed)
    torch.manual_seed(seed)

    def network() -> dict:
        hidden = [draw.choice((5, 16, 33, 64)) for _ in range(draw.randrange(3))]
        is_normalized = draw.random() < 0.5
        return {"backbone_cfg": plain_mlp(hidden, "ReLU"), "obs_normalization": is_normalized}

    dims = {"policy": draw.randrange(1, 20)} | ({"critic": 7} if draw.random() < 0.5 else {})
    low, high = draw.choice(((-20.0, 2.0), (-0.4, -0.1)))  # the latter excludes the first value
    pack = IQLPackCfg(
        actor_cfg=BoundedActorCfg(
            min_log_std=low,
            max_log_std=high,
            action_limit=draw.choice((1.0, 0.7)),
            is_deterministic=draw.random() < 0.4,
            **network(),
        ),
        critic_cfg=QNetworkCfg(num_critics=draw.choice((1, 2, 3)), **network()),
        value_cfg=VNetworkCfg(**network()),
    )
    cfg = IQLCfg(
        batch_size=draw.choice((2, 3, 31, 256, 300)),
        tau=draw.choice((0.005, 0.3)),
        expectile=draw.choice((0.7, 0.9)),
        beta=draw.choice((3.0, 10.0)),
        max_weight=draw.choice((100.0, 2.0)),
        actor_decay_updates=draw.choice((None, 5)),
        actor_lr=1e-3,
        value_lr=2e-3,
    )
    policy = pack.build(Interface(dims, num_actions=draw.randrange(1, 9)))
    iql = IQL(cfg.replace(**changes), policy, 1, 10, torch.Generator())
    learner_states.shift_normalizers(policy.actor, policy.critic, policy.value)
    if is_fused:
        accelerate(iql)
    return iql


def a_batch(iql: IQL, seed: int, size: int | None = None) -> Batch:
    return learner_states.drawn_batch(iql, torch.Generator().manual_seed(seed), size)


def steps(
    iql: IQL, count: int, first: int = 0, size: int | None = None
) -> list[dict[str, torch.Tensor]]:
    learner = iql.compiled or iql
    return [learner.learn(a_batch(iql, seed, size)) for seed in range(first, first + count)]


@needs_compiler
@pytest.mark.parametrize("seed", range(12))
def test_equals_torch(seed):
    compiled, plain = build(seed, True), build(seed, False)
    assert compiled.compiled is not None
    for of_compiled, of_plain in zip(steps(compiled, 4), steps(plain, 4), strict=True):
        learner_states.assert_close(of_compiled, of_plain, 5e-5)
    learner_states.assert_close(learner_states.state(compiled), learner_states.state(plain), 5e-5)


@needs_compiler
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_number_of_threads_changes_no_bit(precision, monkeypatch):
    made = functools.partial(build, 4, True, precision=precision, batch_size=300)
    learner_states.assert_threads_change_no_bit(monkeypatch, made, steps)


@needs_compiler
def test_continues_bit_for_bit_from_its_state():
    learner_states.assert_continues(functools.partial(build, 5, True), steps)


@needs_compiler
def test_a_lowered_learning_rate_is_used():
    learner_states.assert_slow_alike(build(7, True), build(7, False), steps, 5e-5)


@needs_compiler
def test_a_diverged_batch_shows():
    iql = build(8, True)
    batch = a_batch(iql, 0)
    batch.steps.rewards[0] = float("nan")
    assert iql.compiled.learn(batch)["loss/critic"].isnan()


@needs_compiler
def test_batches_of_another_size_are_left_to_torch_and_counted():
    learner_states.assert_odd_batches_count(build(9, True), build(9, False), steps, 5e-5)
