"""Micro-batches, several processes, and weights divided among them: the same training."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from rrf.config import parse_overrides
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.frames import split_of
from rrf.runners.supervised.parallel import own_parts
from tests.repository.structure import ROOT
from tests.runners.supervised.conftest import tiny_run_cfg
from tests.runners.supervised.parallel_cases import CASES


def cfg_of(dataset, name):
    """The case as a single process trains it: nothing is divided then."""
    words = [word for word in CASES[name] if not word.startswith("sharding")]
    return tiny_run_cfg(dataset).override(parse_overrides(words))


@pytest.fixture(scope="module")
def left(dataset, tmp_path_factory):
    """What two processes left."""
    root = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = ["-m", "tests.runners.supervised.distributed", str(root), str(dataset)]
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return root


def weights(run_dir):
    path = checkpoint.latest(run_dir)
    assert path is not None
    return checkpoint.read_weights(path), checkpoint.load_trainer_state(path)


def assert_same_bits(first, second):
    for mine, other in ((first[0], second[0]), (first[1].tensors, second[1].tensors)):
        assert mine.keys() == other.keys()
        assert [name for name in mine if not torch.equal(mine[name], other[name])] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["replicated", "parts", "single_validation_batch"])
def test_two_processes_equal_one_bit_for_bit(left, dataset, tmp_path, name):
    cfg_of(dataset, name).build(tmp_path).run()
    (mine, state), (other, other_state) = weights(left / name), weights(tmp_path)
    assert_same_bits((mine, state), (other, other_state))
    assert state.facts["metrics"] == pytest.approx(other_state.facts["metrics"], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accumulated", "sharded", "sharded_single_validation_batch"])
def test_more_parts_and_divided_weights_equal_one_process(left, dataset, tmp_path, name):
    cfg_of(dataset, name).build(tmp_path).run()
    (mine, state), (other, other_state) = weights(left / name), weights(tmp_path)
    assert mine.keys() == other.keys()
    assert max((mine[n] - other[n]).abs().max().item() for n in mine) < 1e-5
    assert state.tensors.keys() == other_state.tensors.keys()
    assert state.facts["metrics"].keys() == other_state.facts["metrics"].keys()
    for metric, value in state.facts["metrics"].items():
        assert value == pytest.approx(other_state.facts["metrics"][metric], rel=1e-3), metric


def test_a_process_may_have_nothing_to_validate(dataset):
    cfg = cfg_of(dataset, "single_validation_batch")
    held_out = split_of(cfg).validation
    assert held_out is not None
    assert held_out.num_frames <= cfg.batch_size


@pytest.mark.slow
def test_a_run_of_two_processes_is_resumed_by_one(left, dataset, tmp_path):
    cfg = cfg_of(dataset, "replicated")
    cfg.build(tmp_path / "whole").run()
    shutil.copytree(left / "replicated", tmp_path / "resumed")
    shutil.rmtree(checkpoint.latest(tmp_path / "resumed"))
    cfg.build(tmp_path / "resumed").run()
    assert_same_bits(weights(tmp_path / "resumed"), weights(tmp_path / "whole"))


def test_a_sharded_run_is_resumed_by_one_process_that_shards_nothing(left, dataset, tmp_path):
    path = checkpoint.latest(left / "sharded")
    policy = checkpoint.load_policy(path)
    assert torch.isfinite(next(policy.parameters())).all()


def test_a_signal_to_one_process_stops_all_in_the_same_step(left):
    codes = {(left / f"stopped-{rank}").read_text() for rank in range(2)}
    assert codes == {str(128 + signal.SIGTERM)}
    assert list(checkpoint.steps(left / "stopped")) == [1]


def test_micro_batches_equal_the_whole_batch(dataset, tmp_path):
    """Without augmentation there is no randomness, so parts only change the order of additions."""
    cfg = tiny_run_cfg(dataset).override({"algorithm.augmentation": None})
    cfg.build(tmp_path / "whole").run()
    cfg.replace(num_microbatches=4).build(tmp_path / "parts").run()
    mine, other = weights(tmp_path / "whole")[0], weights(tmp_path / "parts")[0]
    assert max((mine[n] - other[n]).abs().max().item() for n in mine) < 1e-5


def test_parts_are_weighted_by_their_real_steps(dataset, tmp_path):
    """The last frames of an episode have padded steps: equal weights would give another loss."""
    cfg = tiny_run_cfg(dataset).override(
        {"algorithm.augmentation": None, "policy.chunk_length": 8, "max_steps": 1}
    )
    losses = []
    for parts in (1, 4):
        runner = cfg.replace(num_microbatches=parts).build(tmp_path / str(parts))
        losses.append(runner.run()["metrics"]["loss/total"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_parts_cover_the_batch_and_have_seeds_of_their_own(dataset):
    cfg = tiny_run_cfg(dataset, num_microbatches=3, batch_size=16)
    parts = own_parts(cfg, np.arange(16), step=7)
    assert np.array_equal(np.concatenate([part.frames for part in parts]), np.arange(16))
    assert len({part.seed for part in parts}) == 3
    assert len({part.rng.integers(1 << 30) for part in parts}) == 3


def test_a_factor_scales_the_learning_rate_and_zero_freezes(dataset, tmp_path):
    cfg = tiny_run_cfg(dataset, ema=None, max_steps=1, save_interval=1)
    cfg = cfg.replace(lr_factors={"head": 0.0, "trunk": 0.5})
    runner = cfg.build(tmp_path)
    before = {name: value.clone() for name, value in runner.policy.state_dict().items()}
    runner.run()
    after = runner.policy.state_dict()
    assert torch.equal(after["head.output.weight"], before["head.output.weight"])
    rates = {group["lr_factor"]: group["lr"] for group in runner.optimizer.param_groups}
    assert rates == {0.5: pytest.approx(rates[1.0] / 2), 1.0: rates[1.0]}
    saved = checkpoint.load_trainer_state(checkpoint.latest(tmp_path)).tensors
    assert not [name for name in saved if "/head." in name]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr_factors": {"haed": 0.1}}, "no parameter begins so; did you mean 'head'"),
        ({"num_microbatches": 17}, "num_microbatches is 17 and batch_size 16"),
        ({"sharding": {}}, "start the run with torchrun"),
    ],
)
def test_what_cannot_be_shared_is_refused(dataset, tmp_path, changes, message):
    cfg = tiny_run_cfg(dataset).override(changes)
    with pytest.raises(ValueError, match=message):
        cfg.build(tmp_path).run()


def test_nothing_to_train_is_refused(dataset, tmp_path):
    names = ["head", "trunk", "image_encoder", "instruction_encoder", "state_encoder"]
    cfg = tiny_run_cfg(dataset, lr_factors=dict.fromkeys(names, 0.0))
    with pytest.raises(ValueError, match="no parameter is trained"):
        cfg.build(tmp_path)


@pytest.mark.slow
def test_rrf_train_runs_under_torchrun(dataset, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = ["-m", "rrf", "train", "compact-vla-pretrain", f"dataset={dataset}", "trackers=[]"]
    words += ["instructions=null", "policy.cameras=[front]", "policy.image_size=[16,16]"]
    words += ["policy.state_dim=0", "policy.action_dim=0", "max_steps=4", "batch_size=8"]
    words += ["validation_fraction=0.25"]
    done = subprocess.run(
        [*command, *words, "--run-dir", str(tmp_path / "run")],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained compact-vla-pretrain: 4 steps") == 1
    assert json.loads((tmp_path / "run/result.json").read_text())["steps"] == 4
