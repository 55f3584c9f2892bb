"""Kernels that are recorded and replayed on a GPU."""

import pytest
import torch

from rrf.algorithms import cuda_graphs
from rrf.algorithms.cuda_graphs import Replayed
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.runners.checkpoints import checkpoint
from tests.algorithms.planning.toy import ALGORITHMS, run_cfg

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def test_on_a_cpu_the_function_is_called():
    calls = []
    replayed = Replayed(lambda x: (calls.append(x) or x + 1,))
    for number in range(9):
        (found,) = replayed(torch.tensor(number))
        assert found == number + 1
    assert len(calls) == 9


@needs_gpu
def test_on_a_gpu_the_kernels_are_replayed_for_new_numbers():
    calls = []
    replayed = Replayed(lambda x: {"next": (calls.append(x) or x + 1)})
    found = [replayed(torch.tensor(float(number), device="cuda"))["next"] for number in range(9)]
    assert [one.item() for one in found] == list(range(1, 10)), "each is a tensor of its own"
    assert len(calls) == cuda_graphs._NUM_LAUNCHED + 1


@needs_gpu
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_with_replayed_kernels_learns_the_same(tmp_path, name, monkeypatch):
    cfg = run_cfg(name, device="cuda", env=GymnasiumEnvCfg(task="Pendulum-v1", num_envs=4))
    replayed = cfg.build(tmp_path / "replayed")
    replayed.run()
    assert replayed.algorithm.num_updates > cuda_graphs._NUM_LAUNCHED + 5
    monkeypatch.setattr(cuda_graphs, "_NUM_LAUNCHED", 10**9)
    launched = cfg.build(tmp_path / "launched")
    launched.run()
    ours, theirs = (
        checkpoint.read_weights(checkpoint.find(runner.run_dir)) for runner in (replayed, launched)
    )
    for weight in theirs:  # a GPU adds in any order
        torch.testing.assert_close(ours[weight], theirs[weight], rtol=0, atol=2e-3)
