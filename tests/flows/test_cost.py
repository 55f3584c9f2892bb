"""What a stage costs is measured at its commands, and added up in its run."""

import subprocess
import sys
import time

import pytest
from prefect import flow

from flows import cost, progress
from flows.cost import Budget, Cost, Meter
from flows.training import train, within_budget
from rrf.mlflow_store import store
from rrf.registry import lineage_graph, listing


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


BUSY = """
import os, time
with open("out", "wb") as file:
    file.write(b"x" * 3_000_000)
    os.fsync(file.fileno())
while time.process_time() < 0.5:
    pass
"""


SPIN = """
import time
while time.process_time() < 0.6:
    pass
print("spun", flush=True)
input()
"""


def test_commands_are_measured_with_the_cards_that_they_hold(home, tmp_path):
    meter = Meter("cartpole-ppo", {"seed": 1})
    with meter.running(num_gpus=2):
        subprocess.run([sys.executable, "-c", BUSY], cwd=tmp_path, check=True)
    spent = meter.cost
    assert 0.5 <= spent.cpu_s <= spent.wall_s + 0.2
    assert spent.gpu_s == pytest.approx(2 * spent.wall_s)
    assert spent.written_bytes >= 0  # a file system in memory writes nothing to a disk


def test_without_a_card_and_if_the_command_fails_it_is_measured_too(home):
    meter = Meter("cartpole-ppo", {"seed": 1})
    with pytest.raises(subprocess.CalledProcessError), meter.running(num_gpus=0):
        subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=True)
    assert meter.cost.wall_s > 0
    assert meter.cost.gpu_s == 0


def test_energy_is_an_estimate_of_cores_and_cards():
    assert Cost(wall_s=3600, cpu_s=7200, gpu_s=1800).energy_wh == 2 * 10 + 0.5 * 400


def test_attempts_add_up_also_those_that_were_killed_and_a_new_training_begins_at_zero(home):
    first = Meter("cartpole-ppo", {"seed": 1})
    with first.running(num_gpus=0):
        time.sleep(0.05)
    second = Meter("cartpole-ppo", {"seed": 1})
    assert second.cost == first.cost
    with second.running(num_gpus=1):
        subprocess.run([sys.executable, "-c", "pass"], check=True)
    assert second.cost.wall_s > first.cost.wall_s >= 0.05
    assert second.cost.gpu_s == pytest.approx(second.cost.wall_s - first.cost.wall_s)
    assert Meter("cartpole-ppo", {"seed": 2}).cost == Cost()
    second.finish()
    assert second.spent == Cost()
    asked_again = Meter("cartpole-ppo", {"seed": 1})
    with asked_again.running(num_gpus=0):
        pass
    assert Meter("cartpole-ppo", {"seed": 1}).cost == second.cost
    asked_again.finish()  # it had been trained anew
    assert Meter("cartpole-ppo", {"seed": 1}).cost == asked_again.cost != second.cost


def test_a_changed_training_file_is_another_training_and_a_damaged_record_is_said(home, caplog):
    file = home / "train.yaml"
    file.write_text("preset: cartpole-ppo\n")
    meter = Meter(str(file), {})
    with meter.running(num_gpus=0):
        pass
    (record,) = (home / ".rrf/costs").iterdir()
    file.write_text("preset: pendulum-ppo\n")
    assert Meter(str(file), {}).cost == Cost()
    file.write_text("preset: cartpole-ppo\n")
    for damaged in ('{"wall_s": "many"}', '{"wall_s": NaN}', '{"wall_s": -1e9}', '{"wall_s": "5"}'):
        record.write_text(damaged)
        assert Meter(str(file), {}).cost == Cost()
    assert caplog.text.count(f"{record} cannot be read") == 4


def test_a_running_command_is_measured_with_what_it_has_started(home):
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"
    meter = Meter("cartpole-ppo", {})
    command = [sys.executable, "-c", child]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with meter.running(num_gpus=0), subprocess.Popen(command, **pipes) as process:
        assert process.stdout
        assert process.stdout.readline() == b"spun\n"
        meter._look()
        assert meter.cost.cpu_s >= 0.5
        process.kill()  # what it has started goes on, until its input ends
        process.wait()
    assert Meter("cartpole-ppo", {}).cost.cpu_s >= 0.5


