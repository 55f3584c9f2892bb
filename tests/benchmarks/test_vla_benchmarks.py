"""The scripts that measure training of policies that see images run."""

import argparse
import json

import pytest

from benchmarks import headline_page, one_demo_means, vla_gpu
from benchmarks import vla_experiments as experiments
from benchmarks.clock import median_cpu_s
from benchmarks.harness import Bench


@pytest.mark.slow
@pytest.mark.parametrize("name", vla_gpu.CASES)
def test_a_real_size_is_measured_at_laptop_size(name):
    row = vla_gpu.measure(name, Bench(is_small=True, options=argparse.Namespace(device="cpu")))
    assert row["id"] == name
    assert row["value"] > 0


def solved(before: str, after: str) -> dict:
    stages = {"before": {"a": before}, "imitated": {"a": after}}
    return {
        "before": before.count("1") / len(before),
        "imitated": after.count("1") / len(after),
        "by_task": {"a": {"episodes": len(before)}},
        "solved": stages,
    }


def test_a_step_is_tested_on_the_same_initial_states():
    # 6 gained, 1 lost: p = 2 (C(7,6) + C(7,7)) / 2^7 = 16 / 128
    pairs = [solved("0000", "1110"), solved("00011", "11101")]
    assert headline_page.paired(pairs, "before", "imitated") == "6 states gained, 1 lost, p = 0.1"
    assert headline_page.paired(pairs, None, "before") == ""
    only_rates = [{k: v for k, v in result.items() if k != "solved"} for result in pairs]
    # At most 0 lost of the first, whose 3 were not solved before; of the second min(2, 5 - 4) = 1,
    # so 3 gained: 6 gained, 1 lost, p = 16 / 128, below the next power of ten.
    assert headline_page.paired(only_rates, "before", "imitated") == "p ≤ 1e+00"
    many = [{"before": 0.4, "imitated": 0.9, "by_task": {"a": {"episodes": 50}}}]
    # At most 5 lost, so 30 gained: p = 2 P(X >= 30), X ~ Bin(35, 1/2), = 2.2e-5
    assert headline_page.paired(many, "before", "imitated") == "p ≤ 1e-04"


def test_the_page_shows_every_stage_of_a_draw_that_nobody_had_used():
    [row] = [line for line in headline_page.drawn().splitlines() if line.startswith("| bin-pick")]
    assert "42.3% [36.9%, 48.0%]" in row
    assert "95.3% [92.3%, 97.2%]; 20 states gained, 12 lost, p = 0.2" in row
    assert "65.0% [59.4%, 70.2%]" in row
    assert list(experiments.results_of(experiments.FRESH)[0]["by_task"]) == (
        experiments.experiment_of(experiments.FRESH).tasks
    )


def test_every_means_is_shown_beside_the_policy_that_it_started_from(tmp_path, monkeypatch):
    by_task = {task: {"solved": 5} for task in one_demo_means.TASKS}
    of_all = {"success": 0.1, "bounds": [0.062, 0.158], "by_task": by_task, "cpu_s": 90.0}
    start = {"name": "start", "title": "imitated", "gained": 0, "lost": 0, "p": 1.0}
    means = {"name": "groups", "title": "larger groups", "gained": 9, "lost": 1, "p": 0.0215}
    kept = means | {"name": "rlt", "title": "corrected", "kept_start": True, "episodes": 936}
    kinds = {"temperature": 0.4, "persistent_share": None, "success": 0.06}
    noise = {"name": "noise", "rows": [kinds | {"by_task": dict.fromkeys(by_task, 0.06)}]}
    rows = [start | of_all, means | of_all | {"episodes": 1234}, kept | of_all, noise]
    path = tmp_path / "means.json"
    path.write_text(json.dumps(rows))
    monkeypatch.setattr(one_demo_means, "RESULTS", path)
    lines = one_demo_means.table().splitlines()
    assert lines[2] == "| imitated | 10.0% [6.2%, 15.8%] | 5 | 5 | 5 |  |  | 1.5 |"
    assert "| 5 | 9 gained, 1 lost, p = 0.02 | 1,234 | 1.5 |" in lines[3]
    assert "| 5 | the start validated best and was kept | 936 | 1.5 |" in lines[4]
    assert lines[-1] == "| 0.4 | one offset per chunk | 6.0% | 6% | 6% | 6% |"


def test_a_step_is_timed_in_turns_with_another():
    calls = []
    fast_s, slow_s = median_cpu_s(
        lambda: calls.append(1), lambda: sum(range(200_000)), repeats=5, times=2
    )
    assert len(calls) == 12  # those of the warm-up too
    assert 0 <= fast_s < slow_s
