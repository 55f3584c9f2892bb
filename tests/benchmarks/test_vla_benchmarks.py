"""The scripts that measure training of policies that see images run."""

import argparse

import pytest

from benchmarks import vla_gpu
from benchmarks.clock import median_cpu_s
from benchmarks.harness import Bench


@pytest.mark.slow
@pytest.mark.parametrize("name", vla_gpu.CASES)
def test_a_real_size_is_measured_at_laptop_size(name):
    row = vla_gpu.measure(name, Bench(is_small=True, options=argparse.Namespace(device="cpu")))
    assert row["id"] == name
    assert row["value"] > 0


def test_a_step_is_timed_in_turns_with_another():
    calls = []
    fast_s, slow_s = median_cpu_s(
        lambda: calls.append(1), lambda: sum(range(200_000)), repeats=5, times=2
    )
    assert len(calls) == 12  # those of the warm-up too
    assert 0 <= fast_s < slow_s