def test_a_budget_names_what_is_used_up():
    budget = Budget(gpu_hours=2, written_gb=1, energy_kwh=1)
    assert budget.exceeded_by(Cost(wall_s=1e9, gpu_s=7199, written_bytes=9e8)) == ""
    spent = budget.exceeded_by(Cost(gpu_s=7200, written_bytes=2.5e9))
    assert spent == "2 of 2 gpu_hours, 2.5 of 1 written_gb"
    for wrong in ({"hours": 2}, {"gpu_hours": 0}, {"gpu_hours": "many"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Budget.model_validate(wrong)


def test_what_a_run_cost_is_in_mlflow_and_in_the_lineage(home, caplog):
    client = store.connect()
    run_id = client.create_run(store.experiment_id(client, "train")).info.run_id
    spent = Cost(wall_s=7200, cpu_s=3600, gpu_s=0, written_bytes=5e9)
    for _ in range(2):  # e.g. it was recorded before and the flow was killed then
        cost.record(run_id, spent)
    expected = {"wall_s": 7200, "cpu_s": 3600, "gpu_s": 0, "written_bytes": 5e9}
    expected["energy_wh_estimated"] = 10
    assert listing.costs_of(client, run_id) == expected
    own = listing.connect()
    assert not isinstance(own, type(client))
    assert listing.costs_of(own, run_id) == expected
    run = listing.run_with(own, run_id)
    assert run
    facts = lineage_graph._run_node(own, run).facts
    assert {name: facts[name] for name in facts if name not in ("run", "begun", "by")} == {
        "machine hours": "2",
        "core hours": "1",
        "GPU hours": "0",
        "estimated kWh": "0.01",
        "GB written": "5",
    }
    cost.record(None, Cost())
    cost.record("0" * 32, Cost(wall_s=1))
    assert "what the run cost is not recorded" in caplog.text


@pytest.mark.slow
def test_a_training_ends_at_a_checkpoint_when_the_budget_is_used_up_and_goes_on_with_more(
    home, server
):
    overrides = {"max_iterations": 100000, "num_steps_per_env": 32, "save_interval": 5}

    @flow
    @within_budget
    def training(budget: Budget) -> dict:
        with progress.listening(lambda step, line: None):
            return train("rl", "cartpole-ppo", overrides, budget).to_dict()

    def checkpoints() -> list[int]:
        found = (home / ".rrf/runs").glob("*/global_step_*/manifest.json")
        return sorted(int(path.parent.name.removeprefix("global_step_")) for path in found)

    ended = training(Budget(core_hours=0.008), return_state=True)
    assert ended.name == "BudgetSpent"
    assert ended.is_failed()
    assert "the budget is used up at 'rl': " in (ended.message or "")
    assert "of 0.008 core_hours; to go on from the last checkpoint" in (ended.message or "")
    (*_, last) = checkpoints()
    again = training(Budget(core_hours=0.008), return_state=True)
    assert again.name == "BudgetSpent"
    assert checkpoints()[-1] == last  # it was not begun
    more = training(Budget(core_hours=0.018), return_state=True)
    assert more.name == "BudgetSpent"
    assert checkpoints()[-1] > last


@pytest.mark.slow
def test_a_finished_training_is_reused_without_a_process(home, server, monkeypatch):
    overrides = {"max_iterations": 2, "num_steps_per_env": 32}

    @flow
    def training(**changes) -> dict:
        with progress.listening(lambda step, line: None):
            return train("rl", "cartpole-ppo", overrides | changes).to_dict()

    first = training()
    monkeypatch.setattr("flows.commands.rrf", no_process)
    assert training() == first | {"reused": True}
    with pytest.raises(AssertionError, match="a process"):
        training(seed=7)


def no_process(*_, **__):
    raise AssertionError("a process was started")
