"""A small policy in Meta-World, and rounds of it."""

import numpy as np
import pytest
import torch

from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.vec_env import InitialState
from rrf.networks import ImageEncoderCfg
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.rollout_role import RolloutRole
from rrf.policies import CompactVLACfg, GaussianHeadCfg
from rrf.policies.vla.configs import ValueHeadCfg
from rrf.runners.vla_rl.job_sources import GroupRound

TASKS = ("drawer-open-v3", "window-open-v3")
STATS = {
    "observation.state": {"mean": [0.0, 0.6, 0.2, 0.5], "std": [0.1, 0.1, 0.1, 0.5]},
    "action": {"min": [-1.0] * 4, "max": [1.0] * 4},
}
POLICY = CompactVLACfg(
    image_size=(32, 32),
    image_encoder=ImageEncoderCfg(
        channels=[8, 8], kernel_sizes=[3, 3], strides=[4, 2], num_film_layers=1, out_features=32
    ),
    head=GaussianHeadCfg(initial_std=0.5),
    value_head=ValueHeadCfg(),
)
ENV = MetaWorldCfg(num_envs=4, max_episode_steps=5, image_size=32)


def make_policy(cfg=POLICY, seed=0, stats=STATS):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return cfg.build(stats).eval()


def states():
    """Initial states for groups, without end."""
    number = 0
    while True:
        yield InitialState(TASKS[number % 2], 42, number)
        number += 1


def group_round(num_groups=3, group_size=2):
    return GroupRound(states(), num_groups, group_size, num_groups, keeps_uniform=True)


def play(num_workers, disturb=lambda backend, source: None, env=ENV, **arguments):
    """A round of three groups; `disturb` gets backend and source before it plays."""
    backend = InlineBackend(env, RolloutRole(make_policy(), batch_rows=4), num_workers)
    source = group_round()
    try:
        disturb(backend, source)
        backend.play(source, (0, 7), **arguments)
    finally:
        backend.close()
    return source.episodes, backend


def assert_same(episodes, others):
    assert [e.job for e in episodes] == [e.job for e in others]
    for one, other in zip(episodes, others, strict=True):
        for name in ("log_prob", "value"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name
        for name in ("reward", "steps"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for name in one.replay:
            assert torch.equal(one.replay[name], other.replay[name]), name
        for camera in other.observation.images:
            np.testing.assert_array_equal(
                one.observation.images[camera], other.observation.images[camera]
            )
        np.testing.assert_array_equal(one.final_value, other.final_value)
        assert (one.success, one.truncated) == (other.success, other.truncated)
        assert one.reset_digest == other.reset_digest


@pytest.fixture(scope="session")
def one_worker_round():
    """What one worker plays, undisturbed."""
    episodes, _ = play(1)
    return episodes


@pytest.fixture(scope="session", autouse=True)
def patience():
    """Time for Ray's own helpers to start on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_agent_register_timeout_ms", "200000")
        yield
