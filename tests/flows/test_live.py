"""What a user does after `rrf services up`, on a real Prefect server, MLflow server and worker."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import Checkout
from tests.waiting import is_running, wait_for

MODEL = "tiny"
TRAIN = ("deployment", "run", "train-vla", "--watch")
OURS = {
    "ingest",
    "train-vla",
    "train-locomotion",
    "train-offline",
    "evaluate",
    "promote",
    "nightly-benchmark",
}


REINFORCE = {
    "rl.max_rounds": 1,
    "rl.num_groups": 4,
    "rl.max_groups": 4,
    "rl.validation_episodes": 1,
    "rl.tasks": ["drawer-open-v3"],
    "rl.env.num_envs": 4,
    "rl.env.max_episode_steps": 4,
}


def parameters(gate: str, seed: int = 0, rl: str | None = None) -> list[str]:
    """A training of a few steps, as words for `prefect deployment run`."""
    overrides = {"sft.max_steps": 8, "sft.batch_size": 8, "sft.seed": seed}
    if rl:
        overrides |= REINFORCE
    values = {"pretrain": None, "rl": rl, "gate": gate, "model": MODEL, "overrides": overrides}
    return as_words(values)


def as_words(values: dict) -> list[str]:
    """Parameters of a flow as words for `prefect deployment run`."""
    return [word for key, value in values.items() for word in ("-p", f"{key}={json.dumps(value)}")]


def unfinished(checkpoint: Path) -> bool:
    return checkpoint.is_dir() and not any(
        (folder / "result.json").exists() for folder in checkpoint.parents
    )


def trainer_of(checkpoint: Path) -> dict:
    """What the stand-in trainer saved last, once it has made some steps."""

    def read() -> dict | None:
        state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {}
        return state if state.get("step", 0) >= 10 else None

    return wait_for(read)


def test_a_port_in_use_is_one_clear_error(checkout: Checkout, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setitem(checkout.env, "RRF_MLFLOW_PORT", str(port))
        printed = checkout.run(sys.executable, "-m", "infra.services", "up", check=False)
    assert printed.startswith("error: ")
    assert f"port {port} for the MLflow server is in use by another program" in printed
    assert "RRF_MLFLOW_PORT=" in printed
    assert "Traceback" not in printed


def test_a_stale_record_never_signals_another_process(checkout: Checkout):
    """The pid in the record has been given to somebody else since: to this test."""
    record = checkout.root / ".rrf/pids/worker.json"
    kept = record.read_text() if record.exists() else None
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"pid": os.getpid(), "born": 1, "port": 0}))
    printed = checkout.run(sys.executable, "-m", "infra.services", "status", check=False)
    assert "✗ worker   ended or was killed, see " in printed
    record.write_text(kept) if kept else record.unlink()


def test_up_deploys_every_flow_the_gpu_limit_and_the_zombie_automation(live: Checkout):
    deployments = {one["name"] for one in live.request("/deployments/filter", {})}
    assert deployments == OURS | {"tick", "training"}
    assert live.request("/v2/concurrency_limits/gpu")["active"] is True
    automations = live.request("/automations/filter", {})
    assert [(one["name"], one["enabled"]) for one in automations] == [("zombie-runs", True)]


def with_running_task(live: Checkout, state: str) -> str:
    """A flow run in this state, and a task run of it that is Running; the task run's id."""
    flow = live.request("/flows/", {"name": "training"})["id"]
    run = live.request("/flow_runs/", {"flow_id": flow})["id"]
    task = {"flow_run_id": run, "task_key": "train", "dynamic_key": "0", "name": "train"}
    task_run = live.request("/task_runs/", task)["id"]
    for path, each in ((f"/task_runs/{task_run}", "RUNNING"), (f"/flow_runs/{run}", state)):
        live.request(f"{path}/set_state", {"state": {"type": each}, "force": True})
    return task_run


def test_task_runs_of_ended_flows_do_not_stay_running(live: Checkout):
    """If the flow ended a while ago: the reports of its tasks may be a little late."""
    ended, going = with_running_task(live, "CRASHED"), with_running_task(live, "RUNNING")
    program = "from flows.leftovers import crash_left_task_runs as crash; print({})"
    assert live.run(sys.executable, "-c", program.format("crash(), crash(0)")) == "0 1\n"
    states = {one: live.request(f"/task_runs/{one}")["state"] for one in (ended, going)}
    assert {one: states[one]["name"] for one in states} == {ended: "Crashed", going: "Running"}
    assert states[ended]["message"] == "its flow run ended without it"


