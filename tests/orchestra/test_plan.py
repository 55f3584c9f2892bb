"""Predicted rounds, worked by hand."""

import dataclasses
import json
import re

import pytest
from typer.testing import CliRunner

from rrf.cli import app
from rrf.orchestra.plan import Costs, predict, propose
from rrf.runners.vla_rl.call_costs import CallCosts
from rrf.runners.vla_rl.timeline import Layout, load
from rrf.runners.vla_rl.workload import PlayedGroup, Replay, Workload
from tests.orchestra import toy

COSTS = Costs(chunk_s=1.0, reset_s=0.0, inference_s=2.0, update_s=5.0)
# Each task has a home process, so that these are spread evenly.
TASKS = [PlayedGroup(f"task {number}", [3]) for number in range(4)]
WORKLOAD = Workload([1], TASKS)


def plan_of(env=(0,), rollout=(0,), cores=(8,), num_slots=4, batch_rows=4):
    return predict(COSTS, WORKLOAD, Layout(env, rollout, cores), num_slots, batch_rows)


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


def test_a_later_stage_waits_for_all_of_the_earlier_one():
    workload = Workload([2, 4], [PlayedGroup("task", [1, 3, 1, 1])])
    plan = predict(COSTS, workload, Layout((0,), (0,), (8,)), num_slots=4, batch_rows=4)
    # Two chunks, one, and one; two episodes begin after that, which takes no time.
    assert plan.rollout_s == (2 + 2) + (2 + 1) + (2 + 1) + (2 + 2)


def test_a_group_begins_when_the_one_that_it_replaces_has_ended():
    groups = [PlayedGroup("a", [1, 2]), PlayedGroup("b", [1, 1], instead_of=0)]
    source = Replay(Workload([2, 4], groups))
    one, other = source.take()
    assert [source.chunks_of(job) for job in (one, other)] == [1, 2]
    source.report(one)
    assert not source.take()
    source.report(other)
    assert [(job.group, job.initial_state.task) for job in source.take()] == [(1, "b")] * 2
    plan = predict(COSTS, Workload([2, 4], groups), Layout((0,), (0,), (8,)), 4, 4)
    assert plan.rollout_s == (2 + 2) + (2 + 1) + (2 + 2)


def test_the_fastest_layout_comes_first():
    found = propose(COSTS, WORKLOAD, cores=(2, 2), num_slots=4, batch_rows=2)
    seconds = [pair[0] for pair in found]
    assert seconds == sorted(seconds)
    assert len(found[0][1].env) > 1


def test_slots_that_cannot_be_shared_are_refused():
    with pytest.raises(ValueError, match="4 slots cannot be shared by 3"):
        plan_of(env=(0, 0, 0))


def metrics_of(physics=6.0, rendering=3.0, reset=2.0, inference=4.0, driver=1.0, update=7.0):
    calls = {"rollout/forward_passes": 5.0, "rollout/env_calls": 6.0, "time/env_calls": 3.0}
    spent = {key: value for key, value in locals().items() if key != "calls"}
    return calls | {f"time/{name}": seconds for name, seconds in spent.items()}


def test_costs_come_from_the_metrics_of_a_round():
    workload = Workload([2], [PlayedGroup("a", [1, 2]), PlayedGroup("b", [4, 5])])
    assert Costs.of(metrics_of(), workload) == Costs(
        chunk_s=(6 + 3 - 3) / 12, reset_s=2 / 4, inference_s=1.0, update_s=7.0, call_s=0.5
    )
    missing = {n: v for n, v in metrics_of().items() if n != "time/reset"}
    with pytest.raises(ValueError, match="no time/reset; train at least one round"):
        Costs.of(missing, workload)


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
        predict(costs, WORKLOAD, Layout([0] * count, [0], [1]), 4, 4).rollout_s for count in (1, 2)
    )
    assert of_one == pytest.approx(WORKLOAD.num_chunks * COSTS.chunk_s + WORKLOAD.num_chunks / 4)
    assert of_two == pytest.approx(WORKLOAD.num_chunks * COSTS.chunk_s + WORKLOAD.num_chunks / 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of the toy simulator, which does not say what it spends; so that is made up."""
    folder = tmp_path_factory.mktemp("run")
    cfg = toy.run_cfg(toy.save_parent(folder.parent / "sft"), max_rounds=1)
    result = cfg.build(folder).run()
    result["metrics"] |= metrics_of() | {"time/rollout": 8.0}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


@pytest.mark.slow
def test_the_command_predicts_from_a_run(run):
    words = ["orchestra", "plan", str(run), "--cores", "8,8"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    first, *others = result.output.splitlines()
    assert re.fullmatch(r"the run's own round: 15.0 s, predicted [\d.]+ s", first)
    assert all(" s, of which rollout " in line for line in others)
    one = CliRunner().invoke(app, [*words, "--env", "0:0-1", "--rollout", "1"])
    assert "env on nodes 0: 2, rollout on 1: 1" in one.output


def test_a_run_says_what_its_last_round_played(run):
    workload = load(run).workload
    metrics = json.loads((run / "result.json").read_text())["metrics"]
    assert workload.stages[-1] == toy.run_cfg("").algorithm.group_size
    assert len(workload.groups) == metrics["rollout/groups_begun"]
    assert workload.num_episodes == metrics["env/num_trajectories"]
    assert {group.task for group in workload.groups} <= set(toy.TASKS)


def test_a_directory_without_a_run_is_named(tmp_path):
    result = CliRunner().invoke(app, ["orchestra", "plan", str(tmp_path)])
    assert "has no result.json; give the directory of a finished run" in str(result.exception)
