"""The scripts that measure training of policies that see images run."""

import pytest

from benchmarks import vla, vla_gpu


@pytest.mark.slow
@pytest.mark.parametrize("name", vla_gpu.CASES)
def test_a_real_size_is_measured_at_laptop_size(name):
    row = vla_gpu.measure(name, "cpu", is_tiny=True)
    assert row["id"] == name
    assert row["value"] > 0


def test_a_step_is_timed_in_turns_with_another():
    calls = []
    fast_s, slow_s = vla._in_turns(lambda: calls.append(1), lambda: sum(range(200_000)))
    assert len(calls) > 10
    assert 0 <= fast_s < slow_s
