"""Addresses of MLflow's pages, and what reports link to."""

import pytest

from rrf.lineage import EnvironmentLineage, Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.flow_run import FlowRun, flow_run_tags
from rrf.pages import page
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


RUN, FLOW_RUN = "12ab" * 8, "12345678-0000-4000-8000-12ab12ab12ab"


def test_what_is_kept_of_a_page_of_this_machine_is_the_command_that_finds_it(home, monkeypatch):
    team = "https://mlflow.example.org/#/runs/12ab"
    assert links.lasting(team, "12ab") == team
    for here in ("http://127.0.0.1:5000/#/runs/12ab", "http://localhost:1", "http://[::1]:1/"):
        assert links.lasting(here, "12ab") == "rrf open 12ab"


def test_a_page_is_looked_up_when_it_is_asked_for(home, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    for port in ("5000", "5100"):
        monkeypatch.setenv("RRF_MLFLOW_PORT", port)
        monkeypatch.setenv("RRF_PREFECT_PORT", f"1{port}")
        assert links.page_of(RUN) == f"http://127.0.0.1:{port}/#/runs/{RUN}"
        flow_run = f"http://127.0.0.1:1{port}/runs/flow-run/{FLOW_RUN}"
        assert links.page_of(FLOW_RUN) == flow_run
    monkeypatch.setenv("PREFECT_API_URL", "https://ann:secret@prefect.example.org/api")
    assert links.page_of(FLOW_RUN) == f"https://prefect.example.org/runs/flow-run/{FLOW_RUN}"
    for other in ("what/is/this", "copied"):
        make_checkpoint(home / "copied", 1)
        with pytest.raises(ValueError, match="no page"):
            links.page_of(other)


def test_a_report_links_to_its_runs_and_to_every_dataset(home):
    flow_run = FlowRun("11-22", "train", "https://prefect.example.org/runs/flow-run/11-22")
    lineage = collect_lineage("demo")
    here = links.report_links(RUN, lineage, flow_run, folder=home / ".rrf/evaluations/x")
    assert here == {
        "MLflow run": f"rrf open {RUN}",
        "Prefect run": flow_run.url,
        "dataset": "../../../datasets/demo/README.md",
    }
    add_dataset(home, "lab", "77.dir")
    several = links.report_links(
        None, collect_lineage("demo", "lab"), FlowRun("11-22"), stored="evaluation/8a"
    )
    assert several == {
        "Prefect run": "rrf open 11-22",
        "dataset demo": "../../dataset/demo/README.md",
        "dataset lab": "../../dataset/lab/README.md",
    }
    assert links.report_links(None, Lineage(environment=EnvironmentLineage("CartPole-v1"))) == {}


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("rrf open 12ab", "page: <code>rrf open 12ab</code>"),
        ("../x/README.md", '<a href="../x/README.md">page</a>'),
        ("https://example.org", '<a href="https://example.org">page</a>'),
        ("javascript:alert(1)", "page: javascript:alert(1)"),
        ("s3://bucket/card.md", "page: s3://bucket/card.md"),
    ],
)
def test_a_page_shows_commands_as_text_and_files_beside_it_as_links(target, shown):
    macro = page._environment().get_template("pages/macros.html").module.link
    assert str(macro("page", target)).strip() == shown


def test_a_command_knows_the_flow_run_that_started_it(monkeypatch):
    assert FlowRun.from_environment() is None
    assert flow_run_tags() == {}
    flow_run = FlowRun("11-22", "train")
    for key, value in flow_run.environment().items():
        monkeypatch.setenv(key, value)
    assert FlowRun.from_environment() == flow_run == FlowRun.from_tags(flow_run_tags())
    assert links.report_links(None, Lineage()) == {"Prefect run": "rrf open 11-22"}


def test_a_policy_outside_of_a_run_directory_has_no_page(home):
    make_checkpoint(home / "copied", 1)
    assert links.policy_links("copied") == {}