def test_status_names_three_running_services(live: Checkout):
    printed = live.run(sys.executable, "-m", "infra.services", "status")
    assert [line.split()[:2] for line in printed.splitlines()] == [
        ["✓", "prefect"],
        ["✓", "mlflow"],
        ["✓", "worker"],
    ]


def test_the_nightly_schedule_has_runs_at_two_in_the_morning(live: Checkout):
    runs = wait_for(lambda: live.flow_runs("nightly-benchmark"))
    assert all(run["auto_scheduled"] for run in runs)
    assert {run["expected_start_time"][11:16] for run in runs} == {"02:00"}


def test_a_schedule_fires_by_itself(live: Checkout):
    def fired() -> list[dict]:
        runs = live.flow_runs("tick", state={"type": {"any_": ["COMPLETED"]}})
        return [run for run in runs if run["auto_scheduled"]]

    assert wait_for(fired, 300)
    live.pause("tick")


@pytest.mark.slow
def test_a_run_whose_start_failed_does_not_stay_submitting(live: Checkout):
    """A worker has taken it, and it never showed a sign of life. With a time limit of seconds, the
    automation crashes it, and so does the next `rrf services up`.
    """
    live.pause("tick")
    flow = live.request("/flows/", {"name": "training"})["id"]

    def submitted() -> str:
        run = live.request("/flow_runs/", {"flow_id": flow})["id"]
        state = {"type": "PENDING", "name": "Submitting"}
        live.request(f"/flow_runs/{run}/set_state", {"state": state})
        return run

    automation = (
        "from infra import deployments\n"
        "deployments._ZOMBIE_S, deployments.ZOMBIES = 10, 'soon'\n"
        "deployments._create_zombie_automation()"
    )
    live.run(sys.executable, "-c", automation)
    try:
        live.wait_for_state(submitted(), "Crashed")
    finally:
        remove = (
            "from prefect.client.orchestration import get_client\n"
            "with get_client(sync_client=True) as client:\n"
            "    client.delete_automation(client.read_automations_by_name('soon')[0].id)"
        )
        live.run(sys.executable, "-c", remove)
    left = submitted()
    program = "from flows.leftovers import crash_unstarted_runs as crash; print(crash({}))"
    assert live.run(sys.executable, "-c", program.format(60)) == "0\n"
    assert live.state_of(left) == "Submitting"
    live.run(sys.executable, "-c", program.format(0))
    assert live.state_of(left) == "Crashed"


@pytest.mark.slow
def test_train_vla_by_its_bare_name_makes_a_champion(live: Checkout):
    """The whole flow on the worker: data, training, evaluation, gate, registry; a tiny budget."""
    words = parameters(gate="configs/gates/tiny.yaml", rl="metaworld-ppo-compact")
    printed = live.run("prefect", *TRAIN, *words)
    assert "'train-vla/train-vla'" in printed
    assert "Completed" in printed
    champion = live.run("rrf", "models", "list", MODEL)
    assert "champion" in champion
    shown = {one["key"] for one in live.request("/artifacts/filter", {})}
    assert shown >= {"evaluation", "gate-verdict", "model-version", "mlflow-run", "champion"}
    [run] = live.flow_runs("train-vla")[:1]
    assert run["name"] == f"train-vla {MODEL} version 1: metaworld-demo (sft, rl)"
    tasks = live.request("/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    assert {one["name"] for one in tasks} >= {
        *("pull recordings", "reproduce metaworld-demo", "lineage of metaworld-demo"),
        *("train sft compact-vla-one-demo", "train rl metaworld-ppo-compact"),
        *(f"champions of {MODEL}", f"judge {MODEL} by tiny look 1", f"register {MODEL}"),
        f"promote {MODEL} version 1",
    }
    [compared] = (live.root / ".rrf/evaluations").rglob("baseline-before-training.json")
    report = (compared.parent / "report.html").read_text()
    assert "before training" in report
    assert "validation/success" in report


BALANCE = """
name: balance
env: {type: "rrf.envs.gymnasium.configs:GymnasiumEnvCfg", task: CartPole-v1, num_envs: 4}
seed: 4242
episodes_per_task: 4
max_episode_steps: 60
success: {return: {min: 8}}
"""


