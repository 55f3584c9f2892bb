"""What the deployed flows do on a real Prefect server, MLflow server and worker."""

import json
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import Checkout, as_words, balance_gate, balancing
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
MODEL = "tiny"
TRAIN = ("deployment", "run", "train-vla", "--watch")


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


def unfinished(checkpoint: Path) -> bool:
    return checkpoint.is_dir() and not any(
        (folder / "result.json").exists() for folder in checkpoint.parents
    )


def rule(live: Checkout, model: str, gate: str) -> None:
    """Change the gate that rules a model."""
    ruled = live.run("rrf", "models", "gate", model, gate, "--reason", "the robot needs more")
    assert f"{model} is ruled by {gate}" in ruled


SWING = """
name: swing
env: {type: "rrf.envs.gymnasium.configs:GymnasiumEnvCfg", task: Pendulum-v1, num_envs: 4}
seed: 4242
episodes_per_task: 4
max_episode_steps: 200
success: {return: {min: -2000}}
"""


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
        *("pull and reproduce metaworld-demo", "lineage of metaworld-demo"),
        *("train sft compact-vla-one-demo", "train rl metaworld-ppo-compact"),
        *(f"champions of {MODEL}", f"judge {MODEL} by tiny look 1", f"register {MODEL}"),
        f"promote {MODEL} version 1",
    }
    [compared] = (live.root / ".rrf/evaluations").rglob("baseline-before-training.json")
    report = (compared.parent / "report.html").read_text()
    assert "before training" in report
    assert "validation/success" in report


def as_bob(live: Checkout, *words: str) -> str:
    live.env["RRF_KEY"] = "bob"
    try:
        return live.run("rrf", *words)
    finally:
        live.env["RRF_KEY"] = "worker"


def test_a_promotion_waits_until_somebody_else_approves_it(live: Checkout, balanced: str):
    """By the command, then on the page of a flow run; no process waits meanwhile."""
    for name in ("worker", "bob"):
        live.run("rrf", "keys", "new", name, "--no-passphrase")
        live.run("rrf", "keys", "trust", name)
    live.run("rrf", "keys", "require", "balance", "--approvals", "1")

    def waiting(seed: int) -> str:
        overrides = {"max_iterations": 2, "num_steps_per_env": 32, "seed": seed}
        facts = {"gate": "configs/gates/easy.yaml", "model": "balance", "overrides": overrides}
        run = live.start("train-locomotion", preset="cartpole-ppo", **facts)
        live.wait_for_state(run, "Suspended")
        return run

    run = waiting(seed=5)
    assert "@staging" in live.run("rrf", "models", "list", "balance")
    refused = live.run("rrf", "models", "approve", "balance", "2", "--reason", "-", check=False)
    assert "is an approval by worker, who asked for it; somebody else must" in refused
    approved = as_bob(live, "models", "approve", "balance", "2", "--reason", "it stands")
    assert f"balance version 2 is approved; flow run {run} goes on" in approved
    live.wait_for_state(run, "Completed")
    assert "it stands" in live.run("rrf", "models", "ledger", "balance")

    run = waiting(seed=6)
    line = as_bob(live, "models", "approve", "balance", "3", "--reason", "-", "--print").strip()
    for given in ("no approval", line):
        live.request(f"/flow_runs/{run}/resume", {"run_input": {"approval": given}})
        live.wait_for_state(run, "Suspended" if given != line else "Completed")
    listed = live.run("rrf", "models", "list", "balance").splitlines()
    assert [row.split()[1] for row in listed if "@champion" in row] == ["3"]
    (live.root / "configs/trust.yaml").unlink()


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
    number = run["name"].partition(" version ")[2].partition(":")[0]
    assert run["name"] == f"train-locomotion balance version {number}: cartpole-ppo"
    versions = live.artifacts(key={"any_": ["model-version"]}, flow_run_id={"any_": [run["id"]]})
    assert versions == [f"balance version {number}"]
    [promoted] = live.request("/artifacts/filter", {"artifacts": {"key": {"any_": ["champion"]}}})[
        :1
    ]
    assert f"http://127.0.0.1:{live.mlflow_port}/#/models/" in str(promoted["data"])
    program = (
        f"from rrf.registry import versions; print(versions.find('balance/{number}').description)"
    )
    described = live.run(sys.executable, "-c", program)
    assert f"`rrf open {run['id']}`" in described
    assert "- Training: `cartpole-ppo`, seed 1, with PPO; MLflow run `" in described
    rows = live.run("rrf", "models", "list", "balance").splitlines()
    assert ["@champion" in row for row in rows[1:3]] == [False, True]
    assert [row.split()[-3] for row in rows[1:3]] == ["fail", "pass"]


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
    expected = {"pull and reproduce pendulum-medium", "train offline pendulum-bc"}
    assert {one["name"] for one in tasks} >= expected
    program = "from rrf.registry import versions; print(versions.find('swing/1').tags)"
    assert "pendulum-medium" in live.run(sys.executable, "-c", program)


def test_a_night_of_a_state_based_champion_is_measured(live: Checkout, balanced: str):
    night = live.start(
        "nightly-benchmark", model="balance", protocol="configs/protocols/balance.yaml"
    )
    live.wait_for_state(night, "Completed")
    folder = next((live.root / ".rrf/nightly/balance").glob("*/evaluation"))
    assert "return" in json.loads((folder / "evaluation.json").read_text())["metrics"]


def test_a_night_without_a_champion_says_so_and_is_no_failure(live: Checkout):
    run = live.start("nightly-benchmark", model="nobody-yet")
    live.wait_for_state(run, "NoChampion")
    state = live.request(f"/flow_runs/{run}")["state"]
    assert state["type"] == "COMPLETED"
    assert "'nobody-yet' has no champion yet" in state["message"]


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


def test_two_nights_of_the_same_champion_raise_no_alarm(live: Checkout):
    shown = []
    for _ in range(2):
        run = live.start("nightly-benchmark", model=MODEL, protocol="configs/protocols/tiny.yaml")
        live.wait_for_state(run, "Completed")
        shown += live.artifacts(key={"any_": ["nightly-benchmark"]}, flow_run_id={"any_": [run]})
    assert shown == ["First night", "No alarm"]
