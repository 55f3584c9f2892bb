"""What flow runs, task runs and artifacts are called, and the links between Prefect and MLflow: the
whole of `train-locomotion` on a server for tests, with stand-ins for the commands that take long.
"""

import ast
import datetime
import re
import shutil
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
)
from prefect.runtime import flow_run, task_run

from flows import commands, evaluate, ingest, names, promote, this_run, train_vla
from flows import nightly_benchmark as nightly
from flows.nightly_matrix import nightly_matrix
from flows.train_locomotion import train_locomotion
from rrf.evaluation.nightly.matrix import SpeedCfg
from rrf.lineage import EnvironmentLineage, Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.flow_run import FlowRun
from rrf.outcome import Outcome
from rrf.registry import nights, promotion, speeds, versions
from rrf.run_directory import TrainingResult
from tests.registry.conftest import (
    empty_store,  # noqa: F401 (a fixture of `home`)
    make_checkpoint,
    make_evaluation,
    write_gate,
    write_json,
)

LINEAGE = Lineage(environment=EnvironmentLineage("CartPole-v1", "c" * 64), git_revision="ab" * 20)


@pytest.fixture
def home(tmp_path, monkeypatch, empty_store):  # noqa: F811
    """A repository with a gate of one task, and commands that only leave their files behind."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("RRF_MLFLOW_PORT", raising=False)
    (tmp_path / ".rrf").mkdir()
    shutil.copy(empty_store, tmp_path / ".rrf/mlflow.db")
    write_gate(tmp_path / "configs/gates/g.yaml")
    return tmp_path


@pytest.fixture
def ran(home, monkeypatch) -> list[tuple]:
    """Step, task run, flow run and environment of every command that the flows started."""
    seen = []
    checkpoint = home / ".rrf/runs/cartpole-ppo-0a1b2c3d4e5f/global_step_3"

    def run(step: str, words: list[str], env: dict[str, str], *_: object) -> list[str]:
        seen.append((step, task_run.name, flow_run.name, commands._environment() | env))
        if step == "rl":
            client = store.connect()
            run_id = client.create_run(store.experiment_id(client, "cartpole-ppo")).info.run_id
            make_checkpoint(checkpoint, 3, LINEAGE)
            result = TrainingResult(str(checkpoint), "c1", 3, {}, 1.0, 1.0, run_id)
            result.write(checkpoint.parent)
            write_json(checkpoint.parent / "run.json", {"run_id": run_id})
            Outcome(0, None, result.to_dict()).write(Path(words[-1]))
        if step == "speed":
            cpu_s = 1.0 if "seed=1" in words else 4.0
            facts = {"steps": 2, "num_steps": 1000, "cpu_s": cpu_s}
            Outcome(0, None, facts).write(Path(words[-1]))
        if step == "evaluate":
            make_evaluation(home / "evaluation", checkpoint, solved=18)
            Outcome(0, None, {"evaluation": str(home / "evaluation")}).write(Path(words[-1]))
        return []

    monkeypatch.setattr(commands, "_run", run)
    return seen


def artifacts_of(run_id: str) -> dict[str, tuple[str, str]]:
    """Description and content of the artifacts of a flow run, by key."""
    of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=of_run)
    return {one.key: (one.description or "", str(one.data)) for one in found if one.key}


@pytest.mark.slow
def test_train_locomotion_names_its_runs_and_links_to_mlflow_and_back(
    server, home, ran, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6")
    gate_file = str(home / "configs/gates/g.yaml")
    ended = train_locomotion("cartpole-ppo", gate_file, "balance", return_state=True)
    result = ended.result()
    assert result["promoted"]
    assert ended.message == "18 of 20 solved, promoted as balance/1"
    begun = "train-locomotion balance: cartpole-ppo"
    assert [(step, task) for step, task, _, _ in ran] == [
        ("check", "check cartpole-ppo against g"),
        ("rl", "train rl cartpole-ppo"),
        ("evaluate", "evaluate cartpole-ppo-0a1b2c3d4e5f/global_step_3 under p look 1"),
    ]
    assert {name for _, _, name, _ in ran} == {begun}
    cards = [env.get("CUDA_VISIBLE_DEVICES") for _, _, _, env in ran]
    assert cards == [None, "6", "6"]  # the check needs none
    run_id = str(ended.state_details.flow_run_id)
    with get_client(sync_client=True) as client:
        name = client.read_flow_run(ended.state_details.flow_run_id).name
    assert name == "train-locomotion balance version 1: cartpole-ppo"

    told = FlowRun(run_id, begun, ran[1][3]["RRF_FLOW_RUN_URL"])
    assert told.url == ""  # it would be of this machine, and of today's port
    assert ran[1][3] | told.environment() == ran[1][3]
    version = versions.find("balance@champion")
    assert FlowRun.from_tags(version.tags) == told
    assert f"{begun} (`rrf open {run_id}`)" in version.description
    report = (home / "evaluation/report.html").read_text()
    assert f"Prefect run: <code>rrf open {run_id}</code>" in report
    assert f"MLflow run: <code>rrf open {version.run_id}</code>" in report
    assert not re.search(r"127\.0\.0\.1|localhost|file:/", report)
    assert "balance version 1" in report

    shown = artifacts_of(run_id)
    page = f"http://127.0.0.1:5000/#/runs/{version.run_id}"
    where, mlflow_run = home / "evaluation/report.html", f"MLflow run: `rrf open {version.run_id}`"
    assert shown["mlflow-run"] == (
        f"rl: cartpole-ppo, 3 steps; `rrf open {version.run_id}`",
        f"[MLflow run of cartpole-ppo]({page})",
    )
    assert f"report: `{where}`, {mlflow_run}" in shown["evaluation"][0]
    description, text = shown["gate-verdict"]
    assert description == "g: pass"
    assert "A candidate for `balance`." in text
    assert f"- {mlflow_run}\n- Prefect run: `rrf open {run_id}`\n" in text
    description, text = shown["model-version"]
    assert description == "balance version 1"
    assert "- version in MLflow: `rrf open balance/1`" in text
    [stored] = store.connect().list_artifacts(version.run_id, "evaluation")
    kept = [file.path for file in store.connect().list_artifacts(version.run_id, stored.path)]
    assert f"{stored.path}/report.html" in kept
    assert f"- report: `{where}`" in text
    assert "/#/models/balance/versions/1)" in shown["champion"][1]


@pytest.mark.slow
def test_a_training_ends_with_what_came_of_it(server, home, ran):
    def said() -> str:
        gate = str(home / "configs/gates/g.yaml")
        return str(train_locomotion("cartpole-ppo", gate, "balance", return_state=True).message)

    assert said() == "18 of 20 solved, promoted as balance/1"
    nothing = "skipped: nothing changed, balance version 1 is @champion already"
    assert said() == f"18 of 20 solved, {nothing}"
    assert promote.promote("1", "balance", return_state=True).message == nothing
    promotion.withdraw("balance", "drops the pole")
    assert said().startswith("18 of 20 solved, refused: ")
    assert "drops the pole" in said()


FLOWS = sorted(file for file in Path(names.__file__).parent.glob("*.py"))


def test_every_flow_ends_with_a_sentence_of_its_own():
    """Not with `Completed()`: what it returns is `completed(...)`, or what another such returns."""
    endings = {}
    for file in FLOWS:
        for flow in ast.walk(ast.parse(file.read_text())):
            if isinstance(flow, ast.FunctionDef) and any(
                "flow_run_name" in ast.unparse(each) for each in flow.decorator_list
            ):
                returned = [n.value for n in ast.walk(flow) if isinstance(n, ast.Return)]
                endings[flow.name] = {ast.unparse(value).partition("(")[0] for value in returned}
    assert {"ingest", "promote", "train_vla", "nightly_matrix"} <= set(endings)
    assert set().union(*endings.values()) <= {
        *("completed", "conclude", "Completed"),
        "_skipped",  # which is `completed` with a state of its own
    }
    assert all(endings.values())


@pytest.mark.slow
def test_a_night_is_an_mlflow_run_and_a_bad_one_fails_until_it_is_acknowledged(
    server, home, ran, monkeypatch
):
    train_locomotion("cartpole-ppo", str(home / "configs/gates/g.yaml"), "balance")
    ended = nightly.nightly_benchmark("balance", "configs/protocols/p.yaml", return_state=True)
    assert ran[-1][1:3] == (
        "evaluate balance/1 under p",
        "nightly-benchmark balance under p",
    )
    client = store.connect()
    [run] = client.search_runs([store.experiment_id(client, "nightly-balance")])
    assert str(run.info.run_name).startswith("balance version 1, p, 20")
    assert run.data.tags["prefect.flow_run_id"] == str(ended.state_details.flow_run_id)
    assert "nightly-benchmark balance under p (`rrf open " in run.data.tags["mlflow.note.content"]
    title, text = artifacts_of(str(ended.state_details.flow_run_id))["nightly-benchmark"]
    assert title == "First night"
    assert "18/20); the evaluation at promotion: 0.900" in text
    assert f"trend: `rrf open {run.info.run_id}`" in text
    assert re.fullmatch(r"version 1: 0.900 .*\(18/20\), no alarm", str(ended.message))
    assert (home / "trend.html").is_file()

    checkpoint = home / ".rrf/runs/cartpole-ppo-0a1b2c3d4e5f/global_step_3"
    make_evaluation(home / "bad", checkpoint, solved=8)

    def evaluate_badly(step: str, words: list[str], env: dict[str, str], *_: object) -> list[str]:
        Outcome(0, None, {"evaluation": str(home / "bad")}).write(Path(words[-1]))
        return []

    monkeypatch.setattr(commands, "_run", evaluate_badly)
    for expected in ("Failed", "Completed"):
        ended = nightly.nightly_benchmark("balance", "configs/protocols/p.yaml", return_state=True)
        assert ended.name == expected
        if expected == "Failed":
            assert "10 episodes lost and 0 won since the reference" in str(ended.message)
            assert "rrf nightly ack balance --reason" in str(ended.message)
            nights.acknowledge("balance", "a new simulator", is_reference=True)


@pytest.mark.slow
def test_the_matrix_goes_on_after_a_failure_and_names_it(server, home, ran):
    train_locomotion("cartpole-ppo", str(home / "configs/gates/g.yaml"), "balance")
    ended = nightly_matrix(["two_goals"], return_state=True)
    assert ended.message == "1 of 1 protocols play here, 1 champions without alarm"
    text = artifacts_of(str(ended.state_details.flow_run_id))["nightly-matrix"][1]
    assert "the same twice" in text
    assert "version 1: 0.900" in text
    [note] = (home / ".rrf/checks").iterdir()
    note.write_text(note.read_text().replace('"digest": "', '"digest": "0'))
    (home / "configs/gates/g.yaml").unlink()
    ended = nightly_matrix(["two_goals"], return_state=True)
    assert "failed: two-goals, balance; the artifact" in str(ended.message)
    text = artifacts_of(str(ended.state_details.flow_run_id))["nightly-matrix"][1]
    assert "rrf envs check two_goals --accept" in text
    assert "g.yaml" in text


@pytest.mark.slow
def test_the_matrix_is_what_its_file_says(server, home, ran):
    train_locomotion("cartpole-ppo", str(home / "configs/gates/g.yaml"), "balance")
    ran.clear()
    file, log_of = home / "configs/nightly.yaml", speeds.history
    speed = "{preset: cartpole-ppo, overrides: {seed: 1}, rounds: 2"
    file.write_text(
        "rows:\n- {models: [balance, 'walk*'], protocols: [p]}\n- {models: ['b*']}\n"
        f"speeds:\n- {speed}}}\n"
    )
    ended = nightly_matrix(["two_goals"], return_state=True)
    assert ended.message == (
        "1 of 1 protocols play here, 2 champions without alarm, no champion of walk*, 1 trainings "
        "as fast as before"
    )
    # The training is timed twice, and the champion is evaluated for each row.
    assert [step for step, *_ in ran] == ["evaluate", "evaluate", "speed", "speed"]
    [first] = log_of()
    assert (first.steps_per_cpu_s, first.key[:12]) == (1000, "cartpole-ppo")
    client = store.connect()
    slow = SpeedCfg(preset="cartpole-ppo", overrides={"seed": 1})
    assert speeds.ratio(slow, 700) == 0.7
    assert speeds.ratio(slow.replace(since=datetime.date(2999, 1, 1)), 700) == 1
    assert len(client.search_runs([store.experiment_id(client, "nightly-balance")])) == 2

    speeds.record(slow, 5000, "2020-01-01T020000Z")  # an earlier night, five times as fast
    ended = nightly_matrix(["two_goals"], return_state=True)
    assert f"failed: speed of {first.key}; the artifact" in str(ended.message)
    assert [step for step, *_ in ran].count("speed") == 2 + 4  # twice as many when it seems slow
    text = artifacts_of(str(ended.state_details.flow_run_id))["nightly-matrix"][1]
    assert "1000 steps per CPU second, 0.20 of the first night, and less than 0.8" in text
    assert "since: DAY" in text
    file.write_text(f"speeds:\n- {speed}, since: 2020-01-02}}\n")
    assert nightly_matrix(["two_goals"], return_state=True).is_completed()
    assert len(log_of()) == 4

    file.write_text("rows: [{models: [balance], protocols: [cartpol]}]")
    ended = nightly_matrix(["two_goals"], return_state=True)
    assert "there is no protocol 'cartpol'; did you mean 'cartpole'" in str(ended.message)


def test_flow_runs_are_called_by_model_stages_and_files(monkeypatch):
    given = {"model": "reach", "dataset": "demo", "pretrain": None, "sft": "a", "rl": "b"}
    monkeypatch.setitem(flow_run.FIELDS, "parameters", lambda: given)
    assert train_vla._run_name() == "train-vla reach: demo (sft, rl)"
    given |= {"policy": "models:/reach/3", "protocol": "configs/protocols/table.yaml"}
    assert callable(evaluate.evaluate.flow_run_name)
    assert evaluate.evaluate.flow_run_name() == "evaluate reach/3 under table"
    assert promote.promote.flow_run_name == "promote {model} version {version}"
    assert ingest.ingest.flow_run_name == "ingest {dataset}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("configs/train/pick.yaml", "pick"),
        ("metaworld-grpo-demo", "metaworld-grpo-demo"),
        ("/home/me/.rrf/runs/reach-0a1b/global_step_5", "reach-0a1b/global_step_5"),
        ("models:/reach/3", "reach/3"),
        ("reach@champion", "reach@champion"),
    ],
)
def test_parameters_are_shortened_in_names(value, expected):
    assert names.short(value) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train-vla reach: demo (sft)", "train-vla reach version 12: demo (sft)"),
        ("train-vla reach version 3: demo (sft)", "train-vla reach version 12: demo (sft)"),
        ("a name that a person gave", "a name that a person gave"),
        ("train-vla reach-far: demo", "train-vla reach-far: demo"),
    ],
)
def test_a_retried_flow_run_is_named_after_its_last_version(name, expected):
    assert this_run.named(name, "reach", "12") == expected