def balance_gate(live: Checkout, name: str, least: float) -> str:
    """A gate of four short episodes on CartPole that asks for this mean return.

    The path is as a user in the checkout types it.
    """
    (live.root / "configs/protocols/balance.yaml").write_text(BALANCE)
    gate = live.root / f"configs/gates/{name}.yaml"
    limits = f"limits: {{return: {{min: {least}}}}}\nlooks: [4]\nchampion_margin: 0.9\n"
    gate.write_text(f"name: {name}\nprotocol: balance\noverall_lower_bound: 0.0\n{limits}")
    return f"configs/gates/{name}.yaml"


def rule(live: Checkout, model: str, gate: str) -> None:
    """Change the gate that rules a model."""
    ruled = live.run("rrf", "models", "gate", model, gate, "--reason", "the robot needs more")
    assert f"{model} is ruled by {gate}" in ruled


def balancing(gate: str, seed: int) -> list[str]:
    """A training of two iterations, as words for `prefect deployment run`."""
    overrides = {"max_iterations": 2, "num_steps_per_env": 32, "seed": seed}
    values = {"preset": "cartpole-ppo", "gate": gate, "model": "balance", "overrides": overrides}
    return ["deployment", "run", "train-locomotion", "--watch", *as_words(values)]


@pytest.fixture(scope="module")
def balanced(live: Checkout) -> str:
    """What the flow prints that makes the champion of `balance`."""
    return live.run("prefect", *balancing(balance_gate(live, "easy", least=1), seed=0))


def test_train_locomotion_by_its_bare_name_makes_a_champion(live: Checkout, balanced: str):
    assert "'train-locomotion/train-locomotion'" in balanced
    assert "Completed" in balanced
    listed = live.run("rrf", "models", "list", "balance")
    assert "@champion" in listed
    assert "CartPole-v1" in listed


@pytest.mark.slow
def test_train_locomotion_refuses_what_is_worse(live: Checkout, balanced: str):
    impossible = balance_gate(live, "impossible", least=61)
    printed = live.run("prefect", *balancing(impossible, seed=1), check=False)
    assert "Completed" not in printed  # easy.yaml rules the model
    [run] = live.flow_runs("train-locomotion")[:1]
    assert "is ruled by configs/gates/easy.yaml" in run["state"]["message"]
    rule(live, "balance", impossible)
    printed = live.run("prefect", *balancing(impossible, seed=1))
    assert "Completed" in printed
    [run] = live.flow_runs("train-locomotion")[:1]
    verdicts = live.artifacts(key={"any_": ["gate-verdict"]}, flow_run_id={"any_": [run["id"]]})
    assert verdicts == ["impossible: fail"]
    [video] = live.artifacts(key={"any_": ["video"]}, flow_run_id={"any_": [run["id"]]})[:1]
    assert video.startswith("CartPole-v1, ")
    assert run["name"] == "train-locomotion balance version 2: cartpole-ppo"
    versions = live.artifacts(key={"any_": ["model-version"]}, flow_run_id={"any_": [run["id"]]})
    assert versions == ["balance version 2"]
    [promoted] = live.request("/artifacts/filter", {"artifacts": {"key": {"any_": ["champion"]}}})[
        :1
    ]
    assert f"http://127.0.0.1:{live.mlflow_port}/#/models/" in str(promoted["data"])
    program = "from rrf.registry import versions; print(versions.find('balance/2').description)"
    described = live.run(sys.executable, "-c", program)
    assert f"`rrf open {run['id']}`" in described
    assert "- Training: `cartpole-ppo`, seed 1, with PPO; MLflow run `" in described
    rows = live.run("rrf", "models", "list", "balance").splitlines()
    assert ["@champion" in row for row in rows if " 1 " in row or " 2 " in row] == [False, True]
    assert [row.split()[-3] for row in rows[1:3]] == ["fail", "pass"]


SWING = """
name: swing
env: {type: "rrf.envs.gymnasium.configs:GymnasiumEnvCfg", task: Pendulum-v1, num_envs: 4}
seed: 4242
episodes_per_task: 4
max_episode_steps: 200
success: {return: {min: -2000}}
"""


