"""Latency and memory of real policies, measured in a process of its own."""

import subprocess
import sys

import pytest
import torch

from rrf.evaluation.serving_profile import METRICS, ServingProfile
from rrf.processes import CommandError
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.serving import profiling


def test_percentiles_are_nearest_ranks():
    # of 200 times: the 100th, the 190th, the 198th and the last
    times_s = [0.001 * n for n in range(200, 0, -1)]
    assert profiling.percentiles_ms(times_s) == pytest.approx(
        {"latency_ms_p50": 100, "latency_ms_p95": 190, "latency_ms_p99": 198, "latency_ms_max": 200}
    )
    assert profiling.percentiles_ms([0.003])["latency_ms_p50"] == pytest.approx(3)


def test_a_policy_is_measured_in_a_process_of_its_own(checkpoint):
    data = profiling.measured_apart(checkpoint, num_requests=100)
    measured = ServingProfile.from_dict(data, "the profile")
    assert measured.checkpoint_digest == deployable_digest(checkpoint)
    assert (measured.device, measured.accelerator, measured.num_requests) == ("cpu", "", 100)
    numbers = measured.metrics
    assert set(numbers) <= set(METRICS)
    ranks = [numbers[f"latency_ms_{rank}"] for rank in ("p50", "p95", "p99", "max")]
    assert ranks == sorted(ranks)
    assert ranks[0] > 0
    # A process that has imported torch holds more than 100 MB; this one, with other tests, more.
    assert 100 < numbers["peak_memory_mb"] < 3000
    assert 0 <= numbers["waiting_percent"] <= 100


def test_a_slow_policy_answers_fewer_requests_but_enough_for_a_99th_percentile(
    checkpoint, monkeypatch
):
    monkeypatch.setattr(profiling, "_LONGEST_S", 0.0)
    monkeypatch.setattr(profiling, "_LONGEST_WARM_UP_S", 0.0)
    assert profiling.measure(checkpoint, "cpu", num_requests=500)["num_requests"] == 100


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_its_name_and_its_memory_are_measured(checkpoint):
    data = profiling.measured_apart(checkpoint, device="cuda", num_requests=100)
    measured = ServingProfile.from_dict(data, "the profile")
    assert measured.accelerator == torch.cuda.get_device_name("cuda")
    assert measured.is_on(measured.accelerator)
    assert measured.metrics["peak_gpu_memory_mb"] > 1


@pytest.mark.slow
def test_what_cannot_be_served_is_refused_with_its_reason(checkpoint, tmp_path):
    with pytest.raises(ValueError, match=r"no manifest\.json|has no manifest"):
        profiling.measured_apart(tmp_path)
    with pytest.raises(ValueError, match="cannot run on 'nonsense'"):
        profiling.measured_apart(checkpoint, device="nonsense")
    with pytest.raises(CommandError, match="No module named 'not_there'"):
        profiling.measured_apart(checkpoint, imports=["not_there"])


def test_the_measuring_process_loads_no_simulator_and_no_registry(checkpoint):
    script = (
        "import sys; from rrf.serving import profiling; "
        f"profiling.measure(__import__('pathlib').Path({str(checkpoint)!r}), 'cpu', 100); "
        "print([m for m in ('mujoco', 'mlflow', 'rrf.registry', 'prefect') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip().splitlines()[-1] == "[]", done.stderr
