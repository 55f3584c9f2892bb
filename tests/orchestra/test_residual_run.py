"""What is checked before a residual is trained, and what real environments tell it of an end."""

import pytest
import torch

from rrf.lineage import DatasetLineage, Lineage
from rrf.orchestra.inline import InlineBackend
from rrf.orchestra.residual_run import build_roles, build_runner
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.residual_configs import ResidualVLACfg
from rrf.runners import OffPolicyRunnerCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.job_sources import JobList
from rrf.runners.vla_rl.residual_configs import ResidualSACRunnerCfg
from tests.envs.toy import CorridorCfg
from tests.orchestra.conftest import ENV, POLICY, STATS, TASKS, make_policy, states

LINEAGE = Lineage((DatasetLineage("demo"),))


IMITATED = POLICY.replace(value_head=None)


def saved(run_dir, cfg, weights):
    state = checkpoint.TrainerState({}, {})
    return checkpoint.save(run_dir, 7, cfg, weights, STATS, state, LINEAGE)


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """The checkpoint of a supervised run."""
    run_dir = tmp_path_factory.mktemp("sft")
    return saved(run_dir, SupervisedRunnerCfg(policy=IMITATED), make_policy(IMITATED).state_dict())


def residual_cfg(parent, **changes):
    cfg = ResidualSACRunnerCfg(init_from=str(parent), env=ENV, tasks=list(TASKS))
    return cfg.replace(**changes)


def test_the_base_is_whatever_init_from_holds(parent, tmp_path):
    runner = build_runner(residual_cfg(parent), tmp_path)
    runner.backend.close()
    policy = runner.actor.policy
    assert runner.cfg.policy.base == IMITATED
    assert policy.cfg.cameras == IMITATED.cameras
    expected = make_policy(IMITATED).state_dict()
    for name, weights in policy.base.state_dict().items():
        assert torch.equal(weights, expected[name]), name
        shared = runner.backend.rollout.policy.base.state_dict()[name]
        assert shared.data_ptr() == weights.data_ptr(), name
    assert not any(weights.requires_grad for weights in policy.base.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init_from": None}, r"init_from is not given, .*init_from=<checkpoint"),
        ({"tasks": ["drawer-opne-v3"]}, "did you mean 'drawer-open-v3'"),
        ({"env": ENV.replace(chunk_length=3)}, "chunk_length is 2, but env.chunk_length is 3"),
        (
            {"policy": ResidualVLACfg(base=PolicyCfg())},
            "holds a CompactVLACfg, but the policy to train is a PolicyCfg",
        ),
    ],
)
def test_what_does_not_fit_is_named(parent, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        build_runner(residual_cfg(parent, **changes), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    path = saved(tmp_path, OffPolicyRunnerCfg(env=CorridorCfg()), {"w": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"holds no policy that sees images .*give a checkpoint"):
        build_runner(residual_cfg(path), tmp_path / "run")


def test_a_residual_is_not_put_on_a_residual(tmp_path):
    cfg = residual_cfg("unused", policy=ResidualVLACfg().over(IMITATED))
    path = saved(tmp_path, cfg, cfg.policy.build(STATS).state_dict())
    with pytest.raises(ValueError, match=r"global_step_7: .* has a residual already; give the"):
        build_runner(residual_cfg(path), tmp_path / "run")


@pytest.mark.slow
def test_the_end_of_truncated_episodes_is_read_like_any_other_state():
    cfg = residual_cfg("unused", policy=ResidualVLACfg().over(IMITATED), inference_batch=4)
    _, rollout = build_roles(cfg, cfg.policy.build(STATS, make_policy(IMITATED)))
    # The same episode, cut off at 2 and at 4 actions: the end of one is inside of the other.
    found = []
    for horizon in (2, 4):
        backend = InlineBackend(
            ENV.replace(num_envs=1, max_episode_steps=horizon, chunk_length=2), rollout, 1
        )
        source = JobList([next(states())])
        try:
            backend.play(source, (0,), greedy=True)
        finally:
            backend.close()
        found += source.episodes
    short, long = found
    assert short.truncated
    assert torch.equal(short.final_replay["seen"], long.replay["seen"][1])
    assert not torch.equal(short.final_replay["seen"], long.replay["seen"][0])