@pytest.mark.slow
def test_train_offline_from_recordings_makes_a_champion(live: Checkout):
    """The recordings come from DVC's remote; cloning needs no more than a thousand steps here."""
    (live.root / "configs/protocols/swing.yaml").write_text(SWING)
    gate = "name: any\nprotocol: swing\noverall_lower_bound: 0.0\nlooks: [4]\n"
    (live.root / "configs/gates/any.yaml").write_text(gate)
    values = {"preset": "pendulum-bc", "gate": "configs/gates/any.yaml", "model": "swing"}
    words = as_words(values | {"overrides": {"max_iterations": 1}})
    printed = live.run("prefect", "deployment", "run", "train-offline", "--watch", *words)
    assert "'train-offline/train-offline'" in printed
    assert "Completed" in printed
    [listed] = [
        row for row in live.run("rrf", "models", "list", "swing").splitlines() if " 1 " in row
    ]
    assert "@champion" in listed
    [run] = live.flow_runs("train-offline")[:1]
    assert run["name"] == "train-offline swing version 1: pendulum-bc on pendulum-medium"
    tasks = live.request("/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    expected = {"pull recordings", "reproduce pendulum-medium", "train offline pendulum-bc"}
    assert {one["name"] for one in tasks} >= expected
    program = "from rrf.registry import versions; print(versions.find('swing/1').tags)"
    assert "pendulum-medium" in live.run(sys.executable, "-c", program)


@pytest.mark.slow
def test_a_night_of_a_state_based_champion_is_measured(live: Checkout, balanced: str):
    night = live.start(
        "nightly-benchmark", model="balance", protocol="configs/protocols/balance.yaml"
    )
    live.wait_for_state(night, "Completed")
    folder = next((live.root / ".rrf/nightly/balance").glob("*/evaluation"))
    assert "return" in json.loads((folder / "evaluation.json").read_text())["metrics"]


@pytest.mark.slow
def test_a_night_without_a_champion_says_so_and_is_no_failure(live: Checkout):
    run = live.start("nightly-benchmark", model="nobody-yet")
    live.wait_for_state(run, "NoChampion")
    state = live.request(f"/flow_runs/{run}")["state"]
    assert state["type"] == "COMPLETED"
    assert "'nobody-yet' has no champion yet" in state["message"]


@pytest.mark.slow
def test_a_gate_that_holds_then_refuses_leaves_the_champion(live: Checkout):
    """None of four solved may still be half of all (bound 0.72), none of eight may not (0.47)."""
    gate = "configs/gates/strict.yaml"
    (live.root / gate).write_text(
        "name: strict\nprotocol: tiny\noverall_lower_bound: 0.5\nlooks: [2, 4]\nalpha: 0.02\n"
        "champion_margin: 1.0\ntask_margin: 1.0\n"
    )
    rule(live, MODEL, gate)
    printed = live.run("prefect", *TRAIN, *parameters(gate=gate, seed=1))
    assert "Completed" in printed
    [run] = live.flow_runs("train-vla")[:1]
    verdicts = live.artifacts(key={"any_": ["gate-verdict"]}, flow_run_id={"any_": [run["id"]]})
    assert verdicts == ["strict: hold", "strict: fail"]
    assert "champion" in live.run("rrf", "models", "list", MODEL)
    refused = live.start("promote", model=MODEL, version="2")
    live.wait_for_state(refused, "Failed")
    assert "gate strict says fail" in live.request(f"/flow_runs/{refused}")["state"]["message"]


@pytest.mark.slow
def test_a_cancelled_train_vla_leaves_a_checkpoint_and_the_next_run_resumes_it(live: Checkout):
    overrides = {"sft.max_steps": 400, "sft.batch_size": 8, "sft.log_interval": 5, "sft.seed": 2}
    values = {"pretrain": None, "rl": None, "gate": "configs/gates/tiny.yaml"} | {
        "model": "resumed"
    }
    values["overrides"] = overrides | {"sft.save_interval": 1000, "sft.validation_fraction": 0}
    log = live.root / ".rrf/logs/sft.log"
    log.unlink(missing_ok=True)
    run = live.start("train-vla", **values)
    wait_for(lambda: log.exists() and "step 5/400" in log.read_text(), 300)
    live.run("prefect", "flow-run", "cancel", run)
    live.wait_for_state(run, "Cancelled")
    [saved] = [
        path for path in (live.root / ".rrf/runs").rglob("global_step_*") if unfinished(path)
    ]
    log.unlink()
    live.wait_for_state(live.start("train-vla", **values), "Completed", timeout_s=400)
    first = int(log.read_text().split("step ")[1].split("/")[0])
    assert first > int(saved.name.removeprefix("global_step_"))


@pytest.mark.slow
def test_two_nights_of_the_same_champion_raise_no_alarm(live: Checkout):
    shown = []
    for _ in range(2):
        run = live.start("nightly-benchmark", model=MODEL, protocol="configs/protocols/tiny.yaml")
        live.wait_for_state(run, "Completed")
        shown += live.artifacts(key={"any_": ["nightly-benchmark"]}, flow_run_id={"any_": [run]})
    assert shown == ["First night", "No alarm"]


def test_a_wrong_login_is_one_line_that_says_what_to_type(live: Checkout, monkeypatch):
    monkeypatch.setitem(live.env, "PREFECT_API_AUTH_STRING", "rrf:wrong")
    printed = live.run("prefect", "deployment", "run", "train-vla", check=False)
    assert "asks for a login; type: export PREFECT_API_AUTH_STRING=" in printed.replace("\n", " ")
    assert "Traceback" not in printed


def test_an_unknown_bare_name_lists_the_known_ones(live: Checkout):
    printed = live.run("prefect", "deployment", "run", "train-val", check=False)
    assert "no deployment 'train-val'" in printed.replace("\n", " ")
    assert "Traceback" not in printed


def test_cancelling_stops_training_and_saves_a_checkpoint(live: Checkout, tmp_path):
    run = live.start("training", checkpoint=str(tmp_path / "checkpoint.json"))
    trainer = trainer_of(tmp_path / "checkpoint.json")
    live.run("prefect", "flow-run", "cancel", run)
    live.wait_for_state(run, "Cancelled")
    wait_for(lambda: not is_running(trainer["pid"]))
    assert json.loads((tmp_path / "checkpoint.json").read_text())["saved_on_signal"]


@pytest.mark.slow
def test_a_failed_run_resumes_where_training_was_killed(live: Checkout, tmp_path):
    checkpoint = tmp_path / "checkpoint.json"
    run = live.start("training", checkpoint=str(checkpoint), steps=60)
    os.kill(trainer_of(checkpoint)["pid"], signal.SIGKILL)
    live.wait_for_state(run, "Failed")
    live.run("prefect", "flow-run", "retry", run)
    live.wait_for_state(run, "Completed")
    state = json.loads(checkpoint.read_text())
    assert state["step"] == 60
    assert [start > 0 for start in state["starts"]] == [False, True]


def worker_reports(live: Checkout) -> int:
    """How often the worker has dealt with a process that was killed."""
    log = (live.root / ".rrf/logs/worker.log").read_text()
    return log.count("prefect.flow_runs.worker - Check whether the flow run exceeded its memory")


@pytest.mark.slow
def test_a_killed_flow_takes_training_with_it_and_resumes_on_retry(live: Checkout, tmp_path):
    """Slow: the killed flow's GPU slot is free only when its lease of 60 s has run out."""
    checkpoint = tmp_path / "checkpoint.json"
    run = live.start("training", checkpoint=str(checkpoint), steps=100)
    trainer = trainer_of(checkpoint)
    num_reports = worker_reports(live)
    os.kill(trainer["parent"], signal.SIGKILL)
    live.wait_for_state(run, "Crashed")
    # Prefect crashes a killed run twice, the worker last; a retry in between would be lost.
    wait_for(lambda: worker_reports(live) > num_reports)
    wait_for(lambda: not is_running(trainer["pid"]))
    assert json.loads(checkpoint.read_text())["saved_on_signal"]
    live.run("prefect", "flow-run", "retry", run)
    live.wait_for_state(run, "Completed")
    assert json.loads(checkpoint.read_text())["starts"][1] > 0


@pytest.mark.slow
def test_up_again_keeps_what_runs(live: Checkout):
    before = (live.root / ".rrf/pids/prefect.json").read_text()
    live.run(sys.executable, "-m", "infra.services", "up")
    assert (live.root / ".rrf/pids/prefect.json").read_text() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlflow", "prefect"])
def test_up_mends_a_server_whose_launcher_was_killed(live: Checkout, monkeypatch, name):
    """In another shell, which does not know the ports; Prefect's server is one process."""
    before = json.loads((live.root / f".rrf/pids/{name}.json").read_text())
    os.kill(before["pid"], signal.SIGKILL)
    wait_for(lambda: not is_running(before["pid"]))
    for variable in ("RRF_PREFECT_PORT", "RRF_MLFLOW_PORT", "PREFECT_API_URL"):
        monkeypatch.delitem(live.env, variable)
    printed = live.run(sys.executable, "-m", "infra.services", "up")
    assert ("had been killed; ended what it left" in printed) == (name == "mlflow")
    after = json.loads((live.root / f".rrf/pids/{name}.json").read_text())
    assert after["port"] == before["port"]
    assert after["pid"] != before["pid"]
    assert live.run(sys.executable, "-m", "infra.services", "status").count("✓") == 3
    assert "train-vla" in live.run("prefect", "deployment", "ls")
