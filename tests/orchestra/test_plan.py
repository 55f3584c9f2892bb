"""Predicted rounds, worked by hand."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.orchestra.plan import Costs, predict, propose
from rrf.runners.vla_rl.call_costs import CallCosts
from rrf.runners.vla_rl.timeline import Layout, Timeline

COSTS = Costs(chunk_s=1.0, reset_s=0.0, inference_s=2.0, update_s=5.0, num_chunks=[3] * 4)


def plan_of(env=(0,), rollout=(0,), cores=(8,), num_slots=4, batch_rows=4):
    return predict(COSTS, Layout(env, rollout, cores), num_slots, batch_rows)


def test_one_process_and_one_rollout_work_in_turn():
    plan = plan_of()
    assert plan.rollout_s == 3 * (2 + 4)
    assert plan.round_s == 3 * (2 + 4) + 5
    assert plan.busy("rollout 0") == pytest.approx(6 / 18)


def test_two_processes_hide_inference_behind_simulation():
    # Each has two slots: 2 s of simulation and 2 s of inference, which alternate.
    plan = plan_of(env=(0, 0), batch_rows=2)
    assert plan.rollout_s == 2 + 3 * 4
    assert plan.busy("rollout 0") == pytest.approx(12 / 14)


def test_a_batch_answers_all_that_wait():
    plan = plan_of(env=(0, 0), batch_rows=4)
    assert plan.rollout_s == 3 * (2 + 2)


def test_processes_share_the_cores_of_their_node():
    plan = plan_of(env=(0, 0), cores=(1,))
    assert plan.rollout_s == 3 * (2 + 4)
    elsewhere = plan_of(env=(1, 2), cores=(1, 1, 1))
    assert elsewhere.rollout_s == 3 * (2 + 2)


def test_more_episodes_than_slots_follow_each_other():
    plan = plan_of(num_slots=2)
    assert plan.rollout_s == 6 * (2 + 2)


def test_slots_without_an_episode_stay_empty():
    costs = dataclasses.replace(COSTS, num_running=2)
    plan = predict(costs, Layout((0,), (0,), (8,)), num_slots=4, batch_rows=4)
    assert plan.rollout_s == 6 * (2 + 2)


def test_the_fastest_layout_comes_first():
    found = propose(COSTS, cores=(2, 2), num_slots=4, batch_rows=2)
    seconds = [pair[0] for pair in found]
    assert seconds == sorted(seconds)
    assert len(found[0][1].env) > 1


def test_slots_that_cannot_be_shared_are_refused():
    with pytest.raises(ValueError, match="4 slots cannot be shared by 3"):
        plan_of(env=(0, 0, 0))


def test_costs_come_from_the_metrics_of_a_round():
    names = ("physics", "rendering", "reset", "inference", "update")
    metrics = dict(zip((f"time/{n}" for n in names), (6.0, 3.0, 2.0, 4.0, 7.0), strict=True))
    metrics |= {"env/num_trajectories": 10.0, "env/episode_len": 6.0, "env/success_once": 0.5}
    # Half fail after 8 actions, so those that succeed take 4 on the mean: 30 chunks.
    costs = Costs.of(metrics, chunk_length=2, batch_rows=16, horizon=8)
    assert costs == Costs(0.3, 0.2, 2.0, 7.0, [4, 2] * 5)
    counted = Costs.of(metrics | {"rollout/forward_passes": 5.0, "time/driver": 1.0}, 2, 16, 8)
    assert (counted.inference_s, counted.num_running) == (1.0, None)
    called = Costs.of(metrics | {"rollout/env_calls": 6.0, "time/env_calls": 3.0}, 2, 16, 8)
    assert (called.call_s, called.chunk_s) == (0.5, 0.2)
    few = metrics | {"rollout/forward_passes": 15.0}
    assert Costs.of(few, 2, 16, 8, num_workers=3).num_running == 6  # 2 rows of each process
    with pytest.raises(ValueError, match="no time/reset; train at least one round"):
        Costs.of({n: v for n, v in metrics.items() if n != "time/reset"}, 2, 16, 8)


def test_a_call_costs_what_its_episodes_do_not_explain():
    calls = CallCosts()
    for rows in (1, 4, 4, 16):
        calls.add(rows, 0.5 + 0.25 * rows)
    assert calls.count == 4
    assert calls.fixed_s == pytest.approx(4 * 0.5)
    calls.clear()
    assert (calls.count, calls.fixed_s) == (0, 0.0)
    for _ in range(3):
        calls.add(8, 1.0)  # always as many, so nobody knows
    assert calls.fixed_s == 0.0


def test_more_processes_pay_for_more_calls():
    costs = dataclasses.replace(COSTS, inference_s=0.0, reset_s=0.0, update_s=0.0, call_s=1.0)
    of_one, of_two = (
        predict(costs, Layout([0] * count, [0], [1]), num_slots=4, batch_rows=4).rollout_s
        for count in (1, 2)
    )
    num_chunks = sum(COSTS.num_chunks)
    assert of_one == pytest.approx(num_chunks * COSTS.chunk_s + num_chunks / 4)
    assert of_two == pytest.approx(num_chunks * COSTS.chunk_s + num_chunks / 2)


def test_the_command_predicts_from_a_run():
    run = Path(__file__).parents[1] / "saved/2026-11-24/runs/rl"
    words = ["orchestra", "plan", str(run), "--cores", "8,8"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("the run's own round: ")
    assert all(" s, of which rollout " in line for line in lines[1:])
    one = CliRunner().invoke(app, [*words, "--env", "0:0-1", "--rollout", "1"])
    assert "env on nodes 0: 2, rollout on 1: 1" in one.output


def test_the_measured_round_is_compared_with_the_predicted_one(tmp_path):
    run = tmp_path / "rl"
    shutil.copytree(Path(__file__).parents[1] / "saved/2026-11-24/runs/rl", run)
    Timeline().save(run, 1, Layout([0, 0], [0], [2]))
    result = CliRunner().invoke(app, ["orchestra", "plan", str(run)])
    assert result.exit_code == 0, result.output
    first = result.output.splitlines()[0]
    assert re.fullmatch(r"the run's own round: [\d.]+ s, predicted [\d.]+ s", first)


def test_a_directory_without_a_run_is_named(tmp_path):
    result = CliRunner().invoke(app, ["orchestra", "plan", str(tmp_path)])
    assert "has no result.json; give the directory of a finished run" in str(result.exception)
