"""Addresses of MLflow's pages, and what reports link to."""

from rrf.lineage import EnvironmentLineage, Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.flow_run import FlowRun, flow_run_tags
from rrf.registry import links
from rrf.registry.lineage_sources import collect_lineage
from tests.registry.conftest import add_dataset, make_checkpoint


def test_a_local_store_is_shown_by_the_server_of_make_up(home, monkeypatch):
    monkeypatch.delenv("RRF_MLFLOW_PORT", raising=False)
    assert links.run_url("12ab") == "http://127.0.0.1:5000/#/runs/12ab"
    monkeypatch.setenv("RRF_MLFLOW_PORT", "5100")
    assert links.version_url("reach", "3") == "http://127.0.0.1:5100/#/models/reach/versions/3"


def test_a_store_elsewhere_shows_itself(home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/")
    assert links.run_url("12ab") == "https://mlflow.example.org/#/runs/12ab"


def test_an_artifact_has_a_page_of_its_own(home, monkeypatch):
    monkeypatch.delenv("RRF_MLFLOW_PORT", raising=False)
    client = store.connect()
    experiment = store.experiment_id(client, "train")
    run_id = client.create_run(experiment).info.run_id
    page = f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{run_id}/artifacts"
    assert links.artifact_url(run_id, "evaluation/report.html") == f"{page}/evaluation/report.html"


def test_a_report_links_to_its_runs_and_to_every_dataset(home, monkeypatch):
    monkeypatch.delenv("RRF_MLFLOW_PORT", raising=False)
    flow_run = FlowRun("11-22", "train", "http://127.0.0.1:4200/runs/flow-run/11-22")
    card = (home / "datasets/demo/README.md").as_uri()
    assert links.report_links("12ab", collect_lineage("demo"), flow_run) == {
        "MLflow run": "http://127.0.0.1:5000/#/runs/12ab",
        "Prefect run": flow_run.url,
        "dataset": card,
    }
    add_dataset(home, "lab", "77.dir")
    several = links.report_links(None, collect_lineage("demo", "lab"))
    assert several == {
        "dataset demo": card,
        "dataset lab": (home / "datasets/lab/README.md").as_uri(),
    }
    assert links.report_links(None, Lineage(environment=EnvironmentLineage("CartPole-v1"))) == {}


def test_a_command_knows_the_flow_run_that_started_it(monkeypatch):
    assert FlowRun.from_environment() is None
    assert flow_run_tags() == {}
    flow_run = FlowRun("11-22", "train")
    for key, value in flow_run.environment().items():
        monkeypatch.setenv(key, value)
    assert FlowRun.from_environment() == flow_run == FlowRun.from_tags(flow_run_tags())
    assert links.report_links(None, Lineage()) == {}  # it has no page: there is no server


def test_a_policy_outside_of_a_run_directory_has_no_page(home):
    make_checkpoint(home / "copied", 1)
    assert links.policy_links("copied") == {}
