"""What is checked before an environment process is started."""

import json

import pytest

from rrf.lineage import DatasetLineage, Lineage
from rrf.orchestra.inline_run import build_runner
from rrf.policies import DiscreteTokenHeadCfg
from rrf.policies.vla.configs import PolicyCfg, ValueHeadCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from tests.orchestra.conftest import ENV, POLICY, STATS, TASKS, make_policy

LINEAGE = Lineage((DatasetLineage("demo"),))


IMITATED = POLICY.replace(value_head=None)


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """The checkpoint of a supervised run."""
    run_dir = tmp_path_factory.mktemp("sft")
    weights = make_policy(IMITATED).state_dict()
    state = checkpoint.TrainerState({}, {})
    cfg = SupervisedRunnerCfg(policy=IMITATED)
    return checkpoint.save(run_dir, 7, cfg, weights, STATS, state, LINEAGE)


def rl_cfg(parent, **changes):
    cfg = VLARLRunnerCfg(init_from=str(parent), policy=IMITATED, env=ENV, tasks=list(TASKS))
    return cfg.replace(**changes)


def test_a_value_head_may_be_new_but_nothing_else(parent, tmp_path):
    runner = build_runner(rl_cfg(parent, policy=POLICY), tmp_path)
    runner.backend.close()
    assert runner.actor.policy.num_values == 1
    wider = IMITATED.replace(features=IMITATED.features * 2)
    with pytest.raises(ValueError, match=r"not have the architecture of .* policy: trunk"):
        build_runner(rl_cfg(parent, policy=wider), tmp_path)


def test_the_lineage_names_the_parent(parent, tmp_path):
    runner = build_runner(rl_cfg(parent), tmp_path, LINEAGE)
    runner.backend.close()
    manifest = json.loads((parent / "manifest.json").read_text())
    assert runner.lineage.dataset_names == ["demo"]
    assert Lineage.from_dict(manifest["lineage"]).datasets == runner.lineage.datasets
    assert len(runner.lineage.parent_checkpoint or "") == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"init_from": None},
            r"init_from is not given, .*init_from=<checkpoint.*`rrf presets NAME`",
        ),
        ({"tasks": []}, "tasks is empty; name at least one"),
        ({"tasks": ["drawer-opne-v3"]}, "no task 'drawer-opne-v3'; did you mean 'drawer-open-v3'"),
        ({"env": ENV.replace(num_envs=5)}, r"num_envs=5 cannot be .* set num_envs=4 or 6"),
        (
            {"env": ENV.replace(chunk_length=3)},
            r"policy.chunk_length is 2, but env.chunk_length is 3",
        ),
        (
            {"env": ENV.replace(image_size=64)},
            r"policy.image_size is \(32, 32\), but env.image_size is",
        ),
        (
            {"env": ENV.replace(cameras=["corner"])},
            "policy.cameras names 'corner2', but env.cameras",
        ),
        (
            {"policy": IMITATED.replace(action_dim=7)},
            "policy.action_dim is 7, but env.action_dim is 4",
        ),
        (
            {"policy": IMITATED.replace(chunk_length=4), "env": ENV.replace(chunk_length=4)},
            r"predicts chunks of 2 steps, but .* 4; set policy.chunk_length=2",
        ),
        (
            {"policy": IMITATED.replace(head=DiscreteTokenHeadCfg())},
            "has a GaussianHeadCfg, but the run's policy has a DiscreteTokenHeadCfg",
        ),
        ({"policy": PolicyCfg()}, r"holds a CompactVLACfg, but the policy to train is a PolicyCfg"),
    ],
)
def test_what_does_not_fit_is_named(parent, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        build_runner(rl_cfg(parent, **changes), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_groups": 3}, "max_groups is 3, allowed: num_groups=24 or more"),
        ({"validation_seed": 42}, "validation_seed 42 is one of env_seeds"),
        ({"stop_after_failures": 1}, "stop_after_failures is 1, allowed: 2 or more"),
        ({"num_workers": 0}, "num_workers is 0, allowed: 1 or more"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(parent, changes, message):
    with pytest.raises(ValueError, match=message):
        rl_cfg(parent, **changes)


def test_a_ppo_run_needs_a_value_head(parent, tmp_path):
    from rrf.algorithms import VLAPPOCfg

    with pytest.raises(ValueError, match=r"value head has 0; set policy.value_head.level=chunk"):
        build_runner(rl_cfg(parent, algorithm=VLAPPOCfg()), tmp_path)
    level = ValueHeadCfg(level="action")
    cfg = rl_cfg(parent, algorithm=VLAPPOCfg(), policy=IMITATED.replace(value_head=level))
    with pytest.raises(ValueError, match=r"needs 1 value\(s\) per chunk, but .*has 2"):
        build_runner(cfg, tmp_path)
